"""The page docs/reference/ops.md: what becomes of each ATen operator, and what is public on it.

Each operator's example call is lowered as in a compiled graph, without the host's own calls, and
the program is judged.
"""

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tools.op_examples import X, examples
from torchneuron.lowering import decompose
from torchneuron.lowering.graph import LoweringError, lower
from torchneuron.lowering.legality import Finding, Verdict, judge
from torchneuron.lowering.registry import TABLE


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: its name, how it runs, what is public, and the operations that decide it."""

    name: str
    how: str
    legality: str
    because: str


def rows() -> list[Row]:
    """Return a row for each overload of the lowering table and each that torch tags as core."""
    decompose.decompositions()  # fills the table
    targets = {str(target): target for target in [*TABLE, *core_operators()]}
    calls = examples()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_row(name, targets[name], calls) for name in sorted(targets)]


def core_operators() -> Iterator[OpOverload]:
    """Yield the overloads that torch tags as core ATen."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten":
            found = getattr(torch.ops.aten, packet, None)
            target = getattr(found, overload or "default", None)
            if isinstance(target, OpOverload) and torch.Tag.core in target.tags:
                yield target


def short_name(target: Any) -> str:
    return str(target).removeprefix("aten.").removesuffix(".default")


def _row(name: str, target: OpOverload, calls: dict[str, Any]) -> Row:
    short = short_name(target)
    how, trace = _how(target)
    if trace is None:
        return Row(short, how, "", "")
    args, kwargs = calls[name] if name in calls else _guess(target)
    try:
        graph = trace(target, args, kwargs)
        verdict = judge(lower(graph).module)
    except LoweringError as error:
        return Row(short, f"host: {short_name(error.node.target)}", "", "")
    return Row(short, how, verdict.label, _because(verdict))


# Their CPU kernels warn past Python's filters.
_WARNING = {"aten.index_reduce.default", "aten.scatter.reduce"}
Tracer = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], fx.GraphModule]


def _how(target: OpOverload) -> tuple[str, Tracer | None]:
    """Say how an operator gets into a program, and how its graph is had; None where it does not."""
    if target in TABLE:
        return "native", one_call
    returns = [str(each.type) for each in target._schema.returns]
    if set(returns) <= {"int", "bool"}:
        return "host: a size, filled in", None
    if decompose.draws_numbers(target):
        return "host: drawn eagerly before the program", None
    if target in decompose.with_composites():
        return "decomposed", traced
    functional = _functional(target)
    if functional is not None:
        return f"decomposed: {short_name(functional)}", None
    return "host", None


def _functional(target: OpOverload) -> OpOverload | None:
    """Return what functionalization makes of a mutating overload, if the table has it."""
    if not target._schema.is_mutable:
        return None
    name = target._schema.name.removeprefix("aten::").removesuffix("_")
    for candidate in (f"{name}_functional", name):
        found = getattr(getattr(torch.ops.aten, candidate, None), "default", None)
        if found in TABLE:
            return found
    return None


def _guess(target: OpOverload) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give float32 tensors of one shape, and two for each number."""
    values: dict[str, Any] = {"Tensor": X, "number": 2, "int": 1, "float": 0.5, "bool": False}
    needed = [each for each in target._schema.arguments if not each.has_default_value()]
    made = {each.name: values[str(each.type)] for each in needed}
    names = [each.name for each in needed if not each.kwarg_only]
    args = tuple(made.pop(name) for name in names)
    return args, made


def one_call(target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.GraphModule:
    """Make the graph of one call; its promises are the results on the CPU."""
    graph = fx.Graph()

    def enter(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        node = graph.placeholder(f"arg{len(graph.nodes)}")
        node.meta["val"] = leaf
        return node

    nodes = pytree.tree_map(enter, (args, kwargs))
    call = graph.call_function(target, *nodes)
    call.meta["val"] = made = _results(target, args, kwargs)
    if isinstance(made, torch.Tensor):
        graph.output((call,))
        return fx.GraphModule({}, graph)
    results = []
    for place, each in enumerate(made):
        if isinstance(each, torch.Tensor):
            item = graph.call_function(operator.getitem, (call, place))
            item.meta["val"] = each
            results.append(item)
    graph.output(tuple(results))
    return fx.GraphModule({}, graph)


def _results(target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a call gives on the CPU; without numbers where the CPU has no such kernel."""
    if str(target) not in _WARNING:
        with contextlib.suppress(NotImplementedError):
            return target(*args, **kwargs)
    shapes = pytree.tree_map_only(torch.Tensor, lambda each: each.to("meta"), (args, kwargs))
    return target(*shapes[0], **shapes[1])


def traced(target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.GraphModule:
    """Make the graph of what a call is decomposed into."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def run(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        again_args, again_kwargs = pytree.tree_unflatten(filled, spec)
        return target(*again_args, **again_kwargs)

    tensors = [leaves[place] for place in places]
    functional = torch.func.functionalize(run, remove="mutations_and_views")
    tracer = make_fx(
        functional, decomposition_table=decompose.with_composites(), tracing_mode="fake"
    )
    graph = tracer(*tensors)
    graph.graph.eliminate_dead_code()
    return graph


def _because(verdict: Verdict) -> str:
    """Name the operations that keep a program from being documented, worst first."""
    texts = [_reason(each) for each in verdict.refused or verdict.unknown]
    return ", ".join(dict.fromkeys(texts))


def _reason(finding: Finding) -> str:
    """Name an operation, its types where they decide, and the statement where it has no code."""
    name, row = finding.op.removeprefix("stablehlo."), finding.statement
    if row is not None and row.is_general:
        name = f"{name} of {', '.join(finding.dtypes)}"
    return f"{name} ({row.id})" if row is not None and not row.code else name


def summary(found: Sequence[Row]) -> str:
    """Count the rows by how and by what is public."""
    kinds = [row.how.partition(":")[0] for row in found]
    verdicts = [row.legality.partition(" (")[0] for row in found if row.legality]
    parts = [f"{kinds.count(each)} {each}" for each in ("native", "decomposed", "host")]
    stated = [
        f"{verdicts.count(each)} {each}" for each in ("documented yes", "documented no", "unknown")
    ]
    return f"{len(found)} overloads: {', '.join(parts)}. Of their programs: {', '.join(stated)}."
