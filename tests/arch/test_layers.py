"""Who may import whom, and which single file may do what."""

import ast
import os
import re
import subprocess
import sys

import pytest

from arch.repository import PACKAGE, ROOT, Module, dotted, imported_names, modules

# The extension is reached through the device layer; the composition root loads it.
MAY_IMPORT_EXTENSION = re.compile(r"(device/.*|autoload)\.py")
# The command line, and the terminal line of the ledger's sink.
MAY_PRINT = {"cli/output.py", "device/progress.py"}
MAY_READ_ENVIRONMENT = {"config.py"}
MAY_PATCH_TORCH = {"device/patches.py", "autoload.py"}
MAY_REGISTER_WITH_TORCH = {"autoload.py"}
ENVIRONMENT = {"os.environ", "os.getenv", "os.putenv", "os.unsetenv", "os.environb"}
REGISTRATIONS = {
    "_register_device_module",
    "generate_methods_for_privateuse1_backend",
    "rename_privateuse1_backend",
}


def offences(allowed: set[str], find: object) -> list[str]:
    """Name every place in the package where `find(node)` holds, outside the allowed files."""
    assert callable(find)
    return [
        f"{module.path}:{node.lineno}"
        for module in modules()
        if module.path not in allowed
        for node in ast.walk(module.tree)
        if isinstance(node, ast.stmt | ast.expr) and find(node)
    ]


def test_import_contracts_hold() -> None:
    # In its own process: import-linter configures logging and disables every logger made before.
    command = [sys.executable, "-c", "from importlinter.cli import *; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def importers(prefix: str) -> set[str]:
    """Name the files of the package that import a module or what lies in it."""
    return {
        module.path
        for module in modules()
        for name, _ in imported_names(module.tree)
        if name == prefix or name.startswith(f"{prefix}.")
    }


def test_only_emit_builds_ir() -> None:
    assert all(path.startswith("lowering/emit/") for path in importers("jaxlib.mlir"))


def test_only_one_file_names_the_client_of_the_compiler() -> None:
    # emit loads it quietly and serializes modules with it
    allowed = {"runtime/xla.py", "lowering/emit/module.py", "lowering/emit/__init__.py"}
    assert importers("jaxlib._jax") <= allowed and "runtime/xla.py" in importers("jaxlib._jax")


def test_only_device_and_autoload_import_the_extension() -> None:
    found = [
        f"{module.path}:{line}"
        for module in modules()
        if not MAY_IMPORT_EXTENSION.fullmatch(module.path)
        for name, line in imported_names(module.tree)
        if name == "torchneuron._C" or name.startswith("torchneuron._C.")
    ]
    assert not found


def prints(node: ast.AST) -> bool:
    """Say whether a node writes to the terminal."""
    if isinstance(node, ast.Call) and dotted(node.func) == "print":
        return True
    return bool(re.fullmatch(r"sys\.(stdout|stderr)\.(write|writelines|buffer)", dotted(node)))


def test_only_the_output_module_prints() -> None:
    assert not offences(MAY_PRINT, prints)


def test_only_config_reads_the_environment() -> None:
    assert not offences(MAY_READ_ENVIRONMENT, lambda node: dotted(node) in ENVIRONMENT)


def patches_torch(node: ast.AST) -> bool:
    """Say whether a node replaces an attribute of torch."""
    if isinstance(node, ast.Call) and dotted(node.func) == "setattr":
        return dotted(node.args[0]).split(".")[0] == "torch"
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(
        isinstance(target, ast.Attribute) and dotted(target).split(".")[0] == "torch"
        for target in targets
    )


def test_torch_is_patched_in_one_file() -> None:
    assert not offences(MAY_PATCH_TORCH, patches_torch)


def test_the_device_is_registered_in_one_file() -> None:
    def registers(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in REGISTRATIONS

    assert not offences(MAY_REGISTER_WITH_TORCH, registers)


def test_kernels_are_registered_in_one_file() -> None:
    """Autocast is the exception: PyTorch's macros for its lists want a library of their own."""
    opens = re.compile(r"\bRegistrar(?: \w+)?\((?:c10::DispatchKey|kKey)|\bTORCH_LIBRARY")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "csrc").rglob("*")
        if path.suffix in {".cpp", ".h"} and opens.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"csrc/aten/register.cpp", "csrc/aten/autocast.cpp"} | {"csrc/aten/registrar.h"}


@pytest.mark.parametrize(("folder", "above"), [("core", "aten|python"), ("aten", "python")])
def test_cpp_folders_include_only_what_is_below(folder: str, above: str) -> None:
    pattern = re.compile(rf'#include "({above})/')
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "csrc" / folder).rglob("*")
        if path.is_file() and pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_importing_the_package_imports_no_torch() -> None:
    code = (
        "import sys, torchneuron, torchneuron.cli, torchneuron.chips, torchneuron.targets,"
        " torchneuron.config, torchneuron.errors, torchneuron.ledger;"
        " print(sorted(m for m in sys.modules if m in ('torch', 'numpy', 'jaxlib')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_planted_offence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse("import os\nprint(os.environ['A'])\ntorch.add = None\n")
    monkeypatch.setattr("arch.test_layers.modules", lambda: (Module("x.py", tree),))
    assert offences(set(), prints) == ["x.py:2"]
    assert offences(set(), lambda node: dotted(node) in ENVIRONMENT) == ["x.py:2"]
    assert offences(set(), patches_torch) == ["x.py:3"]
