"""Buckets: run a dynamic dimension at a few sizes only, padded before and sliced after.

`options={"buckets": {"tokens[1]": [64, 128, 256]}}` names a dimension by the argument and its
place. Each length is padded with zeros to the next bucket, so that few programs serve all lengths;
longer ones run at their own size. Padding happens outside the compiled function, where autograd
sees it: the gradient of a sliced result is zero in the padding.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils import _pytree as pytree

from torchneuron import ledger
from torchneuron.compile import padding
from torchneuron.errors import ArgumentError, CompileError
from torchneuron.ledger import Notice

_NAME = re.compile(r"(?P<input>.+)\[(?P<dim>-?\d+)\]")
_LOCAL = re.compile(r"L\['(?P<name>\w+)'\]")
_HINT = 'options={"buckets": {"tokens[1]": [64, 128, 256]}}'


@dataclass(frozen=True, slots=True)
class Buckets:
    """Hold the sizes of one dimension.

    Attributes:
        name: Argument and place, such as `tokens[1]`.
        sizes: Ascending.
        is_declared: Whether the user vouches that results do not depend on the padding.
    """

    name: str
    sizes: tuple[int, ...]
    is_declared: bool


def parse(given: Mapping[str, Any]) -> tuple[Buckets, ...]:
    """Read the option `buckets`.

    Raises:
        ArgumentError: A name that is not `argument[place]`, or sizes that are none.
    """
    return tuple(_parse_one(str(name), value) for name, value in given.items())


def _parse_one(name: str, value: Any) -> Buckets:
    if _NAME.fullmatch(name) is None:
        raise ArgumentError(
            f"buckets: `{name}` names no dimension of an argument", hint=f"write {_HINT}"
        )
    is_declared = False
    if isinstance(value, Mapping):
        unknown = set(value) - {"sizes", "safe"}
        if unknown or "sizes" not in value:
            raise ArgumentError(
                f"buckets: `{name}` has {sorted(map(str, value))}, not `sizes` and `safe`",
                hint='write {"sizes": [64, 128], "safe": True}',
            )
        is_declared, value = bool(value.get("safe", False)), value["sizes"]
    sizes = value if isinstance(value, list | tuple) else []
    is_right = bool(sizes) and all(type(size) is int and size > 0 for size in sizes)
    if not is_right:
        raise ArgumentError(
            f"buckets: the sizes of `{name}` are {value!r}, not positive integers",
            hint=f"write {_HINT}",
        )
    return Buckets(name, tuple(sorted(set(sizes))), is_declared)


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold, for one graph of Dynamo's, the padded dimensions and how inputs and results show them.

    Attributes:
        chosen: The buckets of each size symbol.
        inputs: Example inputs of the graph, with symbols.
        outputs: Example results of the graph, likewise.
    """

    chosen: dict[sympy.Symbol, Buckets]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def check(self, graph: fx.GraphModule) -> None:
        """Refuse a forward graph whose results would depend on the padding.

        Raises:
            CompileError: It would, or may.
        """
        for symbol, buckets in self.chosen.items():
            reason = "" if buckets.is_declared else padding.refusal(graph, symbol)
            if reason:
                raise CompileError(
                    f"`{buckets.name}` cannot be padded to buckets: {reason}",
                    hint="move that call out of the compiled function, or vouch for it: "
                    f'{{"{buckets.name}": {{"sizes": {list(buckets.sizes)}, "safe": True}}}}',
                )

    def wrap(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that pads, calls, and slices."""

        def call(*args: Any) -> Any:
            sizes = self._sizes(args)
            wanted = {symbol: self.size_at_call(symbol, size) for symbol, size in sizes.items()}
            if wanted == sizes:
                return compiled(*args)
            given = [
                _padded(arg, fake, wanted) for arg, fake in zip(args, self.inputs, strict=True)
            ]
            versions = [getattr(each, "_version", 0) for each in given]
            results = compiled(*given)
            for arg, each, version in zip(args, given, versions, strict=True):
                if each is not arg and getattr(each, "_version", 0) != version:
                    arg.copy_(each[tuple(slice(0, size) for size in arg.shape)])
            return type(results)(
                _sliced(each, fake, sizes) for each, fake in zip(results, self.outputs, strict=True)
            )

        return call

    def _sizes(self, args: Sequence[Any]) -> dict[sympy.Symbol, int]:
        """Return what the padded dimensions' sizes are in a call."""
        sizes = {}
        for arg, fake in zip(args, self.inputs, strict=True):
            if isinstance(fake, torch.Tensor):
                pairs = zip(fake.shape, arg.shape, strict=True)
            else:
                pairs = zip([fake], [arg], strict=True)
            for symbolic, size in pairs:
                if _symbol(symbolic) in self.chosen:
                    sizes[_symbol(symbolic)] = int(size)
        return sizes

    def size_at_call(self, symbol: sympy.Symbol, size: int) -> int:
        """Return the size that the compiled function sees for a size of the caller."""
        if symbol not in self.chosen:
            return size
        buckets = self.chosen[symbol].sizes
        place = bisect.bisect_left(buckets, size)
        return buckets[place] if place < len(buckets) else size


def plan(graph: fx.GraphModule, wanted: Sequence[Buckets]) -> Plan | None:
    """Find the buckets' dimensions in a graph of Dynamo's; None where it has none of them."""
    nodes = graph.graph.find_nodes(op="placeholder")
    inputs = tuple(node.meta.get("example_value") for node in nodes)
    [output] = graph.graph.find_nodes(op="output")
    outputs = tuple(
        each.meta.get("example_value") if isinstance(each, fx.Node) else each
        for each in pytree.tree_leaves(output.args[0])
    )
    found: dict[sympy.Symbol, Buckets] = {}
    for buckets in wanted:
        size = _dimension(buckets.name, nodes)
        symbol = _symbol(size)
        if symbol is not None:
            obstacle = _obstacle(symbol, inputs, outputs)
            if obstacle:
                _say(buckets.name, f"`{buckets.name}` is not padded in a graph: {obstacle}", "")
            else:
                found[symbol] = _within(buckets, size)
        elif size is None:
            _say_unknown(buckets.name, nodes)
    return Plan(found, inputs, outputs) if found else None


def _dimension(name: str, nodes: Sequence[fx.Node]) -> Any:
    """Return the size of a named dimension; None where no input has that name."""
    parts = _NAME.fullmatch(name)
    assert parts is not None
    for node in nodes:
        fake, place = node.meta.get("example_value"), int(parts["dim"])
        if parts["input"] in _names(node) and isinstance(fake, torch.Tensor):
            return fake.shape[place] if -fake.dim() <= place < fake.dim() else None
    return None


def _names(node: fx.Node) -> set[str]:
    """Return what the user may call an input: Dynamo's source, or just the argument."""
    argument = node.meta.get("grapharg")
    source = argument.source.name if argument is not None and argument.source else ""
    local = _LOCAL.fullmatch(source)
    return {source, local["name"]} if local else {source}


def _symbol(size: Any) -> sympy.Symbol | None:
    expression = size.node.expr if isinstance(size, torch.SymInt) else None
    return expression if isinstance(expression, sympy.Symbol) else None


def _within(buckets: Buckets, size: torch.SymInt) -> Buckets:
    """Cut the sizes to what the graph takes, such as at most as many as there are positions."""
    most = size.node.shape_env.bound_sympy(size.node.expr).upper
    is_bounded = isinstance(most, sympy.Integer)
    sizes = [min(each, int(most)) if is_bounded else each for each in buckets.sizes]
    return Buckets(buckets.name, tuple(sorted(set(sizes))), buckets.is_declared)


def _obstacle(symbol: sympy.Symbol, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """Return why a graph cannot be padded from outside, whatever it computes."""
    for fake in (*inputs, *outputs):
        sizes = fake.shape if isinstance(fake, torch.Tensor) else [fake]
        own = [size for size in sizes if padding.depends(size, symbol)]
        if any(_symbol(size) is None for size in own):
            return f"an input or result has the size {own[0]}, which is computed from it"
        if len(own) > 1:
            # By chance at this call, most often: the next one has another graph.
            return "two dimensions of an input or result have its size"
    return ""


def _padded(arg: Any, fake: Any, wanted: Mapping[sympy.Symbol, int]) -> Any:
    """Return an input at the buckets' sizes, filled up with zeros; itself where it has none."""
    if not isinstance(fake, torch.Tensor):
        return wanted.get(_symbol(fake), arg)
    sizes = [wanted.get(_symbol(symbolic), size) for symbolic, size in _pairs(fake, arg)]
    widths = [after - size for after, size in zip(sizes, arg.shape, strict=True)]
    if not any(widths):
        return arg
    return torch.nn.functional.pad(arg, [part for each in reversed(widths) for part in (0, each)])


def _sliced(made: Any, fake: Any, sizes: Mapping[sympy.Symbol, int]) -> Any:
    if not isinstance(fake, torch.Tensor):
        return sizes.get(_symbol(fake), made)
    for dim, (symbolic, size) in enumerate(_pairs(fake, made)):
        wanted = sizes.get(_symbol(symbolic), size)
        if wanted != size:
            made = made.narrow(dim, 0, wanted)
    return made


def _pairs(fake: torch.Tensor, real: torch.Tensor) -> zip[tuple[Any, int]]:
    return zip(fake.shape, real.shape, strict=True)


_said: set[str] = set()


def _say_unknown(name: str, nodes: Sequence[fx.Node]) -> None:
    """Say that a graph has no such dimension: another graph of the function may have it."""
    known = [
        f"{min(_names(node), key=len)}[{dim}]"
        for node in nodes
        if isinstance(node.meta.get("example_value"), torch.Tensor)
        for dim, size in enumerate(node.meta["example_value"].shape)
        if isinstance(size, torch.SymInt)
    ]
    dimensions = f"its dynamic dimensions are {', '.join(known) or 'none; pass dynamic=True'}"
    _say(name, f"a graph has no dimension `{name}` and is not padded", dimensions)


def _say(name: str, text: str, hint: str) -> None:
    """Tell the user once per dimension."""
    if name not in _said:
        _said.add(name)
        ledger.emit(Notice("buckets", text, hint))
