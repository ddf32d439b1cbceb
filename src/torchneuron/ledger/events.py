"""Events: what lower layers say instead of printing.

A sink that start-up installs shows them to the user. An event whose class is in `LEDGER_KEYS`
is also a record of every open `explain()` block under that key. They are named tuples because
`import torch` pays for each class, and a dataclass takes three times as long to make.
"""

from typing import NamedTuple


class Refused(NamedTuple):
    """Say that the target would refuse what just happened; emitted by strict's warn mode.

    `code` is the compiler's code or the id of the row in `targets`; `line` is 0 where the source
    line is not known.
    """

    category: str
    target: str
    code: str
    summary: str
    hint: str
    op: str = ""
    dtype: str = ""
    file: str = ""
    line: int = 0


class Notice(NamedTuple):
    """Say something about the device that a user should know once, with what to do about it."""

    subject: str
    text: str
    hint: str = ""


class HostFallback(NamedTuple):
    """Say that an operation meant for the device ran on the host, and why."""

    op: str
    reason: str
    file: str = ""
    line: int = 0


class Compiled(NamedTuple):
    """Say that a program was compiled: which, its key in the cache, and the seconds it took."""

    graph: str
    key: str
    seconds: float


class CacheHit(NamedTuple):
    """Say that a program came from disk: which, its key in the cache, and the seconds it took."""

    graph: str
    key: str
    seconds: float


class Recompiled(NamedTuple):
    """Say that something was compiled again: what changed, from what to what, and the seconds.

    `input` is an argument as Dynamo names it, or a size of one; `guard` is what held before. `old`
    and `new` are sizes, dtypes or constants as text, empty where they are not known.
    """

    graph: str
    input: str
    guard: str
    old: str
    new: str
    seconds: float
    file: str = ""
    line: int = 0


class GraphBreak(NamedTuple):
    """Say that a function could not be captured as one graph: why, and where it was cut."""

    reason: str
    file: str = ""
    line: int = 0


class Compiling(NamedTuple):
    """Say that the compiler has begun with a program, or (`is_over`) has left it."""

    graph: str
    is_over: bool = False


Event = Refused | Notice | HostFallback | Compiled | CacheHit | Recompiled | GraphBreak | Compiling
LEDGER_KEYS: dict[type, str] = {
    HostFallback: "host_fallbacks",
    Compiled: "compiles",
    CacheHit: "cache_hits",
    Recompiled: "recompiles",
    GraphBreak: "graph_breaks",
}
