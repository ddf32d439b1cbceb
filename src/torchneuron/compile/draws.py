"""Random numbers of compiled graphs: drawn eagerly, in program order.

The device's generator gives the CPU's numbers, so a compiled graph draws what eager code draws for
the same seed, if it draws in eager's order. Each draw therefore takes the one before it as an
argument, which no later pass can undo. A draw that depends on sizes only is taken to the graph's
beginning, where it splits no program; one that reads data, and what follows it, stays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointPolicy

from torchneuron.lowering.decompose import draws_numbers

_aten = torch.ops.aten


def draw(
    previous: Any,
    sizes: Sequence[int],
    order: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    method: str,
    *numbers: Any,
) -> torch.Tensor:
    """Draw a tensor as eager code does.

    Args:
        previous: What was drawn before; not used, see the module's docstring.
        sizes: The shape.
        order: The dimensions from the outermost in memory to the innermost: numbers are drawn in
            the order of memory, and the CPU has another stream for strided tensors.
        dtype: Of the result.
        device: Of the result.
        method: Of the tensor; it fills it with numbers.
        numbers: What the method takes.
    """
    outer_first = [sizes[dim] for dim in order]
    inverse = sorted(range(len(order)), key=lambda place: order[place])
    empty = torch.empty(outer_first, dtype=dtype, device=device).permute(inverse)
    filled: torch.Tensor = getattr(empty, method)(*numbers)
    return filled


def call_after(previous: Any, target: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Call an operator that draws; `previous` is what was drawn before, and not used."""
    return target(*args, **kwargs)


# The method that fills a tensor as a call does, and its numbers from the call's arguments.
_METHODS: dict[Any, tuple[str, Callable[..., tuple[Any, ...]]]] = {
    _aten.rand.default: ("uniform_", lambda *_: ()),
    _aten.rand_like.default: ("uniform_", lambda *_: ()),
    _aten.randn.default: ("normal_", lambda *_: ()),
    _aten.randn_like.default: ("normal_", lambda *_: ()),
    _aten.randint.default: ("random_", lambda high, *_: (0, high)),
    _aten.randint.low: ("random_", lambda low, high, *_: (low, high)),
    _aten.randint_like.default: ("random_", lambda _, high: (0, high)),
    _aten.randint_like.low_dtype: ("random_", lambda _, low, high: (low, high)),
    _aten.bernoulli.p: ("bernoulli_", lambda _, p=0.5: (p,)),
    _aten.uniform.default: ("uniform_", lambda _, *numbers: numbers),
    _aten.normal_functional.default: ("normal_", lambda _, *numbers: numbers),
    _aten.exponential.default: ("exponential_", lambda _, *numbers: numbers),
    _aten.geometric.default: ("geometric_", lambda _, *numbers: numbers),
    _aten.log_normal.default: ("log_normal_", lambda _, *numbers: numbers),
    _aten.cauchy.default: ("cauchy_", lambda _, *numbers: numbers),
    _aten.random.default: ("random_", lambda _: ()),
    _aten.random.to: ("random_", lambda _, to: (to,)),
    getattr(_aten.random, "from"): ("random_", lambda _, *numbers: numbers),
}


def take_out(graph: fx.GraphModule) -> None:
    """Put the graph's draws in order, at its beginning where they can be; dropout becomes one.

    What is drawn is saved for the backward pass, never drawn again there.
    """
    order = _Order(graph.graph)
    for node in list(graph.graph.nodes):
        if not draws_numbers(node.target):
            continue
        if node.target is _aten.native_dropout.default and order.knows_sizes(node):
            _take_dropout_apart(order, node)
        elif (
            node.target in _METHODS
            and node.kwargs.get("generator") is None
            and order.knows_sizes(node)
        ):
            method, numbers = _METHODS[node.target]
            made = order.draw(node, _looks(node), method, *numbers(*node.args))
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)
        else:
            order.leave(node)
    graph.graph.lint()
    graph.recompile()


