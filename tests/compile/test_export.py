"""`torchneuron.export`, preserved programs, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxlib import _jax, xla_client
from torch import nn

import torchneuron
from torchneuron.cli import main
from torchneuron.compile import artifacts
from torchneuron.errors import ArgumentError, CompileError
from torchneuron.lowering.emit.types import context
from torchneuron.runtime import xla

FILES = {
    "graph.txt",
    "metadata.json",
    "parameters.pt",
    "program.hlo.pb",
    "program.mlir",
    "program.mlirbc",
}


def run(folder: Path, arguments: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run an exported program from its portable bytecode, its parameters and these arguments."""
    metadata = json.loads((folder / "metadata.json").read_text())
    state = torch.load(folder / "parameters.pt")
    with context() as at:
        bytecode = (folder / "program.mlirbc").read_bytes()
        module = _jax.mlir.deserialize_portable_artifact(bytecode, at)
        executable = xla.compile_module(str(module))
    rest = iter(arguments)
    given = [
        next(rest) if each["role"] == "input" else state[each["name"]] for each in metadata["roles"]
    ]
    for each, spec in zip(given, metadata["inputs"], strict=True):
        assert list(each.shape) == spec["shape"]
        assert str(each.dtype) == f"torch.{spec['dtype']}"
    buffers = [xla.import_dlpack(torch._C._to_dlpack(each.cpu().contiguous())) for each in given]
    return [torch.from_dlpack(xla.export_dlpack(each, None)) for each in executable(buffers)]


class Net(nn.Module):
    """A convolution, batch norm with its buffers, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, 3, H, W) to (N, 4, H - 2, W - 2)."""
        return self.norm(self.conv(x)) * torch.tensor(2.0)


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_an_exported_model_computes_the_same(device: str, tmp_path: Path) -> None:
    model, x = Net().eval().to(device), torch.randn(2, 3, 8, 8).to(device)
    folder = torchneuron.export(model, (x,), tmp_path / "made" / "here")
    assert {each.name for each in folder.iterdir()} == FILES
    [made] = run(folder, [x])
    torch.testing.assert_close(made, model.cpu()(x.cpu()), atol=1e-5, rtol=1e-5)
    assert "custom_call" not in (folder / "program.mlir").read_text()
    assert "conv.py" in (folder / "program.mlir").read_text(), "operations name their source"


def test_new_values_of_buffers_are_outputs(tmp_path: Path) -> None:
    model, x = Net().train(), torch.randn(2, 3, 8, 8)
    folder = torchneuron.export(model, (x,), tmp_path)
    roles = json.loads((folder / "metadata.json").read_text())["output_roles"]
    made = dict(zip(roles, run(folder, [x]), strict=False))
    assert roles.count("buffer") == 3
    assert roles.count("output") == 1
    torch.testing.assert_close(made["output"], model(x), atol=1e-4, rtol=1e-4)


def test_a_function_with_keywords_and_numbers(tmp_path: Path) -> None:
    def shifted(x: torch.Tensor, by: int, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"made": x * scale + by}

    x, scale = torch.randn(3), torch.tensor(2.0)
    folder = torchneuron.export(shifted, (x, 4), tmp_path, kwargs={"scale": scale})
    [made] = run(folder, [x, scale])
    torch.testing.assert_close(made, x * 2 + 4)


def test_hlo_proto_is_one(tmp_path: Path) -> None:
    folder = torchneuron.export(torch.sin, (torch.randn(3),), tmp_path)
    text = xla_client.XlaComputation((folder / "program.hlo.pb").read_bytes()).as_hlo_text()
    assert "f32[3]{0} sine(" in text


@pytest.mark.parametrize(
    ("fn", "args", "error", "message"),
    [
        (nn.Dropout(), (torch.ones(3),), CompileError, "cannot be exported"),
        (torch.nonzero, (torch.ones(3),), CompileError, "cannot be exported"),
        (lambda x: x if x.sum() > 0 else -x, (torch.ones(3),), CompileError, "one graph"),
        (torch.sin, torch.ones(3), ArgumentError, "args is a Tensor"),
    ],
)
def test_what_cannot_be_exported_is_said(
    fn: Callable[..., Any], args: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as raised:
        torchneuron.export(fn, args, tmp_path / "x")
    assert "hint:" in str(raised.value)
    assert not (tmp_path / "x").exists()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ArgumentError, match="is a file"):
        torchneuron.export(torch.sin, (torch.ones(3),), tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


SOURCE = """
import torch
def build():
    return torch.nn.Linear(4, 2), (torch.ones(3, 4),)
def wrong():
    return 5
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(SOURCE)
    folder = tmp_path / "out"
    assert main(["export", f"{tmp_path}/model.py:build", str(folder)]) == 0
    assert "3 inputs, 1 outputs" in capsys.readouterr().out
    assert {each.name for each in folder.iterdir()} == FILES
    assert main(["export", "--json", f"{tmp_path}/model.py:build", str(folder)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchneuron.export/1"
    assert set(document["files"]) == FILES


@pytest.mark.parametrize(
    "source", ["nothing.py:build", "model.py", "model.py:no", "model.py:wrong"]
)
def test_the_command_says_what_is_wrong(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(SOURCE)
    assert main(["export", source, "out"]) == 2
    assert "hint:" in capsys.readouterr().err


def compiled_once(**options: Any) -> None:
    """Compile a function that no other test compiles."""
    function = torch.compile(lambda x: x * 3 + 1, backend="neuron", options=options)
    function(torch.ones(5, device="neuron"))


@pytest.mark.parametrize("by", ["option", "variable"])
def test_programs_are_kept_on_request(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "debug"))
    if by == "variable":
        monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
        compiled_once(model_name="mine")
    else:
        compiled_once(model_name="mine", preserve_artifacts=True)
    [folder] = (tmp_path / "debug").iterdir()
    assert folder.name.startswith("mine.fused_0-")
    assert {each.name for each in folder.iterdir()} == FILES - {"parameters.pt"}
    assert "custom_call" not in (folder / "program.mlir").read_text()
    assert json.loads((folder / "metadata.json").read_text())["name"] == "mine.fused_0"


def test_programs_are_not_kept_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "debug"))
    compiled_once()
    assert not (tmp_path / "debug").exists()


def test_an_unwritable_debug_directory_is_said_and_the_result_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "debug").write_text("a file")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "debug"))
    monkeypatch.setattr(artifacts, "_unwritable", set())
    for _ in range(2):
        compiled_once(preserve_artifacts=True)
    assert caplog.text.count("programs cannot be kept in") == 1
    assert "TORCH_NEURONX_DEBUG_DIR" in caplog.text
