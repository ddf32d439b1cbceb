"""The table of patches: each does its work, checks its target, and can be taken back."""

import re
import sys
import threading
import types
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from subprocess import CompletedProcess

import numpy
import pytest
import torch

from torchneuron.device import patches


def states() -> dict[str, str]:
    return {row.name: row.state for row in patches.rows()}


def test_every_patch_is_applied_or_waits_for_its_module() -> None:
    waiting = {name for name, state in states().items() if state == "waiting"}
    assert not {row.name for row in patches.PATCHES if row.module in sys.modules} & waiting
    assert {state for name, state in states().items() if name not in waiting} == {"applied"}


def test_every_row_says_what_why_and_where() -> None:
    for row in patches.rows():
        assert row.target.partition(".")[0] in {"torch", "safetensors"}
        assert row.reason and re.search(r"\.(py|cpp|rs)\b", row.upstream)


def test_start_up_imports_no_heavy_module(fresh_script) -> None:
    fresh_script(
        """
        import sys, torch
        for name in ("torch._dynamo", "torch.nn.attention.flex_attention", "jaxlib", "jax"):
            assert name not in sys.modules, name
        """
    )


def test_dlpack_from_neuron_to_neuron_shares_memory() -> None:
    tensor = torch.arange(6.0, device="neuron:1").reshape(2, 3).t()
    assert tensor.__dlpack_device__() == (12, 1)
    other = torch.from_dlpack(tensor)
    assert other.device == tensor.device and other.stride() == tensor.stride()
    other[0, 0] = 9
    assert tensor[0, 0].item() == 9
    capsule = torch.utils.dlpack.to_dlpack(tensor)
    assert torch.equal(torch.from_dlpack(capsule), tensor)


def test_dlpack_toward_numpy_is_a_clear_error() -> None:
    tensor = torch.ones(2, device="neuron")
    with pytest.raises(BufferError, match=r"(?s)neuron:0.*hint: pass `tensor.cpu\(\)`"):
        numpy.from_dlpack(tensor)
    with pytest.raises(BufferError, match="another library"):
        tensor.__dlpack__()


def test_dlpack_of_other_devices_is_as_before() -> None:
    tensor = torch.ones(2)
    assert tensor.__dlpack_device__()[0] == 1
    assert numpy.from_dlpack(tensor).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="meta"):
        torch.ones(2, device="meta").__dlpack_device__()


@pytest.mark.parametrize("device_ids", [None, [0], [0, 1]])
def test_data_parallel_on_the_device_is_a_clear_error(device_ids) -> None:
    model = torch.nn.Linear(2, 2, device="neuron")
    x = torch.ones(4, 2, device="neuron")
    for call in (
        lambda: torch.nn.DataParallel(model, device_ids=device_ids)(x),
        lambda: torch.nn.parallel.data_parallel(model, x, device_ids),
    ):
        with pytest.raises(RuntimeError, match=r"(?s)neuron:0.*hint: .*DistributedDataParallel"):
            call()


def test_the_older_profiler_warns_once_and_profiles_the_host() -> None:
    with pytest.warns(UserWarning, match="hint: leave out `use_device`") as warned:
        profiler = torch.autograd.profiler.profile(use_device="neuron")
    assert len(warned) == 1 and warned[0].filename == __file__
    with profiler:
        torch.ones(3, device="neuron").cos()
    assert "aten::cos" in {event.name for event in profiler.function_events}


@pytest.mark.slow
def test_flex_attention_takes_neuron_tensors(fresh_script) -> None:
    fresh_script(
        """
        import torch
        from torch.nn.attention import flex_attention as module
        from torchneuron.device import patches
        assert {row.name: row.state for row in patches.rows()}["flex-attention"] == "applied"
        torch.manual_seed(0)
        q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
        expected = module.flex_attention(q, k, v)
        found = module.flex_attention(q.neuron(), k.neuron(), v.neuron())
        torch.testing.assert_close(found.cpu(), expected)
        try:
            module._validate_device(*(torch.ones(1, device="meta") for _ in range(3)))
        except ValueError:
            pass
        else:
            raise AssertionError
        """,
        timeout_s=240,
    )


