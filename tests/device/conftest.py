"""Fixtures of the device's tests: a device, and scripts in processes that have not used it."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

from behaviour.script import run_script
from device.forking import fork_server


@pytest.fixture(autouse=True)
def device_zero_afterwards() -> Iterator[None]:
    """Leave device 0 current and its default stream in place, whatever a test did."""
    torch.neuron.set_device(0)
    yield
    for index in reversed(range(torch.neuron.device_count())):
        torch.neuron.set_stream(torch.neuron.default_stream(index))


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a process that has torch and has not used the device."""
    return functools.partial(fork_server(loaded=True).run, folder=tmp_path)


@pytest.fixture
def fresh_script(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a process that has not imported torch."""
    return functools.partial(run_script, folder=tmp_path)
