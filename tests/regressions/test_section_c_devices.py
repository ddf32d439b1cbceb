"""Section C, what else in PyTorch compiles or traces: Inductor, fake tensors, export, repros."""

import copy
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torchneuron
from behaviour.compiling import assert_close, num_programs
from behaviour.script import environment
from behaviour.subject import DEVICE, FIRST, SECOND, moved

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """Collect the graphs that reach Inductor, which here runs them as they are."""
    seen: list[torch.fx.GraphModule] = []

    def compile_fx(graph: torch.fx.GraphModule, *_: object, **__: object) -> Any:
        seen.append(graph)
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    return seen


def test_c13_cpu_graphs_stay_with_inductor(inductor: list[torch.fx.GraphModule]) -> None:
    """pytorch-labs/tritonbench #1148: a patched torch.compile broke tensors on the CPU."""
    net = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    with torchneuron.explain() as report:
        torch.testing.assert_close(torch.compile(net)(x), net(x))
        assert torch.compile(lambda: torch.ones(2) * 3)().tolist() == [3, 3]
        array = torch.compile(lambda a: numpy.sin(a) + 1)(numpy.zeros(3))
        assert isinstance(array, numpy.ndarray) and array.tolist() == [1, 1, 1]
    assert len(inductor) == 3 and num_programs(report) == 0


def test_c13_functions_without_tensors_are_left_alone(
    inductor: list[torch.fx.GraphModule],
) -> None:
    """pytorch-labs/tritonbench #1148: the same for functions that compute no tensor at all."""
    with torchneuron.explain() as report:
        assert torch.compile(lambda n: [n + 1, "text"])(2) == [3, "text"]
        assert torch.compile(lambda: None)() is None
    assert not inductor and num_programs(report) == 0


def test_c13_a_graph_of_both_devices_keeps_each_result_where_it_is(
    inductor: list[torch.fx.GraphModule],
) -> None:
    """pytorch-labs/tritonbench #1148: one graph with CPU tensors and tensors of the device."""

    def fn(host: torch.Tensor, device: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return host * 2, device * 3, device.cpu() + host, host.to(device.device) + device

    x = torch.randn(4)
    with torchneuron.explain() as report:
        results = torch.compile(fn)(x, x.to(DEVICE))
    expected = fn(x, x)
    assert [each.device.type for each in results] == ["cpu", DEVICE, "cpu", DEVICE]
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert num_programs(report) > 0 and not inductor


def test_c14_dynamo_knows_the_device() -> None:
    """pytorch/pytorch #189138: the registry of device interfaces was closed to outside devices."""
    from torch._dynamo.device_interface import DeviceGuard, get_interface_for_device

    interface = get_interface_for_device(DEVICE)
    for spelled in (FIRST, SECOND, torch.device(SECOND)):
        assert get_interface_for_device(spelled) is interface
    assert interface.is_available() and interface.device_count() == torch.neuron.device_count()
    assert interface.is_bf16_supported() and interface.is_dtype_supported(torch.bfloat16)
    assert interface.get_compute_capability() == torch.neuron.get_device_capability()
    properties = interface.Worker.get_device_properties(SECOND)
    assert properties == torch.neuron.get_device_properties(1) and properties.emulated
    assert not interface.is_triton_capable()
    before = interface.current_device()
    with DeviceGuard(interface, 1):
        assert interface.current_device() == interface.Worker.current_device() == 1
    assert interface.current_device() == before
    interface.synchronize()
    assert interface.memory_allocated() == torch.neuron.memory_allocated()


def test_c14_a_compiled_function_may_ask_about_the_device() -> None:
    """pytorch/pytorch #189138: a question about the device must not break the graph."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        if torch.neuron.is_available() and torch.accelerator.current_device_index() == 0:
            x = x * torch.neuron.device_count()
        if torch.neuron.is_bf16_supported() and "emulated" in torch.neuron.get_device_name():
            x = x + torch.neuron.get_device_capability()[0]
        return x

    x = torch.ones(2, device=FIRST)
    expected = fn(x).tolist()
    stream = torch.neuron.Stream()
    with torch.neuron.stream(stream):
        found = torch.compile(fn, backend="neuron", fullgraph=True)(x)
    torch.neuron.current_stream().wait_stream(stream)
    assert found.tolist() == expected == [torch.neuron.device_count() + 3] * 2


# Takes its sizes from a tensor that must be on the CPU, and the database puts it on the device.
SIZES_ON_HOST = {"tensor_split"}


@pytest.mark.filterwarnings("ignore")
def test_c19_fake_tensors_of_the_device_stay_on_it() -> None:
    """pytorch/pytorch #101245, #101244, #101326: a fake result was on another device, or none."""
    from conformance.upstream import entries, samples

    wrong, compared = [], 0
    for op in entries():
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if torch.float32 not in op.supported_dtypes("cpu") or "jiterator" in name:
            continue
        sample = next(samples(op, torch.float32, False, 1))
        packed = (sample.input, sample.args, sample.kwargs)
        on_device = fake_outcome(op, packed, FIRST)
        compared += isinstance(on_device, list)
        if isinstance(on_device, list) and all(is_there for *_, is_there in on_device):
            continue
        if name not in SIZES_ON_HOST:
            expected = fake_outcome(op, packed, "cpu")  # a size that only the data knows, mostly
            if on_device != expected:
                wrong.append(f"{name}: {on_device}, not {expected}")
    assert compared > 500
    assert not wrong, "\n".join(wrong)


def fake_outcome(op: Any, packed: Any, device: str) -> Any:
    """Return shape, dtype and whether it is on `device` for each fake result, or the error."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def placed(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(device)
        return torch.device(device) if isinstance(leaf, torch.device) or leaf == "cpu" else leaf

    try:
        first, args, kwargs = pytree.tree_map(placed, packed)
        with FakeTensorMode(allow_non_fake_inputs=True):
            results = pytree.tree_leaves(op.op(first, *args, **kwargs))
    except Exception as error:  # noqa: BLE001 (the class is compared)
        return type(error).__name__
    return [
        (tuple(each.shape), each.dtype, each.device == torch.device(device))
        for each in results
        if isinstance(each, torch.Tensor)
    ]


class Normed(nn.Module):
    """A layer with a buffer, in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).sum(1)


