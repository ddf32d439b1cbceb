"""`Value`: one tensor of the program being written, with PyTorch's broadcasting operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as ir
import torch
from jaxlib.mlir.dialects import stablehlo as hlo

from torchneuron.lowering.emit.types import DTYPES, element_type, tensor_type

Scalar = bool | int | float | complex


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Hold one tensor of the program: its IR, shape and dtype (PyTorch's).

    `+ - * / **`, comparisons, `& | ^ ~` and unary minus broadcast as PyTorch does. Both sides have
    one dtype, or one side is a Python number, which takes the other's.
    """

    ir: ir.Value
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Return whether the dtype is a real floating-point one."""
        return self.dtype.is_floating_point

    @property
    def is_complex(self) -> bool:
        """Return whether the dtype is complex."""
        return self.dtype.is_complex

    def to(self, dtype: torch.dtype) -> Value:
        """Convert as PyTorch does: to bool means unequal to zero, complex to real drops a part."""
        return convert(self, dtype)

    def __add__(self, other: Operand) -> Value:
        return binary(hlo.or_ if self.dtype == torch.bool else hlo.add, self, other)

    def __sub__(self, other: Operand) -> Value:
        return binary(hlo.subtract, self, other)

    def __mul__(self, other: Operand) -> Value:
        return binary(hlo.and_ if self.dtype == torch.bool else hlo.multiply, self, other)

    def __truediv__(self, other: Operand) -> Value:
        return binary(hlo.divide, self, other)

    def __radd__(self, other: Scalar) -> Value:
        return self + other

    def __rmul__(self, other: Scalar) -> Value:
        return self * other

    def __rsub__(self, other: Scalar) -> Value:
        return full_like(self, other) - self

    def __rtruediv__(self, other: Scalar) -> Value:
        return full_like(self, other) / self

    def __pow__(self, other: Operand) -> Value:
        return binary(hlo.power, self, other)

    def __neg__(self) -> Value:
        return unary(hlo.negate, self)

    def __invert__(self) -> Value:
        return unary(hlo.not_, self)

    def __and__(self, other: Operand) -> Value:
        return binary(hlo.and_, self, other)

    def __or__(self, other: Operand) -> Value:
        return binary(hlo.or_, self, other)

    def __xor__(self, other: Operand) -> Value:
        return binary(hlo.xor, self, other)

    def __lt__(self, other: Operand) -> Value:
        return compare("LT", self, other)

    def __le__(self, other: Operand) -> Value:
        return compare("LE", self, other)

    def __gt__(self, other: Operand) -> Value:
        return compare("GT", self, other)

    def __ge__(self, other: Operand) -> Value:
        return compare("GE", self, other)

    def eq(self, other: Operand) -> Value:
        """Compare elements; `==` between values is identity."""
        return compare("EQ", self, other)

    def ne(self, other: Operand) -> Value:
        """Compare elements for difference."""
        return compare("NE", self, other)


Operand = Value | Scalar


def wrap(made: ir.Value) -> Value:
    """Wrap what the dialect's builder inferred; the dtype is read back from the type."""
    kind = ir.RankedTensorType(made.type)
    return Value(made, tuple(kind.shape), _torch_dtypes()[str(kind.element_type)])


@functools.cache
def _torch_dtypes() -> dict[str, torch.dtype]:
    return {str(element_type(dtype)): dtype for dtype in DTYPES}


def literal(tensor: torch.Tensor) -> Value:
    """Write a tensor's numbers (of a CPU tensor) into the program."""
    dtype, shape = tensor.dtype, tuple(tensor.shape)
    tensor = tensor.detach().contiguous()
    if dtype == torch.bool:  # MLIR packs bits, and not as numpy does
        return literal(tensor.to(torch.uint8)).to(torch.bool)
    if dtype == torch.bfloat16 or (dtype.is_floating_point and dtype.itemsize == 1):
        array = tensor.view(torch.int16 if dtype.itemsize == 2 else torch.int8).numpy()
    else:
        array = tensor.numpy()
    attribute = ir.DenseElementsAttr.get(array, type=element_type(dtype), shape=shape)
    return Value(hlo.constant(attribute), shape, dtype)


