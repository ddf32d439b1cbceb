"""Write a model as StableHLO: text, portable bytecode, HLO proto, parameters and metadata.

The model comes from a function of a Python file that takes nothing and returns the module (or a
function of tensors) and a tuple of example arguments.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from torchneuron.cli import output
from torchneuron.errors import ArgumentError

SUMMARY = "write a model as StableHLO and metadata"
EXAMPLES = """\
examples:
  torchneuron export model.py:build exported     build() returns (model, (x,))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the model is and where the files go."""
    parser.add_argument("source", metavar="FILE.py:FUNCTION", help="returns (model, args)")
    parser.add_argument("path", metavar="FOLDER", help="where to write; made if missing")


def run(options: argparse.Namespace) -> int:
    """Export and say what was written.

    Raises:
        ArgumentError: There is no such file or function, or it returns something else.
        CompileError: The model cannot be exported.
    """
    import torchneuron

    model, args = _built(options.source)
    folder = torchneuron.export(model, args, options.path)
    metadata = json.loads((folder / "metadata.json").read_text())
    files = {each.name: each.stat().st_size for each in sorted(folder.iterdir())}
    if options.json:
        content: dict[str, Any] = {"folder": str(folder), "files": files, "program": metadata}
        output.document("torchneuron.export/1", content)
        return 0
    output.data(output.columns([(name, f"{size} bytes") for name, size in files.items()]))
    num_inputs, num_outputs = len(metadata["inputs"]), len(metadata["outputs"])
    output.data(f"{num_inputs} inputs, {num_outputs} outputs, in {folder}")
    return 0


def _built(source: str) -> tuple[Any, Any]:
    """Run the user's function."""
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise ArgumentError(
            f"`{source}` names no Python file and function",
            hint="write FILE.py:FUNCTION, such as model.py:build",
        )
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} is no Python file", hint="its name ends with .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build = getattr(module, name, None)
    if not callable(build):
        raise ArgumentError(f"{path} has no function `{name}`", hint=f"define {name}() there")
    built = build()
    if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[1], tuple | list)):
        raise ArgumentError(
            f"{name}() returned a {type(built).__name__}, not (model, args)",
            hint="return model, (x,)",
        )
    return built