def test_c20_a_module_of_the_device_exports() -> None:
    """pytorch/pytorch #103505: exporting with fake tensors of another device failed."""
    net, x = Normed(), torch.randn(3, 4)
    batch = torch.export.Dim("batch")
    args = moved((x,))
    program = torch.export.export(moved(net), args, dynamic_shapes=({0: batch},))
    vals = [node.meta["val"] for node in program.graph.nodes if "val" in node.meta]
    assert {str(val.device) for val in vals if isinstance(val, torch.Tensor)} == {FIRST}
    saved = BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    loaded = torch.export.load(saved).module()
    for rows in (3, 5):
        y = torch.randn(rows, 4)
        assert_close(loaded(y.to(DEVICE)), net(y))
    assert_close(torch.compile(loaded, backend="neuron")(x.to(DEVICE)), net(x))


def test_c20_an_exported_program_moves_between_devices() -> None:
    """pytorch/pytorch #103505: a program exported on one device and used on another."""
    from torch.export.passes import move_to_device_pass

    net, x = Normed(), torch.randn(3, 4)
    exported = torch.export.export(copy.deepcopy(net), (x,))
    there = move_to_device_pass(exported, DEVICE)
    assert_close(there.module()(x.to(DEVICE)), net(x))
    back = move_to_device_pass(there, "cpu")
    torch.testing.assert_close(back.module()(x), net(x))


def test_c20_aot_export_traces_forward_and_backward() -> None:
    """pytorch/pytorch #103505: `aot_export_module` of a module of the device."""
    from torch._functorch.aot_autograd import aot_export_module

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1, device=DEVICE)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (self.linear(x).square().sum(),)

    net, x = Loss(), torch.randn(3, 4, device=DEVICE)
    graph, signature = aot_export_module(net, [x], trace_joint=True, output_loss_index=0)
    loss, weight_gradient, bias_gradient = graph(net.linear.weight, net.linear.bias, x)
    net(x)[0].backward()
    assert_close(loss, net(x)[0].detach().cpu())
    assert_close([weight_gradient, bias_gradient], [p.grad.cpu() for p in net.parameters()])
    assert signature.backward_signature is not None


def test_c22_inductor_by_name_compiles_here() -> None:
    """pytorch/pytorch #129953, #129952: Inductor assumed a device that it knows."""
    x = torch.randn(5)
    with torchneuron.explain() as report:
        found = torch.compile(lambda x: x.sin() + 1, backend="inductor")(x.to(DEVICE))
    assert_close(found, x.sin() + 1)
    assert num_programs(report) == 1


def test_c22_inductor_itself_refuses_the_device_clearly() -> None:
    """pytorch/pytorch #129953, #129952: a KeyError said that there is no code for a device."""
    import torch._inductor

    x = torch.ones(3, device=DEVICE)
    with pytest.raises(Exception, match=r"Inductor writes no code for `neuron`") as caught:
        torch._inductor.compile(torch.fx.symbolic_trace(lambda x: x * 2), [x])
    assert "torch.compile(model, backend='neuron')" in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_c23_a_failed_graph_leaves_a_script_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytorch/pytorch #196210: Dynamo's repro scripts were written for CUDA."""
    from torchneuron.runtime import xla

    def refuse(*_: object) -> None:
        raise xla.CompilerError("INTERNAL: no luck")

    net, x = moved((Normed(), torch.randn(3, 4)))
    monkeypatch.setattr("torch._dynamo.config.debug_dir_root", str(tmp_path))
    repro = torch._dynamo.config.patch(repro_after="dynamo")
    with monkeypatch.context() as during, repro, torch.no_grad():
        assert_close(torch.compile(net, backend="neuron")(x), net(x).cpu())
        assert not list(tmp_path.rglob("*.py")), "nothing failed"
        during.setattr(xla, "compile_module", refuse)
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no luck"):
            torch.compile(net, backend="neuron")(x[:2])  # sizes of which no program is on disk
    (launcher,) = tmp_path.rglob("minifier_launcher.py")
    text = launcher.read_text()
    assert re.search(r"device=device\(type='neuron', index=0\)", text)
    assert "backend='neuron'" in text and "device='cuda" not in text and ".cuda()" not in text
    done = subprocess.run(
        [sys.executable, str(launcher), "run"],
        cwd=tmp_path,
        env=environment({"TORCHNEURON_CACHE_DIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
