"""XLA:CPU through jaxlib's PJRT client: compile a module, run it on memory it does not own.

The only file that names jaxlib's client. The client is synchronous and ends before the interpreter
does: an asynchronous one that is alive at exit aborts the process.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Sequence
from typing import Any

from torchneuron import config

with config.quiet_compiler_log():
    import jaxlib.version
    from jaxlib import _jax

VERSION = f"jaxlib {jaxlib.version.__version__}"
# XLA may otherwise keep more bits than a half type has, and results would depend on fusion.
FLAGS = [("xla_allow_excess_precision", False)]


class Executable:
    """Hold a compiled module."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        stats = loaded.get_compiled_memory_stats()
        self.temp_bytes: int = stats.temp_size_in_bytes
        self.output_bytes: int = stats.output_size_in_bytes

    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        """Run on buffers made by `import_dlpack`; return DLPack capsules of the outputs."""
        results = self._loaded.execute_sharded(list(buffers))
        return [
            _jax.buffer_to_dlpack_managed_tensor(shards[0], None)
            for shards in results.disassemble_into_single_device_arrays()
        ]

    def serialize(self) -> bytes:
        """Return the machine-specific executable; only `load` of the same jaxlib takes it."""
        blob: bytes = client().serialize_executable(self._loaded)
        return blob


@functools.cache
def client() -> Any:
    """Return the process's client, made on first use."""
    made = _jax.get_tfrt_cpu_client(asynchronous=False)
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
