"""Read a module: its operations, their element types, what is known of each, where it comes from.

What CHLO has and StableHLO has not is read as its expansion, on which a compiler falls back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import stablehlo as hlo

from torchneuron.lowering.emit.facts import Fact, facts_of
from torchneuron.lowering.emit.module import Module
from torchneuron.lowering.emit.types import context

# Their regions are programs; the regions of all others are the arithmetic of one operation.
_WITH_BODIES = frozenset({"stablehlo.while", "stablehlo.if", "stablehlo.case"})
_STRUCTURE = frozenset({"func.func", "func.return", "func.call", "stablehlo.return"})
_EXPANSION = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


@dataclass(frozen=True, slots=True)
class Operation:
    """Hold what a reader of programs may know of one operation.

    Attributes:
        name: With its dialect, as `stablehlo.add`; `input` and `output` for those of the program.
        dtypes: Element types of what it computes with, as a module prints them: no indices, no
            predicates of a selection.
        every_dtype: Element types of all operands and results.
        facts: Attributes and the like; names in `targets.statements.CONDITIONS`.
        node: Name of the graph's node that it was written for, empty where unknown.
        file: Of the user's code, empty where unknown.
        line: In that file, from 1; 0 where unknown.
    """

    name: str
    dtypes: tuple[str, ...]
    every_dtype: tuple[str, ...]
    facts: Mapping[str, Fact]
    node: str = ""
    file: str = ""
    line: int = 0

    @property
    def short_name(self) -> str:
        """Return the name without the dialect."""
        return self.name.partition(".")[2] or self.name


def parse(text: str) -> Module:
    """Read a module from text.

    Raises:
        ValueError: It is no valid module.
    """
    with context():
        try:
            return Module(ir.Module.parse(text))
        except ir.MLIRError as error:
            raise ValueError(f"not a module: {error}") from error


def operations(module: Module) -> Iterator[Operation]:
    """Yield the operations of all functions in order, inputs and outputs of `main` around them."""
    with context():
        whole = module.ir.operation
        if any(name.startswith("chlo.") for name in _names(whole)):
            whole = whole.clone()
            _expansion().run(whole)
        for function in whole.regions[0].blocks[0].operations:
            is_main = function.operation.name == "func.func" and _is_main(function)
            if is_main:
                yield from _ends("input", function.type.inputs)
            yield from _walk(function.operation)
            if is_main:
                yield from _ends("output", function.type.results)


@functools.cache
def _expansion() -> passmanager.PassManager:
    hlo.register_stablehlo_passes()
    return passmanager.PassManager.parse(_EXPANSION)


def _names(op: Any) -> Iterator[str]:
    for inner in _inside(op):
        yield inner.name
        yield from _names(inner)


def _inside(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation


def _is_main(function: Any) -> bool:
    return bool(ir.StringAttr(function.attributes["sym_name"]).value == "main")


def _ends(name: str, types: Any) -> Iterator[Operation]:
    for place, kind in enumerate(types):
        dtype = (element(kind),)
        yield Operation(name, dtype, dtype, _sized(kind), f"{name} {place}")


def _sized(kind: Any) -> dict[str, Fact]:
    if not isinstance(kind, ir.RankedTensorType):
        return {}
    if not kind.has_static_shape:
        return {"dynamic": True}
    bits = _bits(str(kind.element_type))
    return {"dynamic": False, "num_bytes": math.prod(kind.shape) * max(bits // 8, 1)}


def _bits(dtype: str) -> int:
    """Return the width of an element type, from the first number in its name."""
    digits = "".join(each if each.isdigit() else " " for each in dtype).split()
    bits = int(digits[0]) if digits else 0
    return 2 * bits if dtype.startswith("complex") else bits


def _walk(op: Any) -> Iterator[Operation]:
    for inner in _inside(op):
        if inner.name not in _STRUCTURE:
            yield _operation(inner)
        if inner.name in _WITH_BODIES:
            yield from _walk(inner)


def _operation(op: Any) -> Operation:
    values = [*op.operands, *op.results]
    facts = {"dynamic": any(_is_dynamic(each.type) for each in values), **facts_of(op)}
    every = _distinct(values)
    return Operation(op.name, _distinct(_data(op)), every, facts, *_place(op.location))


def _is_dynamic(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape


def _data(op: Any) -> list[Any]:
    """Return the operands and results that an operation computes with."""
    operands, results = list(op.operands), list(op.results)
    name = op.name.removeprefix("stablehlo.")
    if name in {"gather", "dynamic_slice"}:
        return [operands[0], *results]
    if name == "dynamic_update_slice":
        return operands[:2]
    if name == "scatter":
        num_inputs = (len(operands) - 1) // 2
        return operands[:num_inputs] + operands[num_inputs + 1 :]
    if name == "select":
        return operands[1:]
    if name in {"compare", "is_finite", "sort"} or (name == "custom_call" and operands):
        return operands
    return operands + results


def _distinct(values: list[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(element(each.type) for each in values))


def element(kind: Any) -> str:
    """Return the element type of a tensor type as text, of another type its own text."""
    return str(kind.element_type if isinstance(kind, ir.ShapedType) else kind)


def _place(location: Any) -> tuple[str, str, int]:
    """Return node, file and line of a location as `Builder.at` writes it."""
    node, file, line = "", "", 0
    if isinstance(location, ir.NameLoc):
        node, location = location.name_str, location.child_loc
    if isinstance(location, ir.FileLineColLoc):
        file, line = location.filename, location.start_line
        file = str(getattr(file, "value", file))
    return node, file, line
