"""Apply what the target refuses: the state behind `torchneuron.strict` and TORCHNEURON_STRICT.

Two things decide about a refusal: the `strict` blocks that the calling code is in, which make
errors of it, and the process-wide mode (off, warn or error), which comes from the environment once
the device is settled. The extension is told which operators and dtypes matter at all, so that a
program about which there is nothing to say pays nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from torchneuron import _C, ledger
from torchneuron.config import Config
from torchneuron.device import frames
from torchneuron.errors import ArgumentError, StrictError
from torchneuron.ledger import Refused

if TYPE_CHECKING:  # `import torch` pays for what is imported here; first use pays for the rest
    from torchneuron.chips import EmulatedInstance
    from torchneuron.targets import Category, Refusal, Target

Mode = Literal["off", "warn", "error"]


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Hold what one `strict` block makes an error: these categories, by this target.

    Compared by identity: two blocks are two scopes, whatever they hold.
    """

    categories: frozenset[Category]
    target: Target


_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("torchneuron_strict_scopes", default=())
_lock = threading.RLock()
_open: Counter[Scope] = Counter()  # of every thread: the extension keeps one table for all
_said: set[Category] = set()
_mode: Mode = "off"
_target: Target | None = None
_chip = ""


def settle(settings: Config, instance: EmulatedInstance) -> None:
    """Take the process-wide mode and target, now that the device is being settled.

    Raises:
        ArgumentError: TORCHNEURON_TARGET names no target.
    """
    from torchneuron.targets import load_target

    global _mode, _target, _chip
    with _lock:
        _target = load_target(settings.target)
        _mode, _chip = settings.strict, instance.chip.name
        _publish()


def enter(scope: Scope) -> None:
    """Open a block for the calling code."""
    _scopes.set((*_scopes.get(), scope))
    with _lock:
        _open[scope] += 1
        _publish()


def leave(scope: Scope) -> None:
    """Close a block of the calling code, the innermost if it is open several times.

    Raises:
        ArgumentError: It is not open here.
    """
    scopes = _scopes.get()
    if scope not in scopes:
        raise ArgumentError(
            "a `strict` block was left that is not open here: it was left before, or entered in "
            "another thread or task",
            hint="write `with torchneuron.strict(...):` around the code, once in each thread",
        )
    last = len(scopes) - 1 - scopes[::-1].index(scope)
    _scopes.set(scopes[:last] + scopes[last + 1 :])
    with _lock:
        _open[scope] -= 1
        if not _open[scope]:
            del _open[scope]
        _publish()


def check_device_index(index: int) -> None:
    """Refuse the choice of a device that is not this rank's own.

    Raises:
        StrictError: A `strict` block or the process-wide mode makes it an error.
    """
    if not _matters("device_index") or not torch.distributed.is_available():
        return
    rank = torch.distributed.get_node_local_rank(fallback_rank=-1)
    if rank < 0 or index == rank or _C.device_count() == 1:
        return
    for target, is_error in _judges("device_index"):
        for row in target.rows("device_index", _chip):
            _refuse(row, target, is_error, f"neuron:{index} in rank {rank}")
            return


def check_host_fallback(what: str, reason: str, where: str) -> None:
    """Refuse a call of a compiled graph that would run outside its programs.

    Raises:
        StrictError: A `strict` block or the process-wide mode makes it an error.
    """
    for target, is_error in _judges("host_fallback"):
        if is_error:
            raise StrictError(
                f"{what}{where} would run outside the compiled program, on the host: {reason}; "
                f"checked for {target.title}",
                hint="write it with operators that have a lowering, or leave out "
                'strict("host_fallback")',
                category="host_fallback",
            )


def _on_dtype(op: str, dtype: torch.dtype) -> None:
    """Decide about an operation that the extension is about to run."""
    name = str(dtype).removeprefix("torch.")
    for target, is_error in _judges("dtype"):
        row = target.find_dtype(op, name, _chip)
        if row is not None:
            _refuse(row, target, is_error, f"{name} in {op}", op, name)
            return


def _on_sparse(op: str, layout: torch.layout) -> None:
    """Decide about a sparse tensor that an operation is about to take or has made."""
    name = str(layout).removeprefix("torch.")
    for target, is_error in _judges("sparse"):
        for row in target.rows("sparse", _chip):
            _refuse(row, target, is_error, f"{name} in {op}", op, name)
            return


def _judges(category: Category) -> list[tuple[Target, bool]]:
    """Return who decides about a category here, each with whether it makes an error of it."""
    judges = [
        (scope.target, True) for scope in reversed(_scopes.get()) if category in scope.categories
    ]
    if _target is not None and (_mode == "error" or (_mode == "warn" and category not in _said)):
        judges.append((_target, _mode == "error"))
    return judges


def _matters(category: Category) -> bool:
    return bool(_judges(category))


def _refuse(
    row: Refusal, target: Target, is_error: bool, what: str, op: str = "", kind: str = ""
) -> None:
    file, line = frames.user_line()
    if is_error:
        where = f" at {file}:{line}" if file else ""
        raise StrictError(
            f"{target.title} refuses {what}{where}: {row.summary} ({row.label})\n"
            f"source: {row.source} ({row.confidence})",
            hint=row.hint,
            category=row.category,
        )
    with _lock:
        if row.category in _said:
            return
        _said.add(row.category)
        _publish()
    ledger.emit(
        Refused(
            category=row.category,
            target=target.title,
            code=row.label,
            summary=row.summary,
            hint=row.hint,
            op=op or what,
            dtype=kind,
            file=file,
            line=line,
        )
    )


def _publish() -> None:
    """Tell the extension which operators and dtypes to ask about, and whether about sparse."""
    if not _chip:
        return
    rules: dict[str, set[torch.dtype]] = {}
    for target in _asked_for("dtype"):
        for op, names in target.dtype_rules(_chip):
            dtypes = (getattr(torch, name, None) for name in names)
            rules.setdefault(op, set()).update(each for each in dtypes if each is not None)
    _C.set_refused([(op, list(dtypes)) for op, dtypes in rules.items()], _on_dtype)
    is_sparse_refused = any(target.rows("sparse", _chip) for target in _asked_for("sparse"))
    _C.set_refused_sparse(_on_sparse if is_sparse_refused else None)


def _asked_for(category: Category) -> list[Target]:
    """Return the targets that decide about a category anywhere in the process."""
    targets = [scope.target for scope in _open if category in scope.categories]
    if _target is not None and (_mode == "error" or (_mode == "warn" and category not in _said)):
        targets.append(_target)
    return targets
