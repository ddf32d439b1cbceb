"""Fixtures of the regression tests: scripts in fresh processes, and what compiling needs."""

from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One program cache for all regression tests."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep programs out of the user's cache; Dynamo begins without memory."""
    from behaviour.compiling import own_programs  # imports torch

    with own_programs(cache_folder, monkeypatch):
        yield


@pytest.fixture
def notices() -> Iterator[list[str]]:
    """Collect what the user is told, as if nothing had been said before."""
    from torchneuron import ledger
    from torchneuron.compile import failures, options
    from torchneuron.ledger import Notice

    said: list[str] = []
    options._said.clear()
    failures._said.clear()
    remove = ledger.add_sink(
        lambda event: said.append(event.text) if isinstance(event, Notice) else None
    )
    yield said
    remove()
