"""Fixtures of the sparse tests: scripts in fresh processes."""

import functools
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from behaviour.script import run_script
from device.forking import fork_server


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a fresh process, in this test's own folder."""
    return functools.partial(run_script, folder=tmp_path)


@pytest.fixture
def fresh_device(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a process that has torch and has not used the device."""
    return functools.partial(fork_server(loaded=True).run, folder=tmp_path)