class _Order:
    """Write draws one after another, from behind a graph's placeholders on."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        placeholders = list(graph.find_nodes(op="placeholder"))
        # Not tangents, which a joint graph's forward part does not have.
        self._inputs = [node for node in placeholders if "tangents" not in str(node.target)]
        self._last = placeholders[-1] if placeholders else None
        self._previous: fx.Node | None = None

    def knows_sizes(self, node: fx.Node) -> bool:
        """Return whether the sizes of what a call makes follow from the graph's inputs."""
        fakes = pytree.tree_leaves(node.meta["val"])
        sizes = [size for fake in fakes for size in (*fake.shape, *fake.stride())]
        symbols = {
            symbol
            for size in sizes
            if isinstance(size, torch.SymInt) and self._place(size.node.expr) is None
            for symbol in size.node.expr.free_symbols
        }
        return all(self._place(symbol) is not None for symbol in symbols)

    def draw(self, source: fx.Node, fake: torch.Tensor, method: str, *numbers: Any) -> fx.Node:
        """Draw what `fake` looks like, in the place of (a part of) `source`."""
        sizes = [self._size(size) for size in fake.shape]
        order = sorted(range(fake.dim()), key=lambda dim: -_hint(fake.stride()[dim]))
        rest = (sizes, order, fake.dtype, fake.device, method, *numbers)
        made = self._call(draw, (self._previous, *rest), fake)
        made.stack_trace = source.stack_trace
        self._kept(made)
        return made

    def leave(self, node: fx.Node) -> None:
        """Leave a call where it is, behind the draws before it and ahead of those after it."""
        with self.graph.inserting_before(node):
            made = self.graph.call_function(
                call_after,
                (self._previous, node.target, *node.args),  # type: ignore[arg-type]
                node.kwargs,
            )
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)
        self._last = made
        if not isinstance(made.meta["val"], torch.Tensor):
            for user in made.users:
                user.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            made.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            made = self._call(operator.getitem, (made, 0), made.meta["val"][0])
        self._kept(made)

    def _kept(self, made: fx.Node) -> None:
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        self._previous = made

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
        expression = size.node.expr
        if self._place(expression) is not None:
            return self._read(expression)
        symbols = sorted(expression.free_symbols, key=str)
        values = tuple(self._read(symbol) for symbol in symbols)

        def computed(*numbers: int) -> int:
            found = dict(zip(symbols, map(sympy.Integer, numbers), strict=True))
            return int(expression.xreplace(found))

        return self._call(computed, values, size)

    def _read(self, expression: sympy.Expr) -> fx.Node:
        place = self._place(expression)
        assert place is not None  # what `knows_sizes` is for
        node, dim = place
        if dim is None:
            return node
        own = node.meta["val"].shape[dim]
        return self._call(_aten.sym_size.int, (node, dim), own)

    def _place(self, expression: sympy.Expr) -> tuple[fx.Node, int | None] | None:
        """Return the input that is this size, or the one that has it and in which dimension."""
        for node in self._inputs:
            value = node.meta["val"]
            if isinstance(value, torch.SymInt) and value.node.expr == expression:
                return node, None
            for dim, own in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(own, torch.SymInt) and own.node.expr == expression:
                    return node, dim
        return None


def _looks(node: fx.Node) -> torch.Tensor:
    """Return what eager code fills with numbers, where a call of the graph says it wrongly.

    Both `x.bernoulli_(p)` and `torch.bernoulli(x, p)` become the functional operator, which makes a
    row-major tensor. The first, which dropouts of other kinds are made of, fills `x`.
    """
    fake: torch.Tensor = node.meta["val"]
    if node.target is not _aten.bernoulli.p:
        return fake
    _, called = (node.meta.get("source_fn_stack") or [("", None)])[-1]
    if called in (torch.bernoulli, "bernoulli"):
        return fake
    with fake.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_like(node.args[0].meta["val"])  # type: ignore[union-attr]


def _hint(size: int | torch.SymInt) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _take_dropout_apart(order: _Order, node: fx.Node) -> None:
    graph = order.graph
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
            with fake_mode:
                like = torch.empty_like(value.meta["val"])
            noise = order.draw(node, like, "bernoulli_", keep)
            kept = call(_aten.ne.Scalar, noise, 0)
            scaled = call(_aten.div.Scalar, noise, keep)
            result = call(_aten.mul.Tensor, value, scaled)
    for user in list(node.users):
        user.replace_all_uses_with(result if user.args[1] == 0 else kept)
        graph.erase_node(user)
    graph.erase_node(node)
