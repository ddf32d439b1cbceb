"""Section E, hard-coded CUDA, detection, import and version problems."""

import itertools
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from behaviour.subject import (
    DEVICE,
    FIRST,
    SECOND,
    assert_runs_the_same,
    assert_same,
    moved,
    with_gradients,
)

Script = Callable[..., CompletedProcess[str]]


@pytest.fixture
def second_device() -> Any:
    """Make neuron:1 the current device for one test."""
    torch.accelerator.set_device_index(1)
    yield
    torch.accelerator.set_device_index(0)


def test_e01_an_integer_means_this_device() -> None:
    """Ascend/pytorch #16: `.to(0)` was taken for a CUDA device."""
    x = torch.ones(2)
    for place in (x.to(0), torch.zeros(1, device=0), x.to(torch.device(0)), x.to("neuron")):
        assert str(place.device) == FIRST
        assert place.get_device() == 0
    assert str(x.to(1).device) == SECOND
    assert x.to(1).get_device() == 1
    assert str(nn.Linear(2, 2).to(1).weight.device) == SECOND
    assert torch.device(0) == torch.device(FIRST)
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="device"):
            x.to(device).to("0")


def broken_extension(error: str) -> str:
    """Write script lines that make loading our extension raise an error."""
    return f"""
        import importlib.abc, sys, warnings

        class Broken(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name == "torchneuron._C":
                    raise {error}

        sys.meta_path.insert(0, Broken())
        """


def test_e04_a_broken_device_is_reported(script: Script) -> None:
    """vllm-project/vllm #48277, PR #48326: an import error was swallowed, the CPU used instead."""
    source = broken_extension("ImportError('libmissing.so.7: cannot open shared object file')")
    process = script(
        source
        + """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
        said = [str(w.message) for w in caught if "torchneuron" in str(w.message).lower()]
        assert len(said) == 1, said
        assert "libmissing.so.7" in said[0], said
        assert torch.ones(2).sum().item() == 2
        try:
            torch.ones(2, device="neuron")
        except RuntimeError as error:
            print("refused:", error)
        """
    )
    assert "refused:" in process.stdout


def test_e05_integer_indices_select_the_current_device(second_device: Any) -> None:
    """vllm-project/speculators #775: a library took an integer index and assumed CUDA."""
    assert torch.accelerator.current_device_index() == 1
    assert str(torch.ones(1, device=DEVICE).device) == SECOND
    assert str(torch.ones(1).to(DEVICE).device) == SECOND
    assert str(torch.ones(1).to(2).device) == "neuron:2"
    with torch.accelerator.device_index(3):
        assert str(torch.ones(1, device=DEVICE).device) == "neuron:3"
    assert torch.neuron.current_device() == 1
    torch.accelerator.set_device_index("neuron:0")
    assert torch.neuron.current_device() == 0


class AddScaled(nn.Module):
    """A block whose inputs may be numbers or CPU tensors and whose weight is on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, number: float, bias: torch.Tensor | None) -> torch.Tensor:
        result = (self.weight * number).sin()
        return result if bias is None else result + bias.to(result.device)


@pytest.mark.parametrize("reentrant", [True, False])
def test_e07_checkpoint_finds_the_device_without_device_inputs(reentrant: bool) -> None:
    """pytorch/pytorch #128478, #128671, PR #196951: backward went looking for CUDA."""
    net = AddScaled()
    bias = torch.randn(4, requires_grad=True)

    def run(net: nn.Module, bias: torch.Tensor) -> torch.Tensor:
        on_cpu = bias.detach().cpu().requires_grad_()
        numbers: Any = (2.0, on_cpu) if reentrant else (2.0, None)
        return checkpoint(net, *numbers, use_reentrant=reentrant) + bias

    assert_runs_the_same(with_gradients(run), net, bias)


def test_e10_import_order_does_not_matter(script: Script) -> None:
    """pytorch/pytorch #127228, #145611: autoloading failed in some orders of import."""
    process = script(
        """
        import os, threading

        def fork(action):
            pid = os.fork()
            if pid == 0:
                try:
                    action()
                    import torch
                    assert torch.ones(2, device="neuron").sum().item() == 2
                    assert str(torch.accelerator.current_accelerator()) == "neuron"
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0, action

        def ours_first():
            import torchneuron
            import torch

        def torch_first():
            import torch
            import torchneuron
            assert torchneuron.__version__

        def in_a_thread():
            failures = []
            def load():
                try:
                    import torch
                    torch.ones(1, device="neuron")
                except BaseException as error:
                    failures.append(error)
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()
            assert not failures, failures

        def submodule_first():
            import torchneuron.errors
            import torchneuron.config

        for action in (ours_first, torch_first, in_a_thread, submodule_first):
            fork(action)
        print("four orders")
        """,
        flags=("-W", "error"),
    )
    assert "four orders" in process.stdout
    assert not process.stderr


