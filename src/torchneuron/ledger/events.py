"""Events: what lower layers say instead of printing.

A sink that start-up installs shows them to the user. An event whose class has a `ledger_key` is
also a record of every open `explain()` block under that key.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Refused:
    """Say that the target would refuse what just happened; emitted by strict's warn mode.

    `code` is the compiler's code or the id of the row in `targets`; `line` is 0 where the source
    line is not known.
    """

    ledger_key: ClassVar[str] = ""
    category: str
    target: str
    code: str
    summary: str
    hint: str
    op: str = ""
    dtype: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Say something about the device that a user should know once, with what to do about it."""

    ledger_key: ClassVar[str] = ""
    subject: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class HostFallback:
    """Say that an operation meant for the device ran on the host, and why."""

    ledger_key: ClassVar[str] = "host_fallbacks"
    op: str
    reason: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """Say that a program was compiled: which, its key in the cache, and the seconds it took."""

    ledger_key: ClassVar[str] = "compiles"
    graph: str
    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CacheHit:
    """Say that a program came from disk: which, its key in the cache, and the seconds it took."""

    ledger_key: ClassVar[str] = "cache_hits"
    graph: str
    key: str
    seconds: float


Event = Refused | Notice | HostFallback | Compiled | CacheHit
