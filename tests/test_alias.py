"""The alias torch_neuronx: one package under two names, absent where the real one is."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from textwrap import dedent
from typing import Any

import pytest

from behaviour.script import run_script
from device.forking import fork_server

Script = Callable[..., CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run a script in a process that has the device.

    With `packages`, names of empty packages, these are installed before the device is registered.
    """

    def run(source: str, packages: tuple[str, ...] = (), **options: Any) -> CompletedProcess[str]:
        for package in packages:
            folder = tmp_path / "installed" / package
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text("real = True\n")
        start = f"""
import sys, torch
sys.path.insert(0, {str(tmp_path / "installed")!r})
torch._import_device_backends()
"""
        server = fork_server(loaded=False)
        return server.run(start + dedent(source), tmp_path, **options)

    return run


def test_alias_is_the_package_itself(script: Script) -> None:
    script(
        """
        import sys, torch
        import torch_neuronx, torchneuron
        assert torch_neuronx is torchneuron
        assert torchneuron.__spec__.name == torchneuron.__name__ == "torchneuron"
        assert torch_neuronx.device_count() == 4
        import torch_neuronx.device.memory, torchneuron.device.memory
        assert sys.modules["torch_neuronx.device.memory"] is torchneuron.device.memory
        assert torchneuron.device.memory.__spec__.name == "torchneuron.device.memory"
        from torch_neuronx.device import streams
        assert streams.Stream is torch.neuron.Stream
        """
    )


def test_libraries_find_it_and_no_metadata(script: Script) -> None:
    script(
        """
        import importlib.metadata, importlib.util, sys, torch
        spec = importlib.util.find_spec("torch_neuronx")
        assert spec is not None and spec.name == "torch_neuronx"
        assert "torch_neuronx" not in sys.modules
        assert importlib.util.find_spec("torch_neuronx.device") is not None
        assert importlib.util.find_spec("torch_neuronx.nothing") is None
        try:
            importlib.metadata.version("torch_neuronx")
        except importlib.metadata.PackageNotFoundError:
            pass
        else:
            raise AssertionError
        """
    )


def test_absent_submodule_is_reported_under_its_name(script: Script) -> None:
    script(
        """
        import torch
        try:
            import torch_neuronx.nothing
        except ModuleNotFoundError as error:
            assert "torch_neuronx.nothing" in str(error)
        else:
            raise AssertionError
        """
    )


def test_before_torch_there_is_no_alias(tmp_path: Path) -> None:
    run_script(
        """
        try:
            import torch_neuronx
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError
        """,
        tmp_path,
    )


OFF = """
import importlib.util, torch
from torchneuron import alias, autoload
assert torch.neuron.is_available()
assert not alias.is_installed()
assert autoload.status().alias == {reason!r}, autoload.status().alias
"""


def test_alias_can_be_switched_off(script: Script) -> None:
    script(OFF.format(reason="TORCHNEURON_ALIAS=0"), env={"TORCHNEURON_ALIAS": "0"})


def test_no_alias_beside_torch_xla(script: Script) -> None:
    script(OFF.format(reason="torch_xla is installed"), packages=("torch_xla",))


def test_no_alias_beside_optimum_neuron(script: Script) -> None:
    packages = ("optimum", "optimum/neuron")
    script(OFF.format(reason="optimum-neuron is installed"), packages=packages)


def test_real_package_wins_when_it_appears_later(script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "later" / "torch_neuronx"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("real = True\n")
    script(
        f"""
        import sys, torch
        sys.path.insert(0, {str(folder.parent)!r})
        import torch_neuronx
        assert torch_neuronx.real
        """
    )
