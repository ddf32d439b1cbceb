"""What becomes of a part of a graph that could not be compiled: eager where allowed, else an error.

One place for both times at which that can happen: while a graph is compiled, and when a call brings
sizes that its program was not made for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torchneuron import ledger
from torchneuron.compile.options import Options
from torchneuron.device import refusals
from torchneuron.errors import CompileError
from torchneuron.ledger import HostFallback, Notice
from torchneuron.lowering.graph import LoweringError, source_line

_CALLS_SHOWN = 5
_NOT_COVERED = "its lowering does not cover these arguments"
_HOW_TO_LIST = "torchneuron.explain() lists each with its line and reason"
_said: set[str] = set()


class RefusedProgramError(Exception):
    """Say that the compiler refused a program, and which calls it was made of.

    Internal: `settle` turns it into a public error.
    """

    def __init__(self, graph: fx.GraphModule, reason: str) -> None:
        self.calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        shown = [f"{node.target}{at(node)}" for node in self.calls[:_CALLS_SHOWN]]
        more = len(self.calls) - len(shown)
        calls = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        super().__init__(f"the compiler refused a program of {calls}: {reason}")


Failure = LoweringError | RefusedProgramError


def is_refusal(error: Failure) -> bool:
    """Return whether a rule said that it does not cover its arguments, rather than fail."""
    return isinstance(error.__cause__, NotImplementedError)


def settle(error: Failure, settings: Options) -> None:
    """Return where the user lets the failed graph run eagerly, and count it; else raise.

    Raises:
        CompileError: `fallback_execution` is not true.
    """
    node = error.node if isinstance(error, LoweringError) else next(iter(error.calls), None)
    if settings.fallback_execution:
        file, line = source_line(node) if node is not None else ("", 0)
        ledger.emit(HostFallback("the whole graph", str(error), file, line))
        _say(f"a graph runs eagerly as a whole, nothing of it is compiled: {error}", _HOW_TO_LIST)
        return
    where = at(node) if node is not None else ""
    raise CompileError(
        f"a graph could not be compiled{where}: {error}",
        hint='options={"fallback_execution": True} runs it eagerly; please report this',
    ) from error


def report_eager(node: fx.Node, reason: str | None, settings: Options) -> None:
    """Count a call that runs eagerly between programs.

    Args:
        node: The call.
        reason: Why; None where the call's own rule refused its arguments.
        settings: Of the compilation.

    Raises:
        CompileError: `fallback_execution` is false.
        StrictError: A `strict` block or the process-wide mode makes it an error.
    """
    reason = reason or _NOT_COVERED
    what = f"{node.target} ({_dtypes(node)})"
    if settings.fallback_execution is False:
        raise CompileError(
            f"{what} runs eagerly{at(node)}: {reason}",
            hint='leave out options={"fallback_execution": False} to let it',
        )
    refusals.check_host_fallback(what, reason, at(node))
    ledger.emit(HostFallback(str(node.target), reason, *source_line(node)))


def announce_eager(calls: Sequence[fx.Node], num_others: int) -> None:
    """Tell the user once per operator that calls of it run eagerly and that the rest does not.

    Args:
        calls: The calls that run eagerly.
        num_others: How many calls of the same graph are compiled.
    """
    for target, count in Counter(str(node.target) for node in calls).items():
        if target not in _said:
            _said.add(target)
            _say(
                f"{count} call{'s' * (count > 1)} of `{target}` in a graph run eagerly, between "
                f"programs; {num_others} calls of that graph are compiled (said once for this "
                "operator)",
                f"{_HOW_TO_LIST}; options={{'fallback_execution': False}} makes it an error",
            )


def at(node: fx.Node) -> str:
    """Return ` at file:line` of a node, empty where unknown."""
    file, line = source_line(node)
    return f" at {file}:{line}" if file else ""


def _say(text: str, hint: str) -> None:
    ledger.emit(Notice("torch.compile", text, hint))


def _dtypes(node: fx.Node) -> str:
    values = [node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes)]
    tensors: Iterable[torch.Tensor] = (
        each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor)
    )
    return ", ".join(sorted({str(each.dtype).removeprefix("torch.") for each in tensors}))
