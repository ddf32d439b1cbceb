"""Compiled programs on disk, shared by the processes of one user.

One file per program, named by the hash of its key. A file appears whole or not at all (written
beside, then renamed), carries a checksum, and is read under no lock. Compiling holds a lock per
key, so that of several processes one compiles and the others wait for its file. What goes wrong
with the disk costs a compilation and one notice, never the result.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchneuron import config, ledger
from torchneuron.ledger import Notice

_log = logging.getLogger(__name__)
_MAGIC = b"torchneuron-program-1\n"
_SUFFIX = ".program"
_said: set[str] = set()


@dataclass(frozen=True, slots=True)
class Entry:
    """Describe one program on disk: name, size in bytes, and when it was last used (seconds)."""

    name: str
    num_bytes: int
    last_used_s: float


class Key:
    """Hash labelled parts; the log shows a hash per part, so that two misses can be compared."""

    def __init__(self, parts: Mapping[str, bytes | str]) -> None:
        total = hashlib.sha256()
        for label, part in parts.items():
            data = part.encode() if isinstance(part, str) else part
            own = hashlib.sha256(data).hexdigest()
            _log.debug("cache key: %s = %s (%d bytes)", label, own[:12], len(data))
            total.update(f"{label}={own}\n".encode())
        self.name = total.hexdigest()[:40]
        _log.debug("cache key: all = %s", self.name)


@functools.cache
def user_cache() -> ProgramCache:
    """Return this process's program cache, where the settings say.

    Raises:
        ConfigError: A setting does not make sense.
    """
    settings = config.load()
    folder = settings.cache_dir or settings.neff_cache_dir or config.user_cache_dir()
    return ProgramCache(Path(folder) / "programs", settings.cache_max_bytes)


class ProgramCache:
    """Keep compiled programs in a private directory, at most so many bytes of them.

    Args:
        folder: The directory; made, readable by its owner only, when first written.
        max_bytes: Above it, programs that were not used for longest are dropped.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._unchecked_bytes = 0  # that may be written before the whole folder is looked at

    def get_or_make(
        self, key: Key, make: Callable[[], bytes], load: Callable[[bytes], object]
    ) -> tuple[object, bool]:
        """Return the loaded program and whether it came from disk.

        Args:
            key: What the program depends on.
            make: Compile and serialize; runs while other processes with this key wait.
            load: Turn serialized bytes into a program; a file that it cannot load counts as
                damaged and is made anew.
        """
        found = self.get(key.name, load)
        if found is not None:
            return found, True
        with self._locked(key):
            found = self.get(key.name, load)  # another process may have made it meanwhile
            if found is not None:
                return found, True
            blob = make()
            self.put(key.name, blob)
        return load(blob), False

    def entries(self) -> list[Entry]:
        """Return what is there, the longest unused first."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if path.suffix == _SUFFIX:
                    with contextlib.suppress(OSError):
                        stat = path.stat()
                        found.append(Entry(path.stem, stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda entry: (entry.last_used_s, entry.name))

    def num_bytes(self) -> int:
        """Return the size of all programs in bytes."""
        return sum(entry.num_bytes for entry in self.entries())

    def prune(self, max_bytes: int) -> list[Entry]:
        """Drop the longest unused programs until at most so many bytes are left; return them."""
        return self._prune(max_bytes)[0]

    def _prune(self, max_bytes: int) -> tuple[list[Entry], int]:
        """Prune; return what was dropped, and how many bytes are left."""
        entries = self.entries()
        left = sum(entry.num_bytes for entry in entries)
        dropped = []
        for entry in entries:
            if left <= max_bytes:
                break
            with contextlib.suppress(OSError):
                self._path(entry.name).unlink()
                dropped.append(entry)
                left -= entry.num_bytes
        return dropped, left

    def clear(self) -> list[Entry]:
        """Drop all programs; return them."""
        return self.prune(-1)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def get(self, name: str, load: Callable[[bytes], object]) -> object | None:
        """Return the loaded program of this name, None where it is not there or damaged."""
        path = self._path(name)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            _say(f"{path} cannot be read: {error.strerror}", "check its owner and mode")
            return None
        blob = _unsealed(content)
        if blob is not None:
            try:
                program = load(blob)
            except Exception as error:  # noqa: BLE001 (fails in ways of the compiler's own)
                _log.debug("%s does not load: %s", path, error)
            else:
                with contextlib.suppress(OSError):
                    os.utime(path)
                return program
        _say(
            f"{path} is damaged; the program is compiled anew",
            "if this happens again, check the disk, or run `torchneuron cache clear`",
        )
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, name: str, blob: bytes) -> None:
        """Keep a serialized program under its key's name; a disk that fails is said once."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=name, suffix=".new")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_sealed(blob))
                os.replace(temporary, self._path(name))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            _say(
                f"a compiled program cannot be kept in {self.folder}: {error.strerror}",
                "free space, or set TORCHNEURON_CACHE_DIR to a directory that can be written",
            )
            return
        self._unchecked_bytes -= len(blob)
        if self._unchecked_bytes < 0:
            _, left = self._prune(self.max_bytes)
            # An eighth: other processes write too, and looking costs milliseconds a thousand.
            self._unchecked_bytes = (self.max_bytes - left) // 8

    @contextlib.contextmanager
    def _locked(self, key: Key) -> Iterator[None]:
        """Hold this key's lock, or none where the directory takes no files."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = open(self.folder / f"{key.name}.lock", "a")
        except OSError:
            yield
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)


def _sealed(blob: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(blob).digest() + blob


def _unsealed(content: bytes) -> bytes | None:
    head, rest = content[: len(_MAGIC)], content[len(_MAGIC) :]
    checksum, blob = rest[:32], rest[32:]
    return blob if head == _MAGIC and hashlib.sha256(blob).digest() == checksum else None


def _say(text: str, hint: str) -> None:
    """Tell the user once: a disk that takes nothing takes none of a hundred programs."""
    if text not in _said:
        _said.add(text)
        ledger.emit(Notice("program cache", text, hint))
