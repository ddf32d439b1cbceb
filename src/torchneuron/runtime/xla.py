"""XLA:CPU through jaxlib's PJRT client: compile a module, run it on memory it does not own.

The only file that names jaxlib's client. The client is synchronous and ends before the interpreter
does: an asynchronous one that is alive at exit aborts the process.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import sys
from importlib.machinery import PathFinder
from types import SimpleNamespace
from typing import Any

import numpy
import torch

from torchneuron import config

with config.quiet_compiler_log():
    import jaxlib.version
    from jaxlib import _jax

VERSION = f"jaxlib {jaxlib.version.__version__}"
_OF_JAX = "jax._src.sharding_impls"
# XLA may otherwise keep more bits than a half type has, and results would depend on fusion.
FLAGS = [("xla_allow_excess_precision", False)]


class Executable:
    """Hold a compiled module."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        stats = loaded.get_compiled_memory_stats()
        self.temp_bytes: int = stats.temp_size_in_bytes
        self.output_bytes: int = stats.output_size_in_bytes
        self.handlers = [_handler()] * len(loaded.get_output_layouts())
        self.execute = loaded.execute_sharded  # buffers that `import_dlpack` made to results

    def __call__(self, buffers: list[Any]) -> list[Any]:
        """Run on buffers made by `import_dlpack`; return arrays, which `export_dlpack` takes."""
        arrays: list[Any] = take(self.execute(buffers), self.handlers)
        return arrays

    def serialize(self) -> bytes:
        """Return the machine-specific executable; only `load` of the same jaxlib takes it."""
        blob: bytes = client().serialize_executable(self._loaded)
        return blob


class _JaxComes(importlib.abc.MetaPathFinder):
    """Take the mark "there is no such module" away before jax is imported.

    Without jax, jaxlib looks for `_OF_JAX` along the whole path at each import of memory, which
    takes longer than a small program. The mark ends that search at once.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing."""
        if name == "jax" and PathFinder.find_spec(name) is not None:
            sys.modules.pop(_OF_JAX, None)
            sys.meta_path.remove(self)


@functools.cache
def _handler() -> Any:
    """Return what makes an array of each output.

    Only the array's memory is used, which has its own shape and dtype: one handler serves all.
    """
    any_kind = SimpleNamespace(shape=(), dtype=numpy.dtype("float32"), weak_type=False)
    sharding = _jax.SingleDeviceSharding(client().local_devices()[0])
    return _jax.array_result_handler(any_kind, sharding, True, True)


@functools.cache
def client() -> Any:
    """Return the process's client, made on first use with as many threads as PyTorch then has."""
    with config.compiler_threads(torch.get_num_threads()):
        made = _jax.get_tfrt_cpu_client(asynchronous=False)
    if "jax" not in sys.modules:
        sys.modules[_OF_JAX] = None  # type: ignore[assignment]
        sys.meta_path.insert(0, _JaxComes())
    atexit.register(client.cache_clear)
    return made


def _devices() -> Any:
    return _jax.DeviceList((client().local_devices()[0],))


def _options() -> Any:
    options = _jax.CompileOptions()
    options.env_option_overrides = FLAGS
    return options


def register_call(name: str, handler: Any) -> None:
    """Make a function of this process callable from programs.

    Args:
        name: What the programs call it.
        handler: A capsule around an `XLA_FFI_Handler*`.
    """
    _jax.register_custom_call_target(name, handler, "cpu", 1)


CompilerError = _jax.JaxRuntimeError


def compile_module(module: Any) -> Executable:
    """Compile an MLIR module (or its text or bytecode) for this machine.

    Raises:
        CompilerError: XLA refuses the module.
    """
    return Executable(client().compile_and_load(module, _devices(), _options()))


def load(blob: bytes) -> Executable:
    """Load what `serialize` returned. Runs code: give it only what this user's cache holds."""
    return Executable(client().deserialize_executable(blob, _devices(), _options()))


def import_dlpack(capsule: Any) -> Any:
    """Return a buffer over a DLPack tensor's memory; copies only what is not 64-byte aligned."""
    return _jax.dlpack_managed_tensor_to_buffer(capsule, client().local_devices()[0], None)


# What `Executable.execute` returned and its handlers to a list of arrays.
take = _jax.ExecuteResults.consume_with_handlers
# An array to the address of its memory.
address = _jax.ArrayImpl.unsafe_buffer_pointer
# (array, None) to a DLPack capsule that owns the array's memory.
export_dlpack = _jax.buffer_to_dlpack_managed_tensor
