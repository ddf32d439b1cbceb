"""The ledger: what ran, moved and waited, and what lower layers say. Never imports torch."""

from torchneuron.ledger.book import (
    Sink,
    add_sink,
    attach,
    clear_op_tracking,
    counters,
    emit,
    explain,
    get_executed_ops,
    get_fallback_ops,
)
from torchneuron.ledger.events import (
    CacheHit,
    Compiled,
    Compiling,
    Event,
    GraphBreak,
    HostFallback,
    Notice,
    Recompiled,
    Refused,
)
from torchneuron.ledger.explanation import Explanation
from torchneuron.ledger.source import Source

__all__ = [
    "CacheHit",
    "Compiled",
    "Compiling",
    "Event",
    "Explanation",
    "GraphBreak",
    "HostFallback",
    "Notice",
    "Recompiled",
    "Refused",
    "Sink",
    "Source",
    "add_sink",
    "attach",
    "clear_op_tracking",
    "counters",
    "emit",
    "explain",
    "get_executed_ops",
    "get_fallback_ops",
]
