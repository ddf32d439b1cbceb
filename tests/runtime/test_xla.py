"""The client of XLA:CPU."""

import subprocess
import sys

import pytest

SOURCE = """
from pathlib import Path
import torch
torch.set_num_threads({threads})
from torchneuron.runtime import xla
xla.client()
names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
print(names.count("tf_XLAEigen"))
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_programs_run_on_as_many_threads_as_pytorch(threads: int) -> None:
    """A user who limits PyTorch's threads limits XLA's with them."""
    command = [sys.executable, "-c", SOURCE.format(threads=threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == threads
