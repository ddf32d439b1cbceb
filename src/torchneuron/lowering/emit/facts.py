"""What attributes, regions and operands say of one operation, as plain values by name.

Each name that appears here is listed in `targets.statements.CONDITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from torchneuron.lowering.emit.mx_facts import block_scaled_dot, quantize

Fact = bool | int | str
Facts = dict[str, Fact]


def facts_of(op: Any) -> Facts:
    """Return what is known of an operation; names that do not concern it are absent."""
    reader = _READERS.get(op.name.removeprefix("stablehlo."))
    return reader(op) if reader is not None else {}


# -- attributes


def _numbers(op: Any, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else []


def _above_one(op: Any, name: str) -> bool:
    return any(each > 1 for each in _numbers(op, name))


def _word(op: Any, name: str) -> str:
    """Return the last word of an attribute such as `#stablehlo<rng_algorithm DEFAULT>`."""
    return str(op.attributes[name]).rstrip(">").split()[-1]


def _array(attribute: Any) -> np.ndarray[Any, Any]:
    return np.array(ir.DenseIntElementsAttr(attribute))


# -- regions


def _block(op: Any, region: int = 0) -> tuple[list[Any], list[Any]]:
    block = op.regions[region].blocks[0]
    return list(block.arguments), [each.operation for each in block.operations]


def _computation(op: Any) -> str:
    """Name the arithmetic of a region: one operation on both arguments, `overwrite`, or `other`."""
    arguments, inner = _block(op)
    returned = list(inner[-1].operands)
    if len(inner) == 1 and len(arguments) == 2:
        return "overwrite" if returned == arguments[1:] else "other"
    if len(inner) == 2 and len(arguments) == 2 and list(inner[0].results) == returned:
        operands = list(inner[0].operands)
        if operands in (arguments, arguments[::-1]):
            return str(inner[0].name.removeprefix("stablehlo."))
    return "other"


def _comparator(op: Any) -> str:
    """Return the direction of a comparator that is one comparison of its first two arguments."""
    arguments, inner = _block(op)
    plain = len(inner) == 2 and inner[0].name == "stablehlo.compare"
    if plain and list(inner[0].operands) == arguments[:2]:
        return _word(inner[0], "comparison_direction")
    return "other"


def _trip_count(op: Any) -> str:
    """Say how a loop ends: `static` (counts to a constant), `data`, or `unclear`."""
    arguments, condition = _block(op)
    test = condition[-1].operands[0].owner
    if not isinstance(test, ir.OpView | ir.Operation) or test.name != "stablehlo.compare":
        return "data"
    if any("f" in str(each.type.element_type) for each in test.operands):
        return "data"
    counters = [place for place, each in enumerate(arguments) if each in list(test.operands)]
    if len(counters) != 1 or not any(_constant(each) is not None for each in test.operands):
        return "unclear"
    start = op.operands[counters[0]]
    inner_arguments, body = _block(op, 1)
    step = body[-1].operands[counters[0]].owner
    if _constant(start) is None or not isinstance(step, ir.OpView | ir.Operation):
        return "unclear"
    counts = step.name == "stablehlo.add" and inner_arguments[counters[0]] in list(step.operands)
    return "static" if counts and any(_constant(e) is not None for e in step.operands) else "data"


# -- where a value comes from

_SAME_NUMBERS = frozenset({"reshape", "convert", "broadcast_in_dim", "transpose"})


def _origin(value: Any) -> Any:
    """Return the operation that made a value's numbers, None for a program's input."""
    while isinstance(value.owner, ir.OpView | ir.Operation):
        owner = value.owner.operation
        if owner.name.removeprefix("stablehlo.") not in _SAME_NUMBERS:
            return owner
        value = owner.operands[0]
    return None


def _constant(value: Any) -> Any:
    """Return the numbers of a value that a constant made, else None."""
    owner = _origin(value)
    if owner is None or owner.name != "stablehlo.constant":
        return None
    attribute = owner.attributes["value"]
    return attribute if isinstance(attribute, ir.DenseIntElementsAttr) else None


def _components(index: Any, vector_dim: int, count: int) -> list[Any]:
    """Return the value of each component of an index vector, None where they are not apart."""
    if count == 1:
        return [index]
    owner = _origin(index)
    parts = list(owner.operands) if owner is not None else []
    joined = owner is not None and owner.name == "stablehlo.concatenate"
    if (
        joined
        and len(parts) == count
        and ir.IntegerAttr(owner.attributes["dimension"]).value == (vector_dim)
    ):
        return parts
    return [None] * count


def _past_end(op: Any, index: Any, dims: list[int], vector_dim: int) -> Facts:
    """Compare counted and constant indices with the sizes of the dimensions they go into."""
    sizes = [op.operands[0].type.shape[dim] for dim in dims]
    iota, constant = False, False
    for size, part in zip(sizes, _components(index, vector_dim, len(dims)), strict=True):
        owner = _origin(part) if part is not None else None
        if owner is not None and owner.name == "stablehlo.iota":
            along = ir.IntegerAttr(owner.attributes["iota_dimension"]).value
            iota |= owner.results[0].type.shape[along] > size
        numbers = _constant(part) if part is not None else None
        if numbers is not None and len(numbers):
            found = _array(numbers)
            constant |= bool((found < 0).any() or (found >= size).any())
    return {"iota_past_end": iota, "constant_past_end": constant}


# -- readers


def _gather(op: Any) -> Facts:
    numbers = hlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    dims = list(numbers.start_index_map)
    gone = [*numbers.collapsed_slice_dims, *numbers.operand_batching_dims]
    past = _past_end(op, op.operands[1], dims, numbers.index_vector_dim)
    return {"disjoint": set(dims) <= set(gone), **past}


def _scatter(op: Any) -> Facts:
    numbers = hlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    index = op.operands[(len(op.operands) - 1) // 2]
    dims = list(numbers.scattered_dims_to_operand_dims)
    past = _past_end(op, index, dims, numbers.index_vector_dim)
    return {"computation": _computation(op), **past}


def _reduce(op: Any) -> Facts:
    count = len(op.operands) // 2
    starts = [_origin(each) for each in list(op.operands)[count:]]
    fixed = all(each is not None and each.name == "stablehlo.constant" for each in starts)
    return {"num_inputs": count, "computation": _computation(op), "constant_start": fixed}


def _reduce_window(op: Any) -> Facts:
    return {
        "num_inputs": len(op.operands) // 2,
        "computation": _computation(op),
        "base_dilated": _above_one(op, "base_dilations"),
        "window_dilated": _above_one(op, "window_dilations"),
    }


def _convolution(op: Any) -> Facts:
    return {
        "strided": _above_one(op, "window_strides"),
        "lhs_dilated": _above_one(op, "lhs_dilation"),
        "rhs_dilated": _above_one(op, "rhs_dilation"),
    }


def _update(op: Any) -> Facts:
    first = {"dynamic_slice": 1, "dynamic_update_slice": 2}[op.name.partition(".")[2]]
    return {"constant_index": all(_constant(e) is not None for e in list(op.operands)[first:])}


def _wide_constant(op: Any) -> Facts:
    kind = op.results[0].type.element_type
    if str(kind) != "ui64" or not len(op.attributes["value"]):
        return {}
    return {"above_32_bits": bool((_array(op.attributes["value"]) > 0xFFFF_FFFF).any())}


def _bitcast(op: Any) -> Facts:
    operand, result = op.operands[0].type, op.results[0].type
    return {"same_width": operand.rank == result.rank}


def _group(op: Any) -> Facts:
    groups = _array(op.attributes["replica_groups"])
    return {"group_size": int(groups.shape[-1])}


def _reducing_group(op: Any) -> Facts:
    return {"computation": _computation(op), **_group(op)}


def _permute(op: Any) -> Facts:
    pairs = _array(op.attributes["source_target_pairs"]).reshape(-1, 2)
    return {"circular": sorted(pairs[:, 0]) == sorted(pairs[:, 1])}


def _custom_call(op: Any) -> Facts:
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    found: Facts = {"target": target}
    if target == "QuantizeMX":
        found |= quantize(op)
    if target == "__op$block_scaled_dot":
        found |= block_scaled_dot(op)
    return found


_READERS: dict[str, Callable[[Any], Facts]] = {
    "all_gather": _group,
    "all_reduce": _reducing_group,
    "all_to_all": _group,
    "bitcast_convert": _bitcast,
    "collective_permute": _permute,
    "constant": _wide_constant,
    "convolution": _convolution,
    "custom_call": _custom_call,
    "dynamic_slice": _update,
    "dynamic_update_slice": _update,
    "gather": _gather,
    "reduce": _reduce,
    "reduce_scatter": _reducing_group,
    "reduce_window": _reduce_window,
    "rng": lambda op: {"distribution": _word(op, "rng_distribution")},
    "rng_bit_generator": lambda op: {"algorithm": _word(op, "rng_algorithm")},
    "scatter": _scatter,
    "sort": lambda op: {"comparator": _comparator(op)},
    "while": lambda op: {"trip_count": _trip_count(op)},
}
