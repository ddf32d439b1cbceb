"""The Dynamo backend: programs for what can be lowered, eager calls for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._ops import OpOverload

import torchneuron
from torchneuron.compile import buckets, draws, failures, partition, recompiles
from torchneuron.compile.failures import RefusedProgramError
from torchneuron.compile.options import Options, parse
from torchneuron.compile.segment import Segment, SizeAtCall
from torchneuron.lowering import decompose, grouped
from torchneuron.lowering.graph import LoweringError

_SMALLEST_BUDGET = 1e-9


def neuron(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    inductor_config: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo's; what `torch.compile(backend="neuron")` calls.

    Args:
        graph: Dynamo's graph.
        inputs: Its example inputs.
        options: Of `torch.compile`; see `Options`.
        mode: Of `torch.compile`; made for CUDA, named in a warning and ignored.
        inductor_config: What a plain `torch.compile(model, mode=..., options=...)` sets for
            Inductor; likewise.

    Raises:
        ArgumentError: An unknown option, or a value of another type.
        CompileError: A part of the graph could not be lowered or compiled, and
            `fallback_execution` is not true.
    """
    settings = parse(options, mode, inductor_config or {})
    plan = buckets.plan(graph, settings.buckets) if settings.buckets else None

    def compile_one(graph: fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(compile_graph(graph, settings, plan.size_at_call if plan else None))

    def compile_forward(graph: fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
        if plan is not None:
            plan.check(graph)
        return compile_one(graph, fakes)

    compiler = aot_autograd(
        fw_compiler=compile_forward,
        bw_compiler=compile_one,
        inference_compiler=compile_forward,
        decompositions={**decompose.decompositions(), **grouped.foreign()},
        partition_fn=partition_joint,
    )
    with recompiles.reported(graph, settings.model_name or "graph"):
        made: Callable[..., Any] = compiler(graph, inputs)
    # AOTAutograd marks it as taking a list, and it does not: Dynamo's repro scripts believe it.
    vars(made).pop("_boxed_call", None)
    return made if plan is None else plan.wrap(made)


def partition_joint(
    joint: fx.GraphModule, inputs: Sequence[Any], **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Divide a joint graph into forward and backward; what the forward drew, the backward gets.

    Without that, a checkpointed or otherwise recomputed dropout would draw a second mask.
    """
    draws.take_out(joint)
    with functorch.patch(activation_memory_budget=_budget(joint)):
        parts: tuple[fx.GraphModule, fx.GraphModule] = min_cut_rematerialization_partition(
            joint, inputs, **options
        )
    return parts


def _budget(joint: fx.GraphModule) -> float:
    """Return the memory budget that was set, a little of it where that is none.

    With none at all the partitioner saves the inputs only, whatever is marked to be saved, and
    what was drawn would be drawn again.
    """
    for node in joint.graph.nodes:
        if node.meta.get("memory_budget") == 0:
            node.meta["memory_budget"] = _SMALLEST_BUDGET
    return functorch.activation_memory_budget or _SMALLEST_BUDGET


def compile_graph(
    graph: fx.GraphModule, settings: Options, size_at_call: SizeAtCall | None = None
) -> Callable[..., Any]:
    """Compile one functional graph; the answer takes and returns what the graph does.

    Calls whose rule turns out not to cover their arguments are left eager like those without a
    rule.

    Args:
        graph: ATen calls.
        settings: Of the compilation.
        size_at_call: Where calls bring another size than the graph was traced with.

    Raises:
        CompileError: A rule, or the compiler, failed, and `fallback_execution` is not true.
    """
    draws.take_out(graph)
    _name_code(graph, settings.model_name or "graph")
    refused: set[str] = set()
    while True:
        try:
            parts = _compile_parts(graph, refused, settings, size_at_call)
        except LoweringError as error:
            if not failures.is_refusal(error):
                failures.settle(error, settings)
                return graph
            refused.add(error.node.name)
        except RefusedProgramError as error:
            failures.settle(error, settings)
            return graph
        else:
            eager = partition.eager_calls(parts)
            for node in eager:
                failures.report_eager(node, partition.why_eager(node), settings)
            failures.announce_eager(eager, _num_calls(graph) - len(eager))
            return parts.forward


def _compile_parts(
    graph: fx.GraphModule,
    refused: set[str],
    settings: Options,
    size_at_call: SizeAtCall | None,
) -> fx.GraphModule:
    """Cut the graph and compile its parts; calls of these names stay eager."""
    excluded: partition.Excluded = set()
    whole = fx.GraphModule(graph, _copy(graph.graph, refused, excluded))
    parts = partition.split(whole, excluded)
    # Other submodules are the bodies of control flow, which are handed to it as they are.
    for part_name in [str(node.target) for node in parts.graph.find_nodes(op="call_module")]:
        name = f"{settings.model_name or 'graph'}.{part_name}"
        part = getattr(parts, part_name)
        _name_code(part, name)
        _call(parts, part_name, Segment(part, name, settings, size_at_call))
    _name_code(parts, settings.model_name or "graph")
    return parts


def _name_code(graph: fx.GraphModule, name: str) -> None:
    """Have a graph's code be of a file of this package: its frames are not the user's."""
    graph.graph._co_fields = {"co_filename": f"{torchneuron.__path__[0]}/<{name}>"}
    graph.recompile()


def _call(parts: fx.GraphModule, name: str, segment: Segment) -> None:
    """Put a segment in the place of a submodule; as a function, a module call costs as much."""

    def run(*args: Any) -> Any:
        return segment(*args)

    run.__name__ = f"run_{name}"
    for node in parts.graph.find_nodes(op="call_module", target=name):
        node.op, node.target = "call_function", run
    delattr(parts, name)


def _copy(graph: fx.Graph, names: set[str], excluded: partition.Excluded) -> fx.Graph:
    """Copy a graph, since splitting takes it apart; collect the copies of excluded calls."""
    copied = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    output = copied.graph_copy(graph, mapping)
    copied.output(output)
    for old, new in mapping.items():
        if old.name in names:
            excluded.add(new)
    return copied


def _num_calls(graph: fx.GraphModule) -> int:
    return sum(isinstance(node.target, OpOverload) for node in graph.graph.nodes)


def _boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Take the arguments in a list that is emptied, so that inputs can be freed early."""

    def call(args: list[Any]) -> Any:
        taken = tuple(args)
        args.clear()
        return function(*taken)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
