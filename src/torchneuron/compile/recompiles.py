"""Why Dynamo called the backend: the guard that failed, or the statement that broke a graph."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

from torch import fx
from torch._dynamo.utils import get_metrics_context, graph_break_reasons
from torch._guards import CompileContext

from torchneuron import ledger
from torchneuron.ledger import GraphBreak, Recompiled
from torchneuron.lowering.graph import source_line

# What Dynamo writes, in this order: which earlier compilation, then one of these.
_MISMATCH = re.compile(
    r"tensor '(?P<input>.+?)' (?P<guard>.+?)\. expected (?P<old>.+), actual (?P<new>.+)"
)
_CONSTANT = re.compile(r"(?P<input>[\w.\[\]']+) == (?P<old>.+)")
# By the patch "dynamo-sparse", also where no backend is called.
_TOLD_BEFORE = "Attempted to wrap sparse Tensor"
_last_break: list[object] = [None]


@contextlib.contextmanager
def reported(graph: fx.GraphModule, name: str) -> Iterator[None]:
    """Tell the ledger, once a graph of Dynamo's is compiled, that it had to be compiled again."""
    _report_break()
    begin = time.perf_counter()
    yield
    context = CompileContext.current_compile_id()
    if context is None or not context.frame_compile_id:
        return
    reason = get_metrics_context()._metrics.get("recompile_reason") or ""
    seconds = time.perf_counter() - begin
    ledger.emit(_recompiled(str(reason), name, seconds, *_first_line(graph)))


def _recompiled(reason: str, name: str, seconds: float, file: str, line: int) -> Recompiled:
    """Take apart what Dynamo says, such as `0/1: tensor 'x' size mismatch at index 0. ...`."""
    text = reason.partition(": ")[2].partition("  #")[0].strip().splitlines()
    said = text[0] if text else "unknown"
    found = _MISMATCH.fullmatch(said)
    if found:
        what, guard, old, new = (found[key] for key in ("input", "guard", "old", "new"))
        return Recompiled(name, what, guard, old, new, seconds, file, line)
    found = _CONSTANT.fullmatch(said)
    if found:
        return Recompiled(name, found["input"], said, found["old"], "", seconds, file, line)
    return Recompiled(name, "", said, "", "", seconds, file, line)


def _report_break() -> None:
    """Report the newest graph break if it is new: Dynamo notes it before it calls the backend."""
    newest = graph_break_reasons[-1] if graph_break_reasons else None
    if newest is None or newest is _last_break[0]:
        return
    _last_break[0] = newest
    frame = newest.user_stack[-1] if newest.user_stack else None
    file, line = (frame.filename, frame.lineno or 0) if frame is not None else ("", 0)
    what, _, rest = newest.reason.partition("\n")
    if what == _TOLD_BEFORE:
        return
    why = rest.partition("Explanation: ")[2].partition("\n")[0]
    ledger.emit(GraphBreak(f"{what}: {why}" if why else what, file, line))


def _first_line(graph: fx.GraphModule) -> tuple[str, int]:
    for node in graph.graph.nodes:
        if node.op not in ("placeholder", "output") and source_line(node)[0]:
            return source_line(node)
    return "", 0
