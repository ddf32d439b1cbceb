"""Trace a function to ATen, lower it, run it on XLA:CPU, and compare with CPU eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torchneuron.lowering.decompose import decompositions
from torchneuron.lowering.graph import lower
from torchneuron.lowering.registry import TABLE
from torchneuron.runtime import xla


class UnloweredError(Exception):
    """Names the overloads of a graph that have no rule."""


def trace(fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """Trace `fn(*tensors)` to functional ATen calls that the table has rules for."""
    functional = torch.func.functionalize(fn, remove="mutations")
    graph = make_fx(functional, decomposition_table=decompositions(), tracing_mode="fake")(*tensors)
    graph.graph.eliminate_dead_code()
    return graph


def unlowered(graph: torch.fx.GraphModule) -> list[str]:
    """Name the overloads without a rule."""
    return sorted(
        {
            str(node.target)
            for node in graph.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload) and node.target not in TABLE
        }
    )


def run(fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    """Return what the lowered function computes, in the structure that `fn` returns."""
    spec: list[Any] = []

    def flat(*args: torch.Tensor) -> Any:
        leaves, structure = pytree.tree_flatten(fn(*args))
        spec[:] = [structure]
        return leaves

    graph = trace(flat, tensors)
    if missing := unlowered(graph):
        raise UnloweredError(", ".join(missing))
    program = lower(graph)
    executable = xla.compile_module(program.module.ir)
    buffers = [
        xla.import_dlpack(torch._C._to_dlpack(each.detach().contiguous())) for each in tensors
    ]
    outputs = [torch.from_dlpack(capsule) for capsule in executable(buffers)]
    leaves = [outputs[each] if isinstance(each, int) else each[0] for each in program.results]
    return pytree.tree_unflatten(leaves, spec[0])
