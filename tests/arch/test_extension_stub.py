"""The hand-written stub of the extension and the built extension have the same names."""

import ast

from arch.repository import PACKAGE


def stub_names() -> set[str]:
    """List what the stub defines at its top level."""
    names = set()
    for node in ast.parse((PACKAGE / "_C.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_stub_and_extension_agree() -> None:
    import torch  # noqa: F401 (the extension links against its libraries)

    from torchneuron import _C

    built = {name for name in dir(_C) if not name.startswith("__")}
    assert stub_names() == built
