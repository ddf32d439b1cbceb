"""Tensor subclasses, modes and fake tensors see the device's tensors as any other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from behaviour.subject import DEVICE, FIRST, SECOND


class Labelled(torch.Tensor):
    """A subclass that passes its class on and counts calls."""

    calls: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapped(torch.Tensor):
    """A wrapper subclass that holds a tensor and unwraps it for every operator."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Wrapped":
        self = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, strides=inner.stride()
        )
        self.inner = inner
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(cls, lambda x: x.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


def test_a_subclass_keeps_its_class_and_device() -> None:
    x = torch.ones(3).as_subclass(Labelled).to(DEVICE)
    Labelled.calls.clear()
    y = (x + 1).t() * torch.ones(3, device=DEVICE)
    assert type(y) is Labelled and y.device.type == DEVICE
    assert Labelled.calls[:3] == ["add", "t", "mul"]
    assert type(x.neuron(1)) is Labelled and str(x.neuron(1).device) == SECOND
    assert y.tolist() == [2.0] * 3
    weight = nn.Parameter(x)
    (weight * 2).sum().backward()
    assert weight.grad.tolist() == [2.0] * 3


def test_a_wrapper_subclass_computes_and_differentiates() -> None:
    inner = torch.randn(4, device=DEVICE)
    x = Wrapped(inner).requires_grad_()
    assert str(x.device) == FIRST
    y = (x * 2).exp().sum()
    assert isinstance(y, Wrapped)
    y.backward()
    assert isinstance(x.grad, Wrapped)
    assert torch.equal(x.grad.inner, 2 * (inner * 2).exp())
    assert isinstance(x.detach().to("cpu"), Wrapped)
    assert torch.equal(x.detach().to("cpu").inner, inner.cpu())


class Seen(TorchDispatchMode):
    """Record the operators that run and the devices of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.rows.append((str(func), result.device.type))
        return result


def test_a_dispatch_mode_sees_every_operator() -> None:
    x = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    on_cpu = torch.randn(3, 3, requires_grad=True)
    seen = {}
    for leaf in (x, on_cpu):
        with Seen() as mode:
            torch.nn.functional.layer_norm(leaf @ leaf.t(), (3,)).relu().sum().backward()
        seen[leaf.device.type] = [name for name, _ in mode.rows]
        assert all(place == leaf.device.type for _, place in mode.rows)
    assert seen[DEVICE] == seen["cpu"]
    assert "aten.mm.default" in seen[DEVICE]


def test_a_function_mode_sees_factories_and_default_devices() -> None:
    class Names(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    with Names() as mode, torch.device(DEVICE):
        x = torch.ones(2)
        x.cos()
    assert x.is_neuron
    assert "ones" in mode.names and "cos" in mode.names
    torch.set_default_device(SECOND)
    try:
        assert str(torch.zeros(1).device) == SECOND
        assert str(nn.Linear(2, 2).weight.device) == SECOND
    finally:
        torch.set_default_device(None)
    assert torch.zeros(1).device.type == "cpu"


def test_fake_tensors_propagate_the_device_without_memory(
    settled_memory: Callable[..., int],
) -> None:
    before = settled_memory()
    with FakeTensorMode():
        x = torch.empty(2**20, 2**20, device=DEVICE)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, device=SECOND)
        y = layer(torch.randn(2, 5, 64, device=SECOND))
        y.sum().backward()
        assert isinstance(y, FakeTensor) and str(y.device) == SECOND
        assert str(layer.linear1.weight.grad.device) == SECOND
        assert str((x @ x).sum(1).device) == FIRST
        assert x[:, :3].to("cpu").device.type == "cpu"
        assert str(torch.arange(3, device=DEVICE).float().device) == FIRST
        with pytest.raises(RuntimeError, match="device"):
            x + torch.empty(2**20, device=SECOND)
    assert torch.neuron.memory_allocated() == before


def test_real_tensors_become_fake_ones_of_their_device() -> None:
    mode = FakeTensorMode()
    real = torch.randn(3, 4, device=SECOND)[:, ::2]
    fake = mode.from_tensor(real)
    assert str(fake.device) == SECOND
    assert fake.stride() == real.stride() and fake.shape == real.shape
    with mode:
        assert str((fake.t() * 2).relu().device) == SECOND


def test_a_fake_tensor_has_no_value() -> None:
    with FakeTensorMode():
        x = torch.ones(2, device=DEVICE)
        with pytest.raises(RuntimeError):
            x.sum().item()


def test_meta_modules_materialize_on_the_device() -> None:
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    net.to_empty(device=SECOND)
    for layer in net:
        layer.reset_parameters()
    assert all(str(p.device) == SECOND for p in [*net.parameters(), *net.buffers()])
    assert torch.isfinite(net(torch.randn(3, 4, device=SECOND))).all()


def test_subclass_parameters_survive_a_move() -> None:
    net = nn.Linear(2, 2)
    net.weight = nn.Parameter(torch.ones(2, 2).as_subclass(Labelled))
    net.to(DEVICE)
    assert isinstance(net.weight.data, torch.Tensor) and net.weight.is_neuron
    assert net(torch.ones(1, 2, device=DEVICE)).sum().isfinite()
