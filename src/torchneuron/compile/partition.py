"""Which parts of a graph become programs, and which calls stay eager."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import sympy
import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils import _pytree as pytree

from torchneuron.lowering import decompose, registry
from torchneuron.lowering.emit.types import DTYPES

Excluded = set[fx.Node]
# They compute nothing: `with_effects` puts checks and prints in order, which are the host's anyway,
# and a sparse tensor is put together of what programs made.
_NO_WORK = (
    torch.ops.higher_order.with_effects,
    torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default,
)


class _Lowerable(OperatorSupportBase):
    def __init__(self, excluded: Excluded) -> None:
        self._excluded = excluded

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node not in self._excluded and why_eager(node) is None


def why_eager(node: fx.Node) -> str | None:
    """Return why a call cannot be part of a program, None where it can."""
    if node.op != "call_function":
        return "not a call"
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
        return "a size known only from the data" if free_unbacked_symbols(value) else None
    if node.target is operator.getitem:
        source = node.args[0]
        return why_eager(source) if isinstance(source, fx.Node) else "not a result"
    if isinstance(node.target, HigherOrderOperator):
        return "control flow, or attention with functions of yours, has no lowering"
    if registry.TABLE.find(node.target) is None:
        return "no lowering"
    fakes = [
        each
        for each in pytree.tree_leaves(
            (value, [arg.meta.get("val") for arg in node.all_input_nodes])
        )
        if isinstance(each, torch.Tensor)
    ]
    for fake in fakes:
        if fake.dtype not in DTYPES:
            return f"dtype {fake.dtype}"
        if fake.layout != torch.strided:
            return f"layout {fake.layout}"
        if free_unbacked_symbols(fake.shape):
            return "a size known only from the data"
        if fake.device.type != "neuron" and fake.dim() > 0:
            return f"a tensor on {fake.device}"
    return None


def split(graph: fx.GraphModule, excluded: Excluded) -> fx.GraphModule:
    """Fuse what can be lowered into submodules; the calls that are left run eagerly.

    Args:
        graph: Functional ATen calls.
        excluded: Calls that stay eager whatever the table says.
    """
    decompose.decompositions()  # fills the table
    partitioner = CapabilityBasedPartitioner(
        graph, _Lowerable(excluded), allows_single_node_partition=True
    )
    parts = partitioner.partition_and_fuse()
    for call in parts.graph.find_nodes(op="call_module"):
        _give_symbols(parts, call)
    return parts


def _give_symbols(parts: fx.GraphModule, call: fx.Node) -> None:
    """Hand a part the size symbols that its tensors are made of, where no size is one itself."""
    part: fx.GraphModule = getattr(parts, str(call.target))
    graph = part.graph
    inputs = graph.find_nodes(op="placeholder")
    if not inputs:
        return
    given = {each for node in inputs for each in _sizes(node) if isinstance(each, sympy.Symbol)}
    needed = {
        symbol for node in graph.nodes for each in _sizes(node) for symbol in each.free_symbols
    }
    for node in parts.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr in needed - given:
            with graph.inserting_after(inputs[-1]):
                inputs.append(graph.placeholder(node.name))
            inputs[-1].meta = dict(node.meta)
            call.args = (*call.args, node)
            given.add(value.node.expr)
    part.recompile()


def _sizes(node: fx.Node) -> list[sympy.Expr]:
    """Return the sizes of a node that are expressions, of all its tensors."""
    values = pytree.tree_leaves(node.meta.get("val"))
    sizes = [
        size
        for value in values
        for size in (value.shape if isinstance(value, torch.Tensor) else (value,))
    ]
    return [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]


def eager_calls(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the calls of a split graph that run eagerly and compute something."""
    return [
        node
        for node in graph.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, OpOverload | HigherOrderOperator)
        and node.target not in _NO_WORK
    ]
