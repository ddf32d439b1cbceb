import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchneuron.cli import main
from torchneuron.runtime.cache import Key, user_cache

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def three_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHNEURON_CACHE_DIR", str(tmp_path))
    user_cache.cache_clear()
    for name in "abc":
        user_cache().get_or_make(Key({"program": name}), lambda: b"x" * 100, lambda blob: blob)
    yield
    user_cache.cache_clear()


def test_list_and_size(capsys: Capture, tmp_path: Path) -> None:
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].split() == ["program", "bytes", "last", "used"]
    assert main(["cache", "size"]) == 0
    text = capsys.readouterr().out
    assert text == f"3 programs, {user_cache().num_bytes()} bytes, in {tmp_path}/programs\n"


def test_prune_keeps_what_fits(capsys: Capture) -> None:
    one = user_cache().num_bytes() // 3
    assert main(["cache", "prune"]) == 0
    assert "0 programs dropped" in capsys.readouterr().out
    assert main(["cache", "prune", "--max-bytes", str(one)]) == 0
    assert "2 programs dropped\n1 programs" in capsys.readouterr().out


def test_clear_and_json(capsys: Capture) -> None:
    assert main(["cache", "clear", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchneuron.cache/1" and document["bytes"] == 0
    assert len(document["programs"]) == 3 and document["action"] == "clear"


def test_mistakes_are_usage_errors(capsys: Capture) -> None:
    assert main(["cache", "lst"]) == 2
    capsys.readouterr()
    assert main(["cache", "prune", "--max-bytes", "much"]) == 2
    said = capsys.readouterr().err
    assert "--max-bytes" in said and "`much`" in said and "hint: write a number" in said
    assert "TORCHNEURON_CACHE_MAX_BYTES" not in said
