"""Fixtures of the device's tests: a device, and scripts in fresh processes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from behaviour.script import run_script


@pytest.fixture(autouse=True)
def device_zero_afterwards() -> Iterator[None]:
    """Leave device 0 current and its default stream in place, whatever a test did."""
    torch.neuron.set_device(0)
    yield
    for index in reversed(range(torch.neuron.device_count())):
        torch.neuron.set_stream(torch.neuron.default_stream(index))


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a fresh process, in this test's own folder."""

    def run(source: str, **options: Any) -> CompletedProcess[str]:
        return run_script(source, tmp_path, **options)

    return run
