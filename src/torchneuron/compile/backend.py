"""The Dynamo backend: programs for what can be lowered, eager calls for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils import _pytree as pytree

from torchneuron import ledger
from torchneuron.compile import draws, partition
from torchneuron.compile.options import Options, parse
from torchneuron.compile.segment import Segment
from torchneuron.device import refusals
from torchneuron.errors import CompileError
from torchneuron.ledger import HostFallback
from torchneuron.lowering import decompose, grouped
from torchneuron.lowering.graph import LoweringError, source_line
from torchneuron.runtime import xla


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

    def compile_one(graph: fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(compile_graph(graph, settings))

    compiler = aot_autograd(
        fw_compiler=compile_one,
        bw_compiler=compile_one,
        inference_compiler=compile_one,
        decompositions={**decompose.decompositions(), **grouped.foreign()},
        partition_fn=partition_joint,
    )
    return compiler(graph, inputs)


def partition_joint(
    joint: fx.GraphModule, inputs: Sequence[Any], **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Divide a joint graph into forward and backward; what the forward drew, the backward gets.

    Without that, a checkpointed or otherwise recomputed dropout would draw a second mask.
    """
    draws.take_out(joint)
    parts: tuple[fx.GraphModule, fx.GraphModule] = min_cut_rematerialization_partition(
        joint, inputs, **options
    )
    return parts


def compile_graph(graph: fx.GraphModule, settings: Options) -> Callable[..., Any]:
    """Compile one functional graph; the answer takes and returns what the graph does.

    Calls whose rule turns out not to cover their arguments are left eager like those without a
    rule.

    Raises:
        CompileError: A rule, or the compiler, failed, and `fallback_execution` is not true.
    """
    draws.take_out(graph)
    refused: set[str] = set()
    while True:
        try:
            parts = _compile_parts(graph, refused, settings.model_name or "graph")
        except LoweringError as error:
            if isinstance(error.__cause__, NotImplementedError):
                refused.add(error.node.name)
                continue
            return _failed(graph, settings, error, str(error), error.node)
        except xla.CompilerError as error:
            return _failed(graph, settings, error, f"the compiler refused a program: {error}")
        _report_eager(parts, settings)
        return parts.forward


def _compile_parts(graph: fx.GraphModule, refused: set[str], name: str) -> fx.GraphModule:
    """Cut the graph and compile its parts; calls of these names stay eager."""
    excluded: partition.Excluded = set()
    whole = fx.GraphModule(graph, _copy(graph.graph, refused, excluded))
    parts = partition.split(whole, excluded)
    for part_name, part in list(parts.named_children()):
        if isinstance(part, fx.GraphModule):
            _call(parts, part_name, Segment(part, f"{name}.{part_name}"))
    parts.recompile()
    return parts


def _call(parts: fx.GraphModule, name: str, segment: Segment) -> None:
    """Put a segment in the place of a submodule; as a function, a module call costs as much."""

    def run(*args: Any) -> Any:
        return segment(*args)

    run.__name__ = f"run_{name}"
    for node in parts.graph.find_nodes(op="call_module", target=name):
        node.op, node.target = "call_function", run
    delattr(parts, name)


def _failed(
    graph: fx.GraphModule,
    settings: Options,
    error: Exception,
    reason: str,
    node: fx.Node | None = None,
) -> Callable[..., Any]:
    """Run the whole graph eagerly where the user allows that, else raise."""
    where = _at(node) if node is not None else ""
    if settings.fallback_execution:
        file, line = source_line(node) if node is not None else ("", 0)
        ledger.emit(HostFallback("the whole graph", reason, file, line))
        return graph
    raise CompileError(
        f"a graph could not be compiled{where}: {reason}",
        hint='options={"fallback_execution": True} runs it eagerly; please report this',
    ) from error


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


def _report_eager(parts: fx.GraphModule, settings: Options) -> None:
    for node in partition.eager_calls(parts):
        if draws.is_draw(node):
            continue
        reason = partition.why_eager(node) or "its lowering does not cover these arguments"
        what = f"{node.target} ({_dtypes(node)})"
        if settings.fallback_execution is False:
            raise CompileError(
                f"{what} runs eagerly{_at(node)}: {reason}",
                hint='leave out options={"fallback_execution": False} to let it',
            )
        refusals.check_host_fallback(what, reason, _at(node))
        file, line = source_line(node)
        ledger.emit(HostFallback(str(node.target), reason, file, line))


def _dtypes(node: fx.Node) -> str:
    values = [node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes)]
    tensors = [each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor)]
    return ", ".join(sorted({str(each.dtype).removeprefix("torch.") for each in tensors}))


def _at(node: fx.Node) -> str:
    file, line = source_line(node)
    return f" at {file}:{line}" if file else ""


def _boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Take the arguments in a list that is emptied, so that inputs can be freed early."""

    def call(args: list[Any]) -> Any:
        taken = tuple(args)
        args.clear()
        return function(*taken)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
