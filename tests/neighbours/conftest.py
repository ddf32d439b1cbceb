"""Fixtures of the neighbour tests: no network, no state left from the test before."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from textwrap import dedent
from typing import Any

import pytest
import torch

from behaviour.script import run_script
from neighbours import network

PRELUDE = """
from neighbours import network

network.close()
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as the scripts of `run_script` do: sums depend on how threads divide them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections and keep the libraries from trying any."""
    network.close(monkeypatch.setattr)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")


@pytest.fixture(autouse=True)
def fresh_libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what accelerate keeps for the process, and what it writes to the environment."""
    import torch
    from accelerate.state import AcceleratorState
    from transformers.utils import logging as transformers_logging

    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    transformers_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.neuron.set_device(0)
    torch.manual_seed(0)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.neuron.set_device(0)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a fresh process without a network, in this test's own folder."""

    def run(source: str, **options: Any) -> CompletedProcess[str]:
        return run_script(PRELUDE + dedent(source), tmp_path, **options)

    return run
