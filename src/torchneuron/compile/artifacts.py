"""The files that describe one program: the graph, the StableHLO in three forms, what goes in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx

import torchneuron
from torchneuron import config, ledger
from torchneuron.ledger import Notice
from torchneuron.lowering.emit.module import PORTABLE_VERSION
from torchneuron.lowering.graph import Program, Sizes, TensorSpec, lower
from torchneuron.runtime import xla

SCHEMA = "torchneuron.program/1"


def write(
    folder: Path, graph: fx.GraphModule, program: Program, more: Mapping[str, Any] | None = None
) -> None:
    """Write a program's files into a folder, which is made where it is missing.

    `graph.txt` is the ATen graph, `program.mlir` StableHLO as text with source lines,
    `program.mlirbc` StableHLO's portable bytecode, `program.hlo.pb` the HLO proto, and
    `metadata.json` says shapes, dtypes and versions.

    Args:
        folder: Where to.
        graph: What was lowered.
        program: Lowered without calls of this machine: it is what a chip's compiler takes.
        more: Entries for `metadata.json` beside its own.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    metadata = {
        "schema": SCHEMA,
        "inputs": [_described(each) for each in program.inputs],
        "outputs": [_described(each) for each in program.outputs],
        "stablehlo": PORTABLE_VERSION,
        "torchneuron": torchneuron.__version__,
        "torch": torch.__version__,
        "compiler": xla.VERSION,
        **(more or {}),
    }
    (folder / "graph.txt").write_text(graph.print_readable(print_output=False))
    (folder / "program.mlir").write_text(program.module.text(with_places=True))
    (folder / "program.mlirbc").write_bytes(program.module.portable())
    (folder / "program.hlo.pb").write_bytes(program.module.hlo_proto())
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")


def preserve(graph: fx.GraphModule, sizes: Sizes, name: str, key: str) -> None:
    """Keep a program's files in the debug directory; a folder that cannot be written is said once.

    Args:
        graph: What the program was lowered from.
        sizes: Of the program.
        name: Of the graph and its part.
        key: Of the program in the cache; the folder's name ends with it.
    """
    folder = Path(config.load().debug_dir) / f"{name}-{key[:12]}"
    try:
        write(folder, graph, lower(graph, sizes), {"name": name, "cache_key": key})
    except OSError as error:
        _say_unwritable(str(folder.parent), str(error))


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"shape": list(spec.shape), "dtype": str(spec.dtype).removeprefix("torch.")}


_unwritable: set[str] = set()


def _say_unwritable(folder: str, reason: str) -> None:
    if folder not in _unwritable:
        _unwritable.add(folder)
        ledger.emit(
            Notice(
                "torch.compile",
                f"programs cannot be kept in {folder}: {reason}",
                hint="set TORCH_NEURONX_DEBUG_DIR to a folder of yours",
            )
        )