def test_e11_the_root_cause_of_a_failed_import_is_shown(script: Script) -> None:
    """torch-spyre/torch-spyre #2925, #3659: a circular import hid what had gone wrong."""
    process = script(
        broken_extension("OSError('the disk went away')")
        + """
        import torch
        import traceback

        print(torch.arange(3).sum().item())
        try:
            import torchneuron
            torchneuron.memory_allocated()
        except Exception:
            traceback.print_exc()
        """,
    )
    assert process.stdout.strip() == "3"
    assert process.stderr.count("the disk went away") >= 2
    assert "circular import" not in process.stderr


OTHER_BACKEND = """
import types
import torch

def load():
    torch.utils.rename_privateuse1_backend("other")
    torch._register_device_module("other", types.ModuleType("torch.other"))
"""


def install_other_backend(folder: Path) -> None:
    """Write a second out-of-tree device as an installed distribution into a folder."""
    folder.mkdir()
    (folder / "other_backend.py").write_text(OTHER_BACKEND, encoding="utf-8")
    info = folder / "other_backend-1.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: other-backend\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = "[torch.backends]\nother = other_backend:load\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


@pytest.mark.parametrize("place", ["insert(0, 'other')", "append('other')"])
def test_e13_a_second_backend_gets_the_device(place: str, script: Script, tmp_path: Path) -> None:
    """pytorch/pytorch #180345, #186473, #133288, flagos-ai/Torch-FL #11: the second one failed."""
    install_other_backend(tmp_path / "other")
    process = script(
        f"""
        import sys, warnings
        sys.path.{place}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
        said = [str(w.message) for w in caught if "torchneuron" in str(w.message).lower()]
        assert len(said) == 1, [str(w.message) for w in caught]
        assert "other" in said[0] and "TORCHNEURON_PREFER" in said[0], said
        assert torch._C._get_privateuse1_backend_name() == "other"
        assert torch.ones(3).sum().item() == 3
        print("stood aside")
        """
    )
    assert "stood aside" in process.stdout


@pytest.mark.parametrize(
    "off", [{"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, {"TORCHNEURON": "0"}], ids=str
)
def test_e14_no_trace_of_us_when_turned_off(off: dict[str, str], script: Script) -> None:
    """pytorch/xla #9730: renaming PrivateUse1 broke `torch.accelerator` for others."""
    script(
        """
        import sys
        import torch

        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert torch.accelerator.current_accelerator() is None
        assert not hasattr(torch, "neuron")
        assert "torchneuron._C" not in sys.modules
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0] * 3
        """,
        env=off,
    )


def test_e14_cpu_inductor_works_beside_us(script: Script) -> None:
    """pytorch/xla #9730: Inductor for the CPU broke once the other device was loaded."""
    process = script(
        """
        import torch

        assert torch.accelerator.current_accelerator().type == "neuron"

        def f(x, y):
            return (x.sin() * y).sum()

        x, y = torch.randn(40, requires_grad=True), torch.randn(40)
        result = torch.compile(f)(x, y)
        result.backward()
        torch.testing.assert_close(result, f(x, y))
        torch.testing.assert_close(x.grad, x.cos() * y)
        print("compiled for", result.device)
        """
    )
    assert "compiled for cpu" in process.stdout


def test_e16_shared_native_operators_take_this_device() -> None:
    """pytorch/pytorch PR #176825: these operators checked for a fixed list of devices."""
    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)

    def distances(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        modes = ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
        found = [torch.cdist(x, y, p, m) for p, m in itertools.product((1.0, 2.0, 3.0), modes)]
        return [*found, torch.pdist(x), torch.cdist(x[None], y[None]), x.std(1), x.var(0)]

    assert_runs_the_same(with_gradients(distances), x, y)

    def outputs(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        out = x.new_empty(4)
        torch.std(x, 1, out=out)
        other = torch.var(x, dim=1, correction=0, out=x.new_empty(0))
        index = torch.tensor([0, 2, 2], device=x.device)
        put = torch.index_put(x, (index,), y[:3], accumulate=True)
        put.index_put_((index, index), y[:3, 0])
        return [out, other, *torch.std_mean(x), *torch.var_mean(x, 0), put, x.put(index, y[:3, 0])]

    assert_runs_the_same(outputs, x.detach(), y.detach())
    x, y = moved((x, y))
    with pytest.raises(RuntimeError) as caught:
        torch.cdist(x, y[:, :2])
    assert "CUDA" not in str(caught.value)
    assert_same(torch.ops.aten._cdist_forward(x, y, 2.0, None).detach(), torch.cdist(x, y).cpu())
