"""A StableHLO module: how it is begun, finished, and written in the forms others read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import jaxlib.mlir.ir as ir
import torch
from jaxlib import _jax
from jaxlib.mlir.dialects import func

from torchneuron.lowering.emit.types import context, tensor_type
from torchneuron.lowering.emit.value import Value

# The StableHLO version of portable artifacts: the newest that this jaxlib writes.
PORTABLE_VERSION = "1.17.0"


class Module:
    """Hold one module with an entry function `main`."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module

    @staticmethod
    def build(inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> Builder:
        """Begin a module; use the answer in a `with` block."""
        return Builder(inputs)

    @property
    def ir(self) -> ir.Module:
        """Return the MLIR module."""
        return self._module

    def text(self, *, with_places: bool = False) -> str:
        """Return the module as text; with places, each operation names its source line."""
        text: str = self._module.operation.get_asm(
            enable_debug_info=with_places, large_elements_limit=None
        )
        return text

    def portable(self) -> bytes:
        """Return StableHLO's portable bytecode (version `PORTABLE_VERSION`), without places."""
        with context():
            plain = ir.Module.parse(self.text())
            artifact: bytes = _jax.mlir.serialize_portable_artifact(plain, PORTABLE_VERSION)
        return artifact

    def hlo_proto(self) -> bytes:
        """Return the module as a serialized HLO proto, the form before StableHLO."""
        with context():
            computation = _jax.mlir.mlir_module_to_xla_computation(self.text())
            proto: bytes = computation.as_serialized_hlo_module_proto()
        return proto


class Builder:
    """Write the body of `main`; made by `Module.build`."""

    def __init__(self, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> None:
        self._inputs = inputs
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Builder:
        """Begin `main`."""
        self._stack.enter_context(context())
        self._stack.enter_context(ir.Location.unknown())
        module = ir.Module.create()
        kinds = [tensor_type(shape, dtype) for shape, dtype in self._inputs]
        with ir.InsertionPoint(module.body):
            self._function = func.FuncOp("main", ir.FunctionType.get(kinds, []))
        self._function.attributes["sym_visibility"] = ir.StringAttr.get("public")
        block = self._function.add_entry_block()
        self._stack.enter_context(ir.InsertionPoint(block))
        self.module = Module(module)
        self.arguments = [
            Value(made, shape, dtype)
            for made, (shape, dtype) in zip(block.arguments, self._inputs, strict=True)
        ]
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave the context."""
        self._stack.close()

    @contextlib.contextmanager
    def at(self, name: str, file: str, line: int) -> Iterator[None]:
        """Give what is written inside a name and a source line."""
        child = ir.Location.file(file, line, 0) if file else None
        with ir.Location.name(name, childLoc=child):
            yield

    def finish(self, outputs: Sequence[Value]) -> None:
        """Return these values from `main` and verify the module."""
        func.return_([each.ir for each in outputs])
        self._function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(
                [tensor_type(shape, dtype) for shape, dtype in self._inputs],
                [each.ir.type for each in outputs],
            )
        )
        self.module.ir.operation.verify()
