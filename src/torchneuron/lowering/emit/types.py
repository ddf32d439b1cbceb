"""PyTorch's dtypes as MLIR element types, and the MLIR context that all modules share."""

import functools

import jaxlib.mlir.ir as ir
import torch
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo

_INTEGERS = {
    torch.bool: (1, "signless"),
    torch.int8: (8, "signless"),
    torch.int16: (16, "signless"),
    torch.int32: (32, "signless"),
    torch.int64: (64, "signless"),
    torch.uint8: (8, "unsigned"),
    torch.uint16: (16, "unsigned"),
    torch.uint32: (32, "unsigned"),
    torch.uint64: (64, "unsigned"),
}
_FLOATS = {
    torch.float16: ir.F16Type,
    torch.bfloat16: ir.BF16Type,
    torch.float32: ir.F32Type,
    torch.float64: ir.F64Type,
    torch.float8_e4m3fn: ir.Float8E4M3FNType,
    torch.float8_e5m2: ir.Float8E5M2Type,
}
_COMPLEX = {torch.complex64: ir.F32Type, torch.complex128: ir.F64Type}
DTYPES = (*_INTEGERS, *_FLOATS, *_COMPLEX)


@functools.cache
def context() -> ir.Context:
    """Return the context of every module, with the dialects loaded.

    jaxlib's own registration must come first: without it `func.return` cannot be verified.
    """
    made = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made.append_dialect_registry(registry)
    stablehlo.register_dialect(made)
    chlo.register_dialect(made)
    made.load_all_available_dialects()
    return made


@functools.cache
def element_type(dtype: torch.dtype) -> ir.Type:
    """Return the MLIR type of one element.

    Raises:
        KeyError: The dtype has none (quantized dtypes, complex32).
    """
    with context():
        if dtype in _INTEGERS:
            width, sign = _INTEGERS[dtype]
            make = (
                ir.IntegerType.get_signless if sign == "signless" else ir.IntegerType.get_unsigned
            )
            return make(width)
        if dtype in _FLOATS:
            return _FLOATS[dtype].get()
        return ir.ComplexType.get(_COMPLEX[dtype].get())


def tensor_type(shape: tuple[int, ...], dtype: torch.dtype) -> ir.RankedTensorType:
    """Return the MLIR type of a tensor."""
    with context():
        return ir.RankedTensorType.get(shape, element_type(dtype), loc=ir.Location.unknown())
