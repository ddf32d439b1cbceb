"""Fixtures of the compile tests: a program cache of their own, Dynamo without memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from behaviour.compiling import own_programs


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all compile tests: the same small programs come again and again."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(autouse=True)
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with own_programs(cache_folder, monkeypatch):
        yield
