"""What compiling cost in this process: a record per program, and their totals."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """Describe how one program came to be.

    Attributes:
        graph: Name of the graph and the part of it.
        num_nodes: ATen calls in the program.
        lowering_s: Seconds from the graph to StableHLO.
        compile_s: Seconds from StableHLO to an executable, or to load one.
        from_cache: Whether the executable came from disk.
    """

    graph: str
    num_nodes: int
    lowering_s: float
    compile_s: float
    from_cache: bool


_lock = threading.Lock()
_records: list[ProgramRecord] = []


def record(entry: ProgramRecord) -> None:
    """Keep one record."""
    with _lock:
        _records.append(entry)


def get_dynamo_metrics() -> list[dict[str, Any]]:
    """Return a dictionary per program made in this process, with the fields of `ProgramRecord`.

    Stability: S for the name (the vendor's), E for the keys.
    """
    with _lock:
        return [asdict(entry) for entry in _records]


def compile_stats() -> dict[str, float]:
    """Return totals since the process began.

    Keys: `programs`, `compiled`, `from_cache` (counts), `lowering_s`, `compile_s` (seconds).
    Stability: E.
    """
    with _lock:
        from_cache = sum(entry.from_cache for entry in _records)
        return {
            "programs": len(_records),
            "compiled": len(_records) - from_cache,
            "from_cache": from_cache,
            "lowering_s": sum(entry.lowering_s for entry in _records),
            "compile_s": sum(entry.compile_s for entry in _records),
        }
