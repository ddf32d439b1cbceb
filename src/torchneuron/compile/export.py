"""A model as files that other compilers read: `torchneuron.export`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind

from torchneuron.compile import artifacts
from torchneuron.errors import ArgumentError, CompileError
from torchneuron.lowering import decompose
from torchneuron.lowering.graph import LoweringError, lower, source_line

PARAMETERS = "parameters.pt"


def export(
    fn: nn.Module | Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model, or a function of tensors, as one StableHLO program.

    The folder gets `program.mlir` (text), `program.mlirbc` (portable bytecode), `program.hlo.pb`
    (HLO proto), `graph.txt` (the ATen graph), `parameters.pt` (parameters, buffers and constants
    by name, `torch.load` reads it) and `metadata.json`: for each input of the program its role
    (`parameter`, `buffer`, `constant` or `input`), name, shape and dtype, for each output its role
    (`output`, or `buffer` for the new value of a buffer that the model changes).

    Args:
        fn: A module or function; on any device. What it computes is not run.
        args: Example arguments; their shapes and dtypes are the program's.
        path: Folder to write to; made where it is missing.
        kwargs: Example keyword arguments.

    Returns:
        The folder.

    Raises:
        CompileError: The model is not one graph, or an operator has no lowering.
        ArgumentError: `args` is no sequence, or `path` is a file.

    Example:
        >>> torchneuron.export(model.eval(), (tokens,), "exported")

    Stability: E.
    """
    if not isinstance(args, tuple | list):
        raise ArgumentError(
            f"args is a {type(args).__name__}, not a tuple of arguments",
            hint="torchneuron.export(model, (x,), path)",
        )
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder} is a file", hint="name a folder; it is made if missing")
    program = _captured(fn, tuple(args), dict(kwargs or {}))
    graph = program.graph_module
    try:
        lowered = lower(graph)
    except LoweringError as error:
        file, line = source_line(error.node)
        where = f" at {file}:{line}" if file else ""
        raise CompileError(
            f"the model cannot be exported: {error}{where}",
            hint="a program has no eager parts; model.eval() leaves out dropout's random numbers",
        ) from error
    state, roles = _inputs(program)
    outputs = [_OUTPUT_ROLES.get(each.kind, "output") for each in _kept_outputs(program)]
    artifacts.write(folder, graph, lowered, {"roles": roles, "output_roles": outputs})
    torch.save(state, folder / PARAMETERS)
    return folder


_ROLES = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_OUTPUT_ROLES = {OutputKind.BUFFER_MUTATION: "buffer", OutputKind.USER_INPUT_MUTATION: "input"}


def _captured(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.export.ExportedProgram:
    module = fn if isinstance(fn, nn.Module) else _Function(fn)
    try:
        with warnings.catch_warnings():
            # torch.export copies a class of its own that it deprecates.
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            program = torch.export.export(module, args, kwargs, strict=False)
            return program.run_decompositions(decompose.with_composites())
    except Exception as error:
        raise CompileError(
            f"the model cannot be captured as one graph: {error}",
            hint="torch.compile(model, fullgraph=True) shows where it breaks",
        ) from error


class _Function(nn.Module):
    """Give a function the form that torch.export takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.function(*args, **kwargs)


def _inputs(
    program: torch.export.ExportedProgram,
) -> tuple[dict[str, torch.Tensor], list[dict[str, str]]]:
    """Return the tensors that the program is given beside its arguments, and each input's role."""
    state, roles = {}, []
    for spec in program.graph_signature.input_specs:
        role, name = _ROLES.get(spec.kind, "input"), spec.target or spec.arg.name
        if role != "input":
            source = program.constants if role == "constant" else program.state_dict
            value = source.get(name, program.constants.get(name))
            state[name] = value.detach().cpu()
        elif not _is_tensor(program, spec.arg.name):
            continue
        roles.append({"role": role, "name": name})
    return state, roles


def _is_tensor(program: torch.export.ExportedProgram, name: str) -> bool:
    nodes = program.graph.find_nodes(op="placeholder")
    return any(node.name == name and isinstance(node.meta["val"], torch.Tensor) for node in nodes)


def _kept_outputs(program: torch.export.ExportedProgram) -> list[Any]:
    """Return the specs of the outputs that are tensors."""
    [output] = program.graph.find_nodes(op="output")
    pairs = zip(output.args[0], program.graph_signature.output_specs, strict=True)
    return [spec for node, spec in pairs if isinstance(node, torch.fx.Node)]
