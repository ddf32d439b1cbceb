"""Beside another backend for PyTorch's one outside device: we give way, in either order."""

import functools
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from device.forking import fork_server

Script = Callable[..., CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run a script in a process that has torch and has loaded no backend yet."""
    return functools.partial(fork_server(loaded=False).run, folder=tmp_path)


def test_a_renamed_slot_is_left_alone(script: Script) -> None:
    process = script(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        from torchneuron import autoload
        autoload.autoload()
        assert autoload.status().state == "aside"
        assert not hasattr(torch, "neuron")
        """
    )
    assert process.stderr.count("stands aside") == 1 and "`other`" in process.stderr
    assert "hint: " in process.stderr


OTHER_BACKEND = """
import types, torch
def start():
    torch.utils.rename_privateuse1_backend("other")
    torch._register_device_module("other", types.ModuleType("other"))
"""


def install_backend(folder: Path, module: str, source: str) -> None:
    """Write a distribution with an entry point in `torch.backends` to a folder of sys.path."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torch.backends]\nother = {module}:start\n")


BESIDE = """
import torch
torch._import_device_backends()
from torchneuron import autoload
print(autoload.status().state, torch._C._get_privateuse1_backend_name())
print(torch.ones(2).sum().item())
"""


@pytest.mark.parametrize("order", ["first", "last"])
def test_another_backend_is_given_way(script: Script, tmp_path: Path, order: str) -> None:
    process = script(beside(order, tmp_path))
    assert process.stdout.splitlines() == ["aside other", "2.0"]
    assert process.stderr.count("stands aside") == 1 and "`other` (other_backend)" in process.stderr


@pytest.mark.parametrize(("order", "winner"), [("first", "other"), ("last", "neuron")])
def test_preferred_takes_the_slot_if_it_is_free(
    script: Script, tmp_path: Path, order: str, winner: str
) -> None:
    process = script(beside(order, tmp_path), env={"TORCHNEURON_PREFER": "1"})
    state = "registered" if winner == "neuron" else "aside"
    assert process.stdout.splitlines() == [f"{state} {winner}", "2.0"]
    assert process.stderr.count("stands aside") == (winner == "other")


def beside(order: str, tmp_path: Path) -> str:
    """Install another backend and return a script in which PyTorch meets it first or last."""
    install_backend(tmp_path / "installed", "other_backend", OTHER_BACKEND)
    key = 0 if order == "first" else 1
    return (
        f"""
import sys
sys.path.insert(0, {str(tmp_path / "installed")!r})
import importlib.metadata as metadata
original = metadata.entry_points
def entry_points(**parameters):
    found = original(**parameters)
    if parameters.get("group") != "torch.backends":
        return found
    ours = [each for each in found if each.module.startswith("torchneuron")][:1]
    others = [each for each in found if not each.module.startswith("torchneuron")]
    return metadata.EntryPoints(others + ours if {key} == 0 else ours + others)
metadata.entry_points = entry_points
"""
        + BESIDE
    )


def test_a_name_that_needs_the_device_says_who_has_the_slot(script: Script, tmp_path: Path) -> None:
    source = beside("last", tmp_path) + "import torchneuron; torchneuron.Stream"
    process = script(source, returncode=1)
    assert "InstallError" in process.stderr and "`other` (other_backend)" in process.stderr
    assert process.stderr.count("RuntimeWarning") == 1


def test_a_real_torch_neuronx_is_given_way(script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "installed" / "torch_neuronx"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("real = True\n")
    process = script(
        f"import sys; sys.path.insert(0, {str(folder.parent)!r})\n"
        + BESIDE
        + "import torch_neuronx\nassert torch_neuronx.real"
    )
    assert process.stdout.splitlines()[0] == "aside privateuseone"
    assert (
        process.stderr.count("stands aside") == 1 and "torch_neuronx is installed" in process.stderr
    )