def by_method(y: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    y.backward(gradient)
    return x.grad


def by_function(y: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    torch.autograd.backward(y, gradient)
    return x.grad


def by_grad(y: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(y, x, gradient)[0]


@pytest.mark.parametrize("differentiate", [by_method, by_function, by_grad])
def test_backward_as_the_first_act_of_a_thread(differentiate) -> None:
    x = torch.ones(3, device="neuron", requires_grad=True)
    y = x * 2
    gradient = torch.ones(3, device="neuron")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(differentiate(y, x, gradient)))
    thread.start()
    thread.join()
    assert seen[0].tolist() == [2.0, 2.0, 2.0]


def test_printing_a_tensor_formats_it_as_on_the_cpu() -> None:
    x = torch.linspace(-3, 4000, 2000)
    on_neuron = repr(x.neuron())
    assert on_neuron.replace(", device='neuron:0'", "") == repr(x)


def test_sending_a_tensor_to_another_process_is_a_clear_error() -> None:
    tensor = torch.ones(3, device="neuron")
    with pytest.raises(RuntimeError, match=r"(?s)neuron:0.*hint: send `tensor.cpu\(\)`"):
        ForkingPickler.dumps(tensor)
    assert tensor.share_memory_() is tensor
    assert len(ForkingPickler.dumps(torch.ones(3))) > 0


def test_safetensors_takes_neuron_devices(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    file = tmp_path / "tensors.safetensors"
    safetensors.save_file({"x": torch.arange(3.0)}, file)
    torch.neuron.set_device(2)
    for device, index in (("neuron:1", 1), (torch.device("neuron", 3), 3), ("neuron", 2)):
        loaded = safetensors.load_file(file, device=device)["x"]
        assert loaded.device.index == index and loaded.tolist() == [0.0, 1.0, 2.0]
    assert safetensors.load_file(file)["x"].device.type == "cpu"


def test_scripting_cpu_autocast_works_as_before(script) -> None:
    script(
        """
        import warnings, torch
        warnings.simplefilter("ignore")

        def product(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x

        assert torch.jit.script(product)(torch.ones(2, 2)).dtype == torch.bfloat16
        """
    )


def test_a_patch_can_be_undone_and_applied_again() -> None:
    patched = torch.Tensor.__dlpack_device__
    patches.undo("dlpack-device")
    assert states()["dlpack-device"] == "undone"
    with pytest.raises(ValueError, match="Unknown device type"):
        torch.ones(1, device="neuron").__dlpack_device__()
    patches.apply()
    assert states()["dlpack-device"] == "applied"
    assert torch.Tensor.__dlpack_device__ is not patched
    assert torch.ones(1, device="neuron").__dlpack_device__() == (12, 0)


def test_undo_leaves_a_later_patch_of_somebody_else_alone(monkeypatch) -> None:
    mine = lambda self: "mine"  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "__dlpack_device__", mine)
    patches.undo("dlpack-device")
    assert torch.Tensor.__dlpack_device__ is mine
    assert states()["dlpack-device"] == "applied"


def stand_in(target: object, signature: str = "query key value") -> patches.Patch:
    module = types.ModuleType("torch_stand_in")
    if target is not None:
        module.target = target
    sys.modules["torch_stand_in"] = module
    return patches.Patch(
        "stand-in", "torch_stand_in", "target", "why", "where:1", signature, lambda f: f
    )


@pytest.mark.parametrize(
    ("target", "why"), [(None, "no attribute 'target'"), (lambda query: None, "it takes (query)")]
)
def test_a_target_that_looks_otherwise_is_left_alone(monkeypatch, target, why: str) -> None:
    patch = stand_in(target)
    monkeypatch.setattr(patches, "PATCHES", (patch,))
    patches.apply()
    assert patch.state.startswith("skipped: ") and why in patch.state
    assert getattr(sys.modules.pop("torch_stand_in"), "target", None) is target


def test_a_patch_can_be_switched_off(monkeypatch) -> None:
    patch = stand_in(lambda query, key, value: None)
    monkeypatch.setattr(patches, "PATCHES", (patch,))
    patches.apply(skip=frozenset({"stand-in"}))
    assert patch.state == "skipped: switched off"


def test_compiled_cpu_functions_ask_for_no_stream_of_an_unused_device(
    script: Callable[..., CompletedProcess[str]],
) -> None:
    script(
        """
        import torch

        asked = []
        current_stream = torch.accelerator.current_stream
        torch.accelerator.current_stream = lambda *a: asked.append(a) or current_stream(*a)
        compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
        for _ in range(3):
            compiled(torch.ones(3))
        assert not asked, asked
        """
    )
