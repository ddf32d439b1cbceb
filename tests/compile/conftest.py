"""Fixtures of the compile tests: a program cache of their own, Dynamo without memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchneuron.runtime.cache import user_cache


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all compile tests: the same small programs come again and again."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(autouse=True)
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHNEURON_CACHE_DIR", str(cache_folder))
    user_cache.cache_clear()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    user_cache.cache_clear()
