"""The one ledger of the process: counts always, details inside `explain()`, events to sinks.

Start-up attaches the device's counters; before that everything is empty. The trace below is
process-wide, so nested and concurrent blocks share it: whenever a block begins, ends or is read,
the trace is drained and its records go to every open block.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchneuron.ledger.events import LEDGER_KEYS, Event, HostFallback
from torchneuron.ledger.explanation import Explanation
from torchneuron.ledger.source import NoDevice, Record, Source

Sink = Callable[[Event], None]

_KEY_OF_KIND = {"executed": "executed", "transfer": "transfers", "host_sync": "host_syncs"}
_FIELDS = {
    "executed": ("op", "dtype", "count", "file", "line"),
    "transfers": ("direction", "dtype", "count", "bytes", "file", "line"),
    "host_syncs": ("op", "dtype", "count", "file", "line"),
}

_lock = threading.RLock()
_source: Source = NoDevice()
_open: list[Explanation] = []
_sinks: list[Sink] = []
_fallbacks: Counter[str] = Counter()


class _LiveExplanation(Explanation):
    """Drain the trace before each look while the block is open."""

    def refresh(self) -> None:
        with _lock:
            if any(block is self for block in _open):
                _drain()
                _source.trace_start()


def attach(source: Source) -> None:
    """Take counts and traces from here on from `source`; called by start-up.

    A block that is already open is traced from now on.
    """
    global _source
    with _lock:
        if _open:
            _drain()
        _source = source
        if _open:
            _source.trace_start()


def _drain() -> None:
    """Stop the trace and hand its records to every open block."""
    news: dict[str, list[Record]] = {}
    for record in _source.trace_stop():
        key = _KEY_OF_KIND[record["kind"]]
        fields = {name: record[name] for name in _FIELDS[key] if name in record}
        fields["dtype"] = str(fields.get("dtype", "")).removeprefix("torch.")
        news.setdefault(key, []).append(fields)
    for block in _open:
        for key, records in news.items():
            block.add(key, records)


@contextmanager
def explain() -> Iterator[Explanation]:
    """Record what runs, moves and waits inside a block, with source lines.

    Blocks may nest, and may be open in several threads at once; each sees the records of all
    threads. Operations cost a few microseconds more inside, for finding the source line.

    Returns:
        The `Explanation`; read it inside the block or after it.

    Example:
        >>> with torchneuron.explain() as report:
        ...     loss = model(batch).sum().item()
        >>> print(report.summary())

    Stability: S.
    """
    block = _LiveExplanation()
    with _lock:
        if _open:
            _drain()
        _open.append(block)
        _source.trace_start()
    try:
        yield block
    finally:
        with _lock:
            _drain()
            _open[:] = [other for other in _open if other is not block]
            if _open:
                _source.trace_start()


def emit(event: Event) -> None:
    """Give an event to every sink, and to open blocks where it is a record.

    What a sink raises reaches the caller: a warning that the user turned into an error is meant.
    """
    with _lock:
        if isinstance(event, HostFallback):
            _fallbacks[event.op] += 1
        key = LEDGER_KEYS.get(type(event))
        if key:
            for block in _open:
                block.add(key, [event._asdict() | {"count": 1}])
        sinks = list(_sinks)
    for sink in sinks:
        sink(event)


def add_sink(sink: Sink) -> Callable[[], None]:
    """Call `sink` with every later event; return a function that ends it."""
    with _lock:
        _sinks.append(sink)

    def remove() -> None:
        with _lock:
            if sink in _sinks:
                _sinks.remove(sink)

    return remove


def get_executed_ops() -> list[str]:
    """Return the operators that ran on the device since the last clear, the most frequent first.

    Names are dispatcher names such as `aten::add.Tensor`. Source of the function: the vendor's
    package has one of this name. Stability: S.
    """
    with _lock:
        counts = _source.executed_ops()
    return sorted(counts, key=lambda op: (-counts[op], op))


def get_fallback_ops() -> list[str]:
    """Return the operators that ran on the host instead since the last clear, as above."""
    with _lock:
        return sorted(_fallbacks, key=lambda op: (-_fallbacks[op], op))


def clear_op_tracking() -> None:
    """Forget what `get_executed_ops` and `get_fallback_ops` return. Stability: S."""
    with _lock:
        _source.clear_op_counts()
        _fallbacks.clear()


def counters() -> dict[str, int]:
    """Return the totals of transfers and host syncs since the process started.

    Keys are such as `host_to_device.count` and `host_to_device.bytes`.
    """
    with _lock:
        return _source.counters()
