"""What the architecture tests read: the files of the repository and their syntax trees."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "torchneuron"
TEXT_SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".sh", ".md", ".toml", ".yaml", ".yml", ".json"}
CODE_SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".sh"}
FOLDERS = ("csrc", "src", "tests", "examples", "benchmarks", "tools", "docs", "changelog")


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of the package: its path below the package and its syntax tree."""

    path: str
    tree: ast.Module


def relative(path: Path) -> str:
    """Give a path below the repository's root, with forward slashes."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text_files() -> tuple[Path, ...]:
    """List the text files that people write: the folders and what stands beside them."""
    found = {path for path in ROOT.iterdir() if path.is_file() and path.name != "LICENSE"}
    found |= {path for folder in (".ci", ".devcontainer") for path in (ROOT / folder).iterdir()}
    for folder in FOLDERS:
        found |= {path for path in (ROOT / folder).rglob("*") if path.suffix in TEXT_SUFFIXES}
    return tuple(sorted(path for path in found if path.is_file() and path.suffix != ".so"))


@functools.cache
def modules() -> tuple[Module, ...]:
    """Parse every Python file of the package."""
    return tuple(
        Module(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    )


def dotted(node: ast.AST) -> str:
    """Give `a.b.c` for a name or attribute, and an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def imported_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every imported dotted name with its line; `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
