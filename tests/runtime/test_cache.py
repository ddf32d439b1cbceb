"""The program cache: whole files, one compilation for many processes, a bound, and bad disks."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchneuron import ledger
from torchneuron.ledger import Notice
from torchneuron.runtime.cache import Key, ProgramCache


@pytest.fixture
def notices() -> Iterator[list[str]]:
    """Collect what is said."""
    said: list[str] = []

    def keep(event: object) -> None:
        if isinstance(event, Notice):
            said.append(event.text)

    remove = ledger.add_sink(keep)
    yield said
    remove()


def key(text: str) -> Key:
    return Key({"program": text, "compiler": "one"})


def identity(blob: bytes) -> bytes:
    return blob


def never() -> bytes:
    raise AssertionError("it is on disk already")


def test_a_program_is_made_once(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "new", 1000)
    assert cache.get_or_make(key("a"), lambda: b"made", identity) == (b"made", False)
    assert cache.get_or_make(key("a"), never, identity) == (b"made", True)
    assert ProgramCache(tmp_path / "new", 1000).get_or_make(key("a"), never, identity)[1]


def test_every_part_and_label_of_a_key_counts() -> None:
    parts = [{"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": ""}, {"a": b"1", "c": "1"}]
    assert len({Key(each).name for each in parts}) == len(parts)
    assert Key({"a": "1"}).name == Key({"a": b"1"}).name


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "private", 1000)
    cache.get_or_make(key("a"), lambda: b"x", identity)
    assert (tmp_path / "private").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "private").iterdir())


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "unloadable"])
def test_a_damaged_file_is_made_anew_with_one_notice(
    damage: str, tmp_path: Path, notices: list[str]
) -> None:
    cache = ProgramCache(tmp_path, 1000)
    cache.get_or_make(key("a"), lambda: b"good", identity)
    (path,) = tmp_path.glob("*.program")
    content = path.read_bytes()
    changed = {"cut": content[:-2], "flipped": content[:-1] + b"!", "empty": b""}
    path.write_bytes(changed.get(damage, content))

    def load(blob: bytes) -> bytes:
        if damage == "unloadable" and blob == b"good":
            raise RuntimeError("not an executable")
        return blob

    assert cache.get_or_make(key("a"), lambda: b"again", load) == (b"again", False)
    assert len(notices) == 1 and "damaged" in notices[0] and str(path) in notices[0]
    assert cache.get_or_make(key("a"), never, load) == (b"again", True)


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, 10_000)
    for number, name in enumerate("abc"):
        cache.get_or_make(key(name), lambda: b"x" * 100, identity)
        os.utime(tmp_path / f"{key(name).name}.program", (number, number))
    cache.get_or_make(key("a"), never, identity)  # now the last used
    size = cache.num_bytes()
    dropped = cache.prune(size - 1)
    assert [entry.name for entry in dropped] == [key("b").name]
    assert cache.num_bytes() == size * 2 // 3
    assert len(cache.clear()) == 2 and cache.entries() == []


def test_the_bound_holds_after_each_write(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path, 500)
    for number in range(10):
        cache.get_or_make(key(str(number)), lambda: b"x" * 100, identity)
        assert cache.num_bytes() <= 500
    assert len(cache.entries()) >= 2


def test_a_folder_that_takes_no_file_costs_a_notice(tmp_path: Path, notices: list[str]) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    cache = ProgramCache(tmp_path / "file" / "cache", 1000)
    assert cache.get_or_make(key("a"), lambda: b"x", identity) == (b"x", False)
    assert len(notices) == 1 and "cannot be" in notices[0]


def test_a_full_disk_costs_a_notice_and_leaves_nothing(
    tmp_path: Path, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache = ProgramCache(tmp_path, 1000)
    assert cache.get_or_make(key("a"), lambda: b"x", identity) == (b"x", False)
    assert len(notices) == 1 and "No space left" in notices[0]
    assert list(tmp_path.iterdir()) == []


def _make_slowly(folder: Path, log: Path) -> None:
    def make() -> bytes:
        with open(log, "a") as file:
            file.write("made\n")
        time.sleep(0.3)
        return b"program"

    program, _ = ProgramCache(folder, 1000).get_or_make(key("a"), make, identity)
    assert program == b"program"


def test_of_several_processes_one_compiles(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    log = tmp_path / "log"
    processes = [
        context.Process(target=_make_slowly, args=(tmp_path / "cache", log)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert log.read_text() == "made\n"


def _die_while_making(folder: Path) -> None:
    def make() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    ProgramCache(folder, 1000).get_or_make(key("a"), make, identity)


def test_a_killed_process_leaves_the_cache_usable(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=_die_while_making, args=(tmp_path,)
    )
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    cache = ProgramCache(tmp_path, 1000)
    assert cache.get_or_make(key("a"), lambda: b"x", identity) == (b"x", False)
