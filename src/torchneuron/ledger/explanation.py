"""What happened in one `explain()` block: records by kind, as data, as text and as an assertion."""

import os
from collections.abc import Iterable, Sequence

from torchneuron.errors import ArgumentError, ExpectationError, suggestion
from torchneuron.ledger.source import Record

KEYS = (
    "executed",
    "host_fallbacks",
    "compiles",
    "recompiles",
    "cache_hits",
    "graph_breaks",
    "transfers",
    "host_syncs",
    "collectives",
)
# What `assert_no` takes: each key, and its singular.
NAMES = {key.removesuffix("s"): key for key in KEYS} | {key: key for key in KEYS}

_AMOUNTS = frozenset({"count", "bytes"})
_PLACE = frozenset({"file", "line"})
_HEADERS = {"count": "times"}


def place(record: Record) -> str:
    """Return `file:line` of a record, relative where that is shorter, or an empty string."""
    path = record.get("file", "")
    if not path:
        return ""
    relative = os.path.relpath(path)
    return f"{min(path, relative, key=len)}:{record.get('line', 0)}"


def merged(records: Sequence[Record], news: Iterable[Record]) -> list[Record]:
    """Return records joined with newer ones; those that differ in amounts only become one."""
    joined: dict[tuple[tuple[str, object], ...], Record] = {}
    for record in [*records, *news]:
        rest = tuple((key, value) for key, value in record.items() if key not in _AMOUNTS)
        known = joined.get(rest)
        if known is None:
            joined[rest] = dict(record)
            continue
        for key in _AMOUNTS & record.keys():
            known[key] += record[key]
    return list(joined.values())


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def table(records: Sequence[Record], rows: int) -> list[str]:
    """Return aligned lines for records of one kind, the most frequent first."""
    columns = [key for key in records[0] if key not in _PLACE]
    columns.sort(key=lambda key: key not in _AMOUNTS)
    shown = sorted(records, key=lambda record: -int(record.get("count", 1)))[:rows]
    lines = [[_HEADERS.get(key, key) for key in columns] + ["where"]]
    lines += [[_text(record.get(key, "")) for key in columns] + [place(record)] for record in shown]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns) + 1)]
    texts = []
    for line in lines:
        cells = [
            cell.rjust(width) if i < len(columns) and columns[i] in _AMOUNTS else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  " + "  ".join(cells).rstrip())
    if len(records) > rows:
        texts.append(f"  ... and {len(records) - rows} more; to_dict() has them all")
    return texts


class Explanation:
    """Hold the records of one block.

    Made by `torchneuron.explain()`. It can be read inside the block, for what happened so far, and
    after it. Records come from every thread of the process. Stability: S.
    """

    def __init__(self) -> None:
        """Start with no records."""
        self._records: dict[str, list[Record]] = {key: [] for key in KEYS}

    def add(self, key: str, news: Iterable[Record]) -> None:
        """Join records to those of a key; called by the ledger."""
        self._records[key] = merged(self._records[key], news)

    def refresh(self) -> None:
        """Fetch what happened since the last look; the ledger overrides it while the block runs."""

    def to_dict(self) -> dict[str, list[Record]]:
        """Return a list of records for each of the nine keys, empty lists included.

        A record of `executed` has `op`, `dtype`, `count`; of `transfers` also `direction` and
        `bytes`; of `host_syncs` `op`, `dtype`, `count`; of `host_fallbacks` `op` and `reason`;
        of `compiles` and `cache_hits` `graph`, `key` and `seconds`; of `recompiles` `graph`,
        `input`, `guard`, `old`, `new` and `seconds`; of `graph_breaks` `reason`.
        `file` and `line` say where in the user's code, empty and 0 where unknown.
        """
        self.refresh()
        return {key: [dict(record) for record in self._records[key]] for key in KEYS}

    def summary(self, rows: int = 20) -> str:
        """Return a table per kind of record that a person can read.

        Args:
            rows: Most lines per kind.
        """
        self.refresh()
        lines = []
        for key in KEYS:
            records = self._records[key]
            if records:
                total = sum(int(record.get("count", 1)) for record in records)
                lines += [f"{key}: {total}", *table(records, rows), ""]
        silent = [key for key in KEYS if not self._records[key]]
        if silent:
            lines.append(f"none: {', '.join(silent)}")
        return "\n".join(lines).rstrip()

    def __str__(self) -> str:
        """Return `summary()`."""
        return self.summary()

    def assert_no(self, name: str) -> None:
        """Raise if the block has a record of this kind.

        Args:
            name: A key of `to_dict()` or its singular, such as `recompile` or `host_sync`.

        Raises:
            ExpectationError: There are such records; the message lists them with source lines.
            ArgumentError: There is no such kind.

        Example:
            >>> with torchneuron.explain() as report:
            ...     step(model, batch)
            >>> report.assert_no("host_sync")
        """
        if not isinstance(name, str) or name not in NAMES:
            raise ArgumentError(
                f"unknown kind of record `{name}`: known are {', '.join(NAMES)}",
                hint=suggestion(name, NAMES) or "`.to_dict()` has a key for each kind",
            )
        self.refresh()
        records = self._records[NAMES[name]]
        if records:
            total = sum(int(record.get("count", 1)) for record in records)
            raise ExpectationError(
                "\n".join([f"expected no {name}, found {total}", *table(records, 5)]),
                hint="`.summary()` shows what else the block did",
            )
