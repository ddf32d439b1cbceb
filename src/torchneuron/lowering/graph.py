"""From an FX graph of ATen calls to one StableHLO module."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torchneuron.lowering import emit
from torchneuron.lowering.emit import Value
from torchneuron.lowering.emit.module import Module
from torchneuron.lowering.registry import TABLE, Call, LoweringTable


class LoweringError(Exception):
    """Say which call of a graph cannot be written, and why.

    Internal: the compile layer turns it into a public error.
    """

    def __init__(self, node: fx.Node, reason: str) -> None:
        super().__init__(f"{node.target}: {reason}")
        self.node = node
        self.reason = reason


class Sizes:
    """Hold what the size symbols of a graph are in one program."""

    def __init__(self, symbols: Mapping[Any, int]) -> None:
        self._symbols = dict(symbols)

    def __bool__(self) -> bool:
        return bool(self._symbols)

    def of(self, value: Any) -> Any:
        """Return a size (or any number made of sizes) as a plain number."""
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return value
        found = value.node.expr.xreplace(self._symbols)
        kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
        return kind(found)

    def shape(self, fake: torch.Tensor) -> tuple[int, ...]:
        """Return a fake tensor's shape in plain numbers."""
        return tuple(self.of(size) for size in fake.shape)

    def strides(self, fake: torch.Tensor) -> tuple[int, ...] | None:
        """Return a fake tensor's strides in plain numbers, None where sizes do not say them."""
        strides: tuple[Any, ...] = fake.stride()
        symbols = [each.node.expr.free_symbols for each in strides if not isinstance(each, int)]
        if not self._symbols.keys() >= set().union(*symbols):
            return None
        return tuple(self.of(stride) for stride in strides)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Hold one input or output of a program, which has its dimensions in the order of memory.

    Attributes:
        shape: Of the tensor.
        dtype: Of the tensor.
        strides: Of the tensor, which is dense.
        order: The tensor's dimensions as the program has them, from the outermost in memory to the
            innermost.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def row_major(cls, shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec:
        """Describe a row-major tensor."""
        return cls(shape, dtype, _dense_strides(shape), tuple(range(len(shape))))

    @classmethod
    def strided(
        cls, shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...]
    ) -> TensorSpec:
        """Describe a tensor with these strides, a row-major one where they are not dense."""
        # Where a size is one, the stride says nothing about the order.
        wide = sorted(
            (dim for dim, size in enumerate(shape) if size > 1), key=lambda dim: -strides[dim]
        )
        order = [wide.pop(0) if size > 1 else dim for dim, size in enumerate(shape)]
        dense = _dense_strides([shape[dim] for dim in order])
        is_dense = all(
            strides[dim] == stride or shape[dim] == 1
            for dim, stride in zip(order, dense, strict=True)
        )
        if not is_dense or 0 in shape:
            return cls.row_major(shape, dtype)
        return cls(shape, dtype, strides, tuple(order))

    @property
    def in_memory(self) -> tuple[tuple[int, ...], torch.dtype]:
        """Return shape and dtype as the program has them."""
        return tuple(self.shape[dim] for dim in self.order), self.dtype

    @property
    def back(self) -> list[int]:
        """Return the order that turns what the program has into the tensor's dimensions."""
        return sorted(range(len(self.order)), key=self.order.__getitem__)


def _dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return what PyTorch gives a new tensor, which counts empty dimensions as one."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    return tuple(strides[: len(shape)])


@dataclass(frozen=True, slots=True)
class Program:
    """Hold one lowered graph.

    Attributes:
        module: The StableHLO.
        inputs: Of the entry function, in order.
        outputs: Of the entry function, in order.
        results: Per output of the graph: the index of a program output, or a plain value (None, a
            number) wrapped in a one-element tuple.
    """

    module: Module
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    results: tuple[int | tuple[Any], ...]


def lower(
    graph: fx.GraphModule, sizes: Sizes | None = None, first: LoweringTable | None = None
) -> Program:
    """Write a graph as a StableHLO module of concrete sizes.

    Args:
        graph: Functional ATen calls; every node has `meta["val"]` (what FakeTensor tracing leaves).
        sizes: What the graph's size symbols are in this program; none for a graph without symbols.
        first: Rules of this host that come before the table's; one that returns None stands back.
            Then inputs and outputs lie in memory as eager's; without, the program is the one for a
            chip, and they are row-major.

    Raises:
        LoweringError: A call has no rule, or its rule failed. The cause is attached.
    """
    with emit.for_host(first is not None):
        return _Lowering(graph, sizes or Sizes({}), first).run()


