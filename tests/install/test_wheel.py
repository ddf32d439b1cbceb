"""A wheel installs into an environment that has torch, works there, and leaves it as it was."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
USE = """
import torch
assert torch.ones(2, device="neuron").sum().item() == 2
assert torch.compile(lambda x: x + 1)(torch.ones(2, device="neuron")).tolist() == [2, 2]
import torchneuron
print(torchneuron.__file__)
"""
WITHOUT = """
import torch
assert torch.accelerator.current_accelerator() is None
assert (torch.ones(2) + 1).sum().item() == 4
try:
    torch.ones(1, device="neuron")
except RuntimeError:
    print("no device")
"""


BUILD = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")
OTHER_TORCH = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
torch.__version__ = "2.12.1+cpu"
"""


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command, its output captured."""
    return subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with everything that is installed here but this package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    installed = Path(torch.__file__).parents[1]
    for entry in installed.iterdir():
        if "torchneuron" not in entry.name and entry.name != "pip":
            (site / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel that `make wheel` builds; the objects of the normal build serve for it."""
    folder = tmp_path_factory.mktemp("dist")
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)]
    done = run(*command, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("torchneuron-*.whl")
    yield built


@pytest.mark.slow
def test_install_use_uninstall(environment: Path, wheel: Path, tmp_path: Path) -> None:
    python = str(environment / "bin" / "python")
    before = {path.name for path in environment.glob("lib/python*/site-packages/*")}
    pip = [sys.executable, "-m", "pip", "--python", python]
    done = run(*pip, "install", "--quiet", "--no-deps", str(wheel))
    assert done.returncode == 0, done.stderr
    used = run(python, "-c", USE, cwd=tmp_path, TORCHNEURON_CACHE_DIR=str(tmp_path))
    assert used.returncode == 0 and str(environment) in used.stdout, used.stderr
    assert run(str(environment / "bin" / "torchneuron"), "doctor").returncode == 0

    done = run(*pip, "uninstall", "--quiet", "--yes", "torchneuron")
    assert done.returncode == 0, done.stderr
    left = run(python, "-c", WITHOUT, cwd=tmp_path)
    assert left.returncode == 0 and left.stdout == "no device\n", left.stderr
    assert {path.name for path in environment.glob("lib/python*/site-packages/*")} == before


@pytest.mark.parametrize("variable", ["CXX", "PATH"])
def test_a_missing_compiler_is_named_before_the_build(variable: str, tmp_path: Path) -> None:
    value = "no-such-compiler" if variable == "CXX" else str(tmp_path)
    done = run(*BUILD, **{variable: value})
    assert done.returncode != 0
    assert "no C++ compiler" in done.stderr and "hint: apt-get install g++" in done.stderr


def test_another_torch_is_named_before_the_build(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_TORCH)
    done = run(*BUILD, PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert "builds against torch 2.13.0, the build environment has 2.12.1" in done.stderr
    assert "hint: pip install torch==2.13.0" in done.stderr