def full(shape: Sequence[int], value: Scalar, dtype: torch.dtype) -> Value:
    """Write a tensor of one repeated number."""
    shape = tuple(shape)
    if dtype.is_complex:
        return broadcast_to(literal(torch.tensor(value, dtype=dtype)), shape)
    kind = element_type(dtype)
    if isinstance(value, complex):
        raise TypeError(f"{value} does not fit into {dtype}")
    if dtype.is_floating_point:
        attribute = ir.FloatAttr.get(kind, float(value))
    elif dtype == torch.bool:
        attribute = ir.IntegerAttr.get(kind, int(bool(value)))
    else:  # as C converts: a number outside the range wraps
        attribute = ir.IntegerAttr.get(kind, torch.tensor(int(value)).to(dtype).item())
    splat = ir.DenseElementsAttr.get_splat(tensor_type(shape, dtype), attribute)
    return Value(hlo.constant(splat), shape, dtype)


def full_like(like: Value, value: Scalar) -> Value:
    """Write a tensor of one repeated number with another's shape and dtype."""
    return full(like.shape, value, like.dtype)


def broadcast_to(value: Value, shape: Sequence[int]) -> Value:
    """Repeat size-one and missing leading dimensions, as `Tensor.expand` does."""
    shape = tuple(shape)
    if value.shape == shape:
        return value
    offset = len(shape) - value.rank
    dims = ir.DenseI64ArrayAttr.get(range(offset, len(shape)))
    made = hlo.broadcast_in_dim(tensor_type(shape, value.dtype), value.ir, dims)
    return Value(made, shape, value.dtype)


def together(*operands: Operand) -> tuple[Value, ...]:
    """Broadcast operands to one shape; numbers take the dtype of the first tensor."""
    first = next(each for each in operands if isinstance(each, Value))
    shapes = [each.shape for each in operands if isinstance(each, Value)]
    shape = tuple(torch.broadcast_shapes(*shapes))
    return tuple(
        broadcast_to(each, shape) if isinstance(each, Value) else full(shape, each, first.dtype)
        for each in operands
    )


def unary(build: Any, value: Value) -> Value:
    """Apply one of the dialect's operations with one operand, element by element."""
    return wrap(build(value.ir))


def binary(build: Any, left: Operand, right: Operand) -> Value:
    """Apply one of the dialect's operations with two operands, element by element."""
    left, right = together(left, right)
    return wrap(build(left.ir, right.ir))


def compare(direction: str, left: Operand, right: Operand) -> Value:
    """Compare element by element: EQ, NE, LT, LE, GT or GE; not-a-number is unequal to all."""
    left, right = together(left, right)
    made = hlo.compare(left.ir, right.ir, hlo.ComparisonDirectionAttr.get(direction))
    return Value(made, left.shape, torch.bool)


def select(condition: Value, yes: Operand, no: Operand) -> Value:
    """Choose element by element, as `torch.where` does."""
    dtype = next(each.dtype for each in (yes, no) if isinstance(each, Value))
    shapes = [each.shape for each in (condition, yes, no) if isinstance(each, Value)]
    shape = tuple(torch.broadcast_shapes(*shapes))
    chosen = [
        broadcast_to(each, shape) if isinstance(each, Value) else full(shape, each, dtype)
        for each in (yes, no)
    ]
    made = hlo.select(broadcast_to(condition, shape).ir, chosen[0].ir, chosen[1].ir)
    return Value(made, shape, dtype)


# What a float passes through on its way to a narrow integer: XLA would saturate (-1.0 to 0 in
# uint8), while PyTorch on the CPU converts to a wider integer and keeps the low bits (255).
_WRAPPING = {
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint8: torch.int64,
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
}


def convert(value: Value, dtype: torch.dtype) -> Value:
    """Convert as `Tensor.to(dtype)` does."""
    if value.dtype == dtype:
        return value
    if dtype == torch.bool:
        return compare("NE", value, 0)
    if value.is_complex and not dtype.is_complex:
        value = wrap(hlo.real(value.ir))
    if dtype.is_complex and not value.is_complex:
        part = convert(value, torch.float32 if dtype == torch.complex64 else torch.float64)
        return Value(hlo.complex(part.ir, full_like(part, 0).ir), value.shape, dtype)
    if value.is_float and dtype in _WRAPPING:
        value = convert(value, _WRAPPING[dtype])
    made = hlo.convert(tensor_type(value.shape, dtype), value.ir)
    return Value(made, value.shape, dtype)
