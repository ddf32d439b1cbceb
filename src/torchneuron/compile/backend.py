"""The Dynamo backend: programs for what can be lowered, eager calls for the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._ops import OpOverload

import torchneuron
from torchneuron.compile import buckets, draws, failures, graphs, partition, recompiles
from torchneuron.compile.failures import RefusedProgramError
from torchneuron.compile.graphs import CompiledGraph
from torchneuron.compile.options import Options, parse
from torchneuron.compile.segment import KeptProgram, Segment, SizeAtCall
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

    def compile_one(graph: fx.GraphModule, fakes: Sequence[Any]) -> CompiledGraph:
        return compile_graph(graph, settings, plan.size_at_call if plan else None)

    def compile_forward(graph: fx.GraphModule, fakes: Sequence[Any]) -> CompiledGraph:
        if plan is not None:
            plan.check(graph)
        return compile_one(graph, fakes)

    # With buckets or artifacts, a graph is more than what it computes: those are made anew.
    is_kept = plan is None and not settings.preserve_artifacts
    mark = graphs.compiler if is_kept else lambda compile_one: compile_one
    compiler = aot_autograd(
        fw_compiler=mark(compile_forward),
        bw_compiler=mark(compile_one),
        inference_compiler=mark(compile_forward),
        decompositions={**decompose.decompositions(), **grouped.foreign()},
        partition_fn=partition_joint,
    )
    keeping = graphs.kept(graph, settings) if is_kept else contextlib.nullcontext()
    with recompiles.reported(graph, settings.model_name or "graph"), keeping:
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
) -> CompiledGraph:
    """Compile one functional graph; the answer takes the graph's arguments in a list.

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
            parts, programs = _compile_parts(graph, refused, settings, size_at_call)
        except LoweringError as error:
            if not failures.is_refusal(error):
                failures.settle(error, settings)
                return CompiledGraph(graph, None)
            refused.add(error.node.name)
        except RefusedProgramError as error:
            failures.settle(error, settings)
            return CompiledGraph(graph, None)
        else:
            eager = partition.eager_calls(parts)
            for node in eager:
                failures.report_eager(node, partition.why_eager(node), settings)
            failures.announce_eager(eager, _num_calls(graph) - len(eager))
            return CompiledGraph(parts, None if eager else graphs.steps(parts, programs))


def _compile_parts(
    graph: fx.GraphModule,
    refused: set[str],
    settings: Options,
    size_at_call: SizeAtCall | None,
) -> tuple[fx.GraphModule, dict[Callable[..., Any], KeptProgram | None]]:
    """Cut the graph and compile its parts; calls of these names stay eager.

    Returns:
        The graph of parts, and what a cache keeps of each function in it that runs a program.
    """
    programs = {}
    excluded: partition.Excluded = set()
    whole = fx.GraphModule(graph, _copy(graph.graph, refused, excluded))
    parts = partition.split(whole, excluded)
    # Other submodules are the bodies of control flow, which are handed to it as they are.
    for part_name in [str(node.target) for node in parts.graph.find_nodes(op="call_module")]:
        name = f"{settings.model_name or 'graph'}.{part_name}"
        part = getattr(parts, part_name)
        _name_code(part, name)
        segment = Segment(part, name, settings, size_at_call)
        programs[_call(parts, part_name, segment)] = segment.kept
    _name_code(parts, settings.model_name or "graph")
    return parts, programs


def _name_code(graph: fx.GraphModule, name: str) -> None:
    """Have a graph's code be of a file of this package: its frames are not the user's."""
    graph.graph._co_fields = {"co_filename": f"{torchneuron.__path__[0]}/<{name}>"}
    graph.recompile()


def _call(parts: fx.GraphModule, name: str, segment: Segment) -> Callable[..., Any]:
    """Put a segment in the place of a submodule; as a function, a module call costs as much."""
    run = segment.function()
    run.__name__ = f"run_{name}"
    for node in parts.graph.find_nodes(op="call_module", target=name):
        node.op, node.target = "call_function", run
    delattr(parts, name)
    return run


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
