"""Calls of the host's own kernels: part of programs that run here, of no program for a chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jaxlib.mlir.ir as ir
import torch
from jaxlib.mlir.dialects import stablehlo as hlo

from torchneuron.lowering.emit.types import tensor_type
from torchneuron.lowering.emit.value import Value

Number = int | bool | float | Sequence[int]
# XLA's typed foreign function interface.
_API_VERSION = 4


def host_call(
    name: str,
    operands: Sequence[Value],
    results: Sequence[tuple[Sequence[int], torch.dtype]],
    attributes: Mapping[str, Number],
) -> list[Value]:
    """Call a function of this process; operands and results are row-major.

    Args:
        name: What the function is registered as with XLA.
        operands: Its arguments.
        results: Shape and dtype of what it writes.
        attributes: Numbers it is told.
    """
    call = hlo.CustomCallOp(
        [tensor_type(tuple(shape), dtype) for shape, dtype in results],
        [each.ir for each in operands],
        ir.StringAttr.get(name),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), _API_VERSION),
        backend_config=ir.DictAttr.get({key: _attribute(each) for key, each in attributes.items()}),
        operand_layouts=_row_major([each.rank for each in operands]),
        result_layouts=_row_major([len(shape) for shape, _ in results]),
    )
    return [
        Value(made, tuple(shape), dtype)
        for made, (shape, dtype) in zip(call.results, results, strict=True)
    ]


def before_transpose(value: Value) -> tuple[Value, list[int]]:
    """Look through a transpose: return its operand and the order it gives the dimensions.

    XLA folds a transpose into a product of its own, not into a call.
    """
    owner = value.ir.owner
    if not isinstance(owner, ir.OpView) or owner.operation.name != "stablehlo.transpose":
        return value, list(range(value.rank))
    order = list(ir.DenseI64ArrayAttr(owner.attributes["permutation"]))
    shape = [0] * value.rank
    for place, dim in enumerate(order):
        shape[dim] = value.shape[place]
    source, before = before_transpose(Value(owner.operands[0], tuple(shape), value.dtype))
    return source, [before[dim] for dim in order]


def _attribute(number: Number) -> ir.Attribute:
    if isinstance(number, bool):
        return ir.BoolAttr.get(number)
    if isinstance(number, float):
        return ir.FloatAttr.get(ir.F64Type.get(), number)
    if isinstance(number, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    return ir.DenseI64ArrayAttr.get(list(number))


def _row_major(ranks: Sequence[int]) -> ir.Attribute:
    index = ir.IndexType.get()
    layouts = [
        ir.DenseIntElementsAttr.get(
            torch.arange(rank - 1, -1, -1, dtype=torch.int64).numpy(), type=index
        )
        for rank in ranks
    ]
    return ir.ArrayAttr.get(layouts)
