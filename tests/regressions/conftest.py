"""The fixture of the regression tests: scripts in fresh processes."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from behaviour.script import run_script


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a fresh process, in this test's own folder."""

    def run(source: str, **options: Any) -> CompletedProcess[str]:
        return run_script(source, tmp_path, **options)

    return run