class _Lowering:
    """Write one graph; a value per node."""

    def __init__(self, graph: fx.GraphModule, sizes: Sizes, first: LoweringTable | None) -> None:
        self._graph = graph
        self._sizes = sizes
        self._first = first or LoweringTable()
        self._is_strided = first is not None
        self._values: dict[fx.Node, Any] = {}

    def run(self) -> Program:
        placeholders = [node for node in self._graph.graph.nodes if node.op == "placeholder"]
        tensors = [node for node in placeholders if isinstance(node.meta["val"], torch.Tensor)]
        inputs = tuple(self._spec(node.meta["val"]) for node in tensors)
        for node in placeholders:
            if node not in tensors:
                self._values[node] = self._sizes.of(node.meta["val"])
        with Module.build([each.in_memory for each in inputs]) as builder:
            for node, value, spec in zip(tensors, builder.arguments, inputs, strict=True):
                self._values[node] = emit.transpose(value, spec.back)
            output: Any = ()
            for node in self._graph.graph.nodes:
                if node.op == "output":
                    output = node.args[0]
                elif node.op == "get_attr":
                    self._values[node] = emit.literal(_attribute(self._graph, node.target))
                elif node.op == "call_function":
                    with builder.at(node.name, *source_line(node)):
                        self._values[node] = self._call(node)
            values, outputs, results = self._outputs(
                output if isinstance(output, tuple | list) else (output,)
            )
            try:
                builder.finish(values)
            except Exception as error:
                raise LoweringError(node, f"the module is not valid: {error}") from error
        return Program(builder.module, inputs, tuple(outputs), results)

    def _outputs(
        self, output: Sequence[Any]
    ) -> tuple[list[Value], list[TensorSpec], tuple[int | tuple[Any], ...]]:
        values: list[Value] = []
        specs: list[TensorSpec] = []
        results: list[int | tuple[Any]] = []
        for each in output:
            made = self._values[each] if isinstance(each, fx.Node) else each
            if isinstance(made, Value):
                results.append(len(values))
                specs.append(self._spec(each.meta["val"]))
                values.append(emit.transpose(made, specs[-1].order))
            else:
                results.append((made,))
        return values, specs, tuple(results)

    def _spec(self, fake: torch.Tensor) -> TensorSpec:
        shape = self._sizes.shape(fake)
        strides = self._sizes.strides(fake) if self._is_strided else None
        if strides is None:
            return TensorSpec.row_major(shape, fake.dtype)
        return TensorSpec.strided(shape, fake.dtype, strides)

    def _call(self, node: fx.Node) -> Any:
        promised = node.meta["val"]
        if isinstance(promised, torch.SymInt | int | float | bool | torch.SymFloat | torch.SymBool):
            return self._sizes.of(promised)
        if node.target is operator.getitem:
            source, index = node.args
            return self._values[source][index]  # type: ignore[index]
        rule = TABLE.find(node.target)
        if rule is None:
            raise LoweringError(node, "it has no lowering")
        args, kwargs = pytree.tree_map_only(
            fx.Node, self._values.__getitem__, (node.args, node.kwargs)
        )
        fakes, fake_kwargs = pytree.tree_map_only(
            fx.Node, lambda each: self._promise(each.meta["val"]), (node.args, node.kwargs)
        )
        results = tuple(promised) if isinstance(promised, list | tuple) else (promised,)
        call = Call(
            node.target,  # type: ignore[arg-type]
            tuple(self._promise(each) for each in results),
            fakes,
            dict(fake_kwargs),
        )
        try:
            before = self._first.find(node.target)
            made = before(call, *args, **kwargs) if before is not None else None
            if made is None:
                made = rule(call, *args, **kwargs)
        except Exception as error:
            raise LoweringError(node, f"{type(error).__name__}: {error}") from error
        _check_promise(node, made, call.results)
        return made

    def _promise(self, value: Any) -> Any:
        """Return a fake tensor, or a size, with the symbols filled in."""
        if isinstance(value, list | tuple):
            return type(value)(self._promise(each) for each in value)
        if not isinstance(value, torch.Tensor):
            return self._sizes.of(value)
        if not self._sizes or all(isinstance(size, int) for size in value.shape):
            return value
        return torch.empty(self._sizes.shape(value), dtype=value.dtype, device="meta")


def _check_promise(node: fx.Node, made: Any, results: Sequence[Any]) -> None:
    """Check that a rule made what PyTorch promised: a wrong shape or dtype is a fault of ours."""
    values = made if isinstance(made, list | tuple) else (made,)
    for value, promised in zip(values, results, strict=False):
        if isinstance(value, Value) and isinstance(promised, torch.Tensor):
            shape = tuple(promised.shape)
            if (value.shape, value.dtype) != (shape, promised.dtype):
                raise LoweringError(
                    node,
                    f"its rule made {value.dtype}{list(value.shape)} where PyTorch promises "
                    f"{promised.dtype}{list(shape)}",
                )


def _attribute(graph: fx.GraphModule, target: object) -> torch.Tensor:
    value: Any = graph
    for part in str(target).split("."):
        value = getattr(value, part)
    return value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def source_line(node: fx.Node) -> tuple[str, int]:
    """Return file and line of the user's code that a node came from, empty where unknown."""
    lines = [line for line in (node.stack_trace or "").splitlines() if line.startswith("  File ")]
    if not lines:
        return "", 0
    _, file, rest = lines[-1].split('"', 2)
    number = rest.split(",")[1].removeprefix(" line ")
    return file, int(number) if number.isdigit() else 0
