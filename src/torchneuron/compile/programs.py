"""The process's way to executables: in memory, on disk, else compiled."""

from __future__ import annotations

import functools
import platform
import time
from typing import Any

import torch

from torchneuron import ledger
from torchneuron.compile import host_calls, register
from torchneuron.ledger import CacheHit, Compiled, Compiling
from torchneuron.lowering.graph import Program
from torchneuron.runtime import xla
from torchneuron.runtime.cache import Key, user_cache

# Part of every key: raise it when the same StableHLO would be run in another way.
_FORMAT = "2"


def executable(program: Program, name: str) -> tuple[Any, bool, str]:
    """Return a lowered graph's executable, whether it came from disk (emitted too), and its key.

    Args:
        program: The lowered graph.
        name: For reports: which graph of which function.
    """
    begin = time.perf_counter()
    host_calls.register()
    text = program.module.text()
    key = Key({"program": text, **environment()})
    made: list[Any] = []

    def compile_and_serialize() -> bytes:
        ledger.emit(Compiling(name))
        try:
            made.append(xla.compile_module(text))
        finally:
            ledger.emit(Compiling(name, is_over=True))
        blob: bytes = made[0].serialize()
        return blob

    def load(blob: bytes) -> Any:
        register.record(key.name, blob)
        return made[0] if made else xla.load(blob)

    found, from_disk = user_cache().get_or_make(key, compile_and_serialize, load)
    seconds = time.perf_counter() - begin
    if from_disk:
        ledger.emit(CacheHit(name, key.name, seconds))
    else:
        ledger.emit(Compiled(name, key.name, seconds))
    return found, from_disk, key.name


def kept(key: str) -> Any:
    """Return the executable of this name if it is on disk, else None."""
    host_calls.register()

    def load(blob: bytes) -> Any:
        register.record(key, blob)
        return xla.load(blob)

    return user_cache().get(key, load)


def environment() -> dict[str, str]:
    """Return what an executable depends on besides its program, by name."""
    return {
        "compiler": xla.VERSION,
        "torch": torch.__version__,
        "machine": _machine(),
        "flags": repr(xla.FLAGS),
        "format": _FORMAT,
    }


@functools.cache
def _machine() -> str:
    """Return what machine code may depend on: XLA compiles for the CPU it runs on."""
    features = ""
    try:
        with open("/proc/cpuinfo") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        pass
    return f"{platform.machine()} {features}"
