"""Random numbers of compiled graphs: drawn eagerly, in program order, before the programs run.

The device's generator gives the CPU's numbers, so a compiled graph draws what eager code draws for
the same seed. A draw depends on sizes only: taken to the graph's beginning, it splits no program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointPolicy

from torchneuron.lowering.decompose import draws_numbers

_aten = torch.ops.aten


def draw(
    number: int,
    sizes: Sequence[int],
    order: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    kind: str,
    *numbers: Any,
) -> torch.Tensor:
    """Draw a tensor as eager code does.

    Args:
        number: Of the draw in its graph: two equal calls are two draws, and PyTorch joins equal
            calls.
        sizes: The shape.
        order: The dimensions from the outermost in memory to the innermost: numbers are drawn in
            the order of memory, and the CPU has another stream for strided tensors.
        dtype: Of the result.
        device: Of the result.
        kind: `bernoulli` (numbers: probability of one), `rand`, `randn`, or `randint` (numbers:
            low, high).
        numbers: As the kind takes them.
    """
    outer_first = [sizes[dim] for dim in order]
    inverse = sorted(range(len(order)), key=lambda place: order[place])
    empty = torch.empty(outer_first, dtype=dtype, device=device).permute(inverse)
    if kind == "randint":
        low, high = numbers
        return empty.random_(low, high)
    if kind == "bernoulli":
        return empty.bernoulli_(*numbers)
    return empty.uniform_() if kind == "rand" else empty.normal_()


# How a call that draws becomes `draw`: its kind, and its numbers from its arguments.
_KINDS: dict[Any, tuple[str, Callable[..., tuple[Any, ...]]]] = {
    _aten.rand.default: ("rand", lambda *_: ()),
    _aten.rand_like.default: ("rand", lambda *_: ()),
    _aten.randn.default: ("randn", lambda *_: ()),
    _aten.randn_like.default: ("randn", lambda *_: ()),
    _aten.randint.default: ("randint", lambda high, *_: (0, high)),
    _aten.randint.low: ("randint", lambda low, high, *_: (low, high)),
    _aten.randint_like.default: ("randint", lambda _, high: (0, high)),
    _aten.randint_like.low_dtype: ("randint", lambda _, low, high: (low, high)),
    _aten.bernoulli.p: ("bernoulli", lambda _, p=0.5: (p,)),
}


def take_out(graph: fx.GraphModule) -> None:
    """Move the graph's draws to its beginning, in order; dropout becomes a draw and arithmetic."""
    front = _Front(graph.graph)
    for node in list(graph.graph.nodes):
        if node.target is _aten.native_dropout.default:
            _take_dropout_apart(front, node)
        elif node.target in _KINDS and node.kwargs.get("generator") is None:
            kind, numbers = _KINDS[node.target]
            made = front.draw(node, node.meta["val"], kind, *numbers(*node.args))
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)
    graph.graph.lint()
    graph.recompile()


def is_draw(node: fx.Node) -> bool:
    """Return whether a call is a draw, which is meant to run eagerly."""
    return node.target is draw or draws_numbers(node.target)


class _Front:
    """Write draws one after another behind a graph's placeholders."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._placeholders = list(graph.find_nodes(op="placeholder"))
        self._count = sum(node.target is draw for node in graph.nodes)
        self._last = self._placeholders[-1] if self._placeholders else None

    def draw(self, source: fx.Node, fake: torch.Tensor, kind: str, *numbers: Any) -> fx.Node:
        """Draw what `fake` looks like, in the place of (a part of) `source`."""
        sizes = [self._size(size) for size in fake.shape]
        order = sorted(range(fake.dim()), key=lambda dim: -_hint(fake.stride()[dim]))
        rest = (sizes, order, fake.dtype, fake.device, kind, *numbers)
        made = self._call(draw, (self._count, *rest), fake)
        self._count += 1
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        made.stack_trace = source.stack_trace
        return made

    def _call(self, target: Callable[..., Any], args: tuple[Any, ...], value: Any) -> fx.Node:
        if self._last is None:
            place = self.graph.inserting_before(next(iter(self.graph.nodes)))
        else:
            place = self.graph.inserting_after(self._last)
        with place:
            made = self.graph.call_function(target, args)
        made.meta["val"] = value
        self._last = made
        return made

    def _size(self, size: int | torch.SymInt) -> Any:
        """Return a size as a number, or as a node that reads it off the graph's inputs."""
        if isinstance(size, int):
            return size
        for node in self._placeholders:
            value = node.meta["val"]
            if isinstance(value, torch.SymInt) and value.node.expr == size.node.expr:
                return node
            for dim, own in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(own, torch.SymInt) and own.node.expr == size.node.expr:
                    return self._call(_aten.sym_size.int, (node, dim), own)
        raise NotImplementedError(f"a random tensor of a computed size, {size}")


def _hint(size: int | torch.SymInt) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _take_dropout_apart(front: _Front, node: fx.Node) -> None:
    graph = front.graph
    value, p, train = node.args
    assert isinstance(value, fx.Node)
    fake_mode = value.meta["val"].fake_mode

    def call(target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        made = graph.call_function(target, args, kwargs)
        fakes = pytree.tree_map_only(fx.Node, lambda each: each.meta["val"], args)
        with fake_mode:
            made.meta["val"] = target(*fakes, **kwargs)
        made.stack_trace = node.stack_trace
        return made

    with graph.inserting_before(node):
        if train is False or p == 0:
            kept = call(_aten.ones_like.default, value, dtype=torch.bool)
            result = call(_aten.clone.default, value)
        elif p == 1:
            kept = call(_aten.zeros_like.default, value, dtype=torch.bool)
            result = call(_aten.mul.Tensor, value, 0.0)
        else:
            keep = 1.0 - float(p)  # type: ignore[arg-type]
            noise = front.draw(node, value.meta["val"], "bernoulli", keep)
            kept = call(_aten.ne.Scalar, noise, 0)
            scaled = call(_aten.div.Scalar, noise, keep)
            result = call(_aten.mul.Tensor, value, scaled)
    for user in list(node.users):
        user.replace_all_uses_with(result if user.args[1] == 0 else kept)
        graph.erase_node(user)
    graph.erase_node(node)
