"""Operators from a user's own library work on the device with nothing but a CPU kernel."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from behaviour.subject import DEVICE, SECOND, assert_runs_the_same, with_gradients


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """An operator library with CPU kernels that ends with the test."""
    with torch.library._scoped_library("nrn_custom", "DEF") as library:
        yield library


def cpu(library: torch.library.Library, schema: str, kernel: Any) -> Any:
    """Define an operator with a CPU kernel and return it."""
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, kernel, "CPU")
    return getattr(torch.ops.nrn_custom, name)


def test_fresh_results_lists_and_numbers(library: torch.library.Library) -> None:
    blend = cpu(
        library,
        "blend(Tensor x, Tensor? y, Scalar a=2, *, int[] dims=[0], bool flip=False) -> Tensor",
        lambda x, y, a=2, *, dims=(0,), flip=False: (x * a if y is None else x + y).sum(dims),
    )
    parts = cpu(
        library, "parts(Tensor[] xs, float f) -> Tensor[]", lambda xs, f: [x * f for x in xs]
    )
    both = cpu(
        library, "both(Tensor x) -> (Tensor, int, bool)", lambda x: (x.exp(), x.numel(), True)
    )
    total = cpu(library, "total(Tensor[] xs) -> float", lambda xs: float(sum(x.sum() for x in xs)))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert_runs_the_same(lambda x, y: [blend(x, y), blend(x, None, 3.5, dims=[1])], x, y)
    assert_runs_the_same(lambda x, y: parts([x, y.t()], 0.5), x, y)
    assert_runs_the_same(lambda x: list(both(x[:, 1:])), x)
    assert_runs_the_same(lambda x, y: total([x, y]), x, y)


def test_in_place_and_out_results(library: torch.library.Library) -> None:
    def fill(x: Tensor, value: Any) -> Tensor:
        return x.fill_(value)

    def add_one(x: Tensor) -> None:
        x += 1

    def into(x: Tensor, *, out: Tensor) -> Tensor:
        return torch.mul(x, 2, out=out)

    fill_ = cpu(library, "fill_(Tensor(a!) x, Scalar value) -> Tensor(a!)", fill)
    twice = cpu(library, "twice(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", into)
    count = cpu(library, "count(Tensor(a!) x) -> ()", add_one)

    def run(x: Tensor) -> list[Tensor]:
        out = x.new_empty(0)
        assert twice(x, out=out) is out
        assert fill_(x[:, 1], 7) is not x
        view = x[0]
        version = x._version
        count(view)
        assert x._version > version
        return [x, out, view]

    assert_runs_the_same(run, torch.randn(3, 4))


def test_views_keep_sharing(library: torch.library.Library) -> None:
    tail = cpu(library, "tail(Tensor(a) x) -> Tensor(a)", lambda x: x[1:].t())

    def run(x: Tensor) -> list[Tensor]:
        view = tail(x)
        view.zero_()
        return [x, view]

    assert_runs_the_same(run, torch.randn(3, 4))


def test_a_custom_operator_with_gradient_and_fake() -> None:
    @torch.library.custom_op("nrn_custom_high::cubed", mutates_args=(), device_types="cpu")
    def cubed(x: Tensor) -> Tensor:
        return x**3

    @cubed.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def keep(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * gradient

    cubed.register_autograd(backward, setup_context=keep)
    assert_runs_the_same(with_gradients(cubed), torch.randn(4, requires_grad=True))
    # PyTorch's check of the autograd registration knows CPU, CUDA and XPU only.
    checks = ("test_schema", "test_faketensor")
    sample = torch.randn(4, device=DEVICE, requires_grad=True)
    torch.library.opcheck(cubed, (sample,), test_utils=checks)
    with pytest.raises(RuntimeError, match="device"):
        torch.add(cubed(torch.ones(2, device=DEVICE)), torch.ones(2, device=SECOND))


def test_a_kernel_for_the_device_wins(library: torch.library.Library) -> None:
    which = cpu(library, "which(Tensor x) -> int", lambda x: 1)
    assert which(torch.ones(1, device=DEVICE)) == 1
    library.impl("which", lambda x: 2, "PrivateUse1")
    assert which(torch.ones(1, device=DEVICE)) == 2
    assert which(torch.ones(1)) == 1


def test_an_operator_without_any_kernel_is_refused(library: torch.library.Library) -> None:
    library.define("nothing(Tensor x) -> Tensor")
    for device in ("cpu", DEVICE):
        with pytest.raises(NotImplementedError, match="nothing"):
            torch.ops.nrn_custom.nothing(torch.ones(1, device=device))


class Clipped(torch.autograd.Function):
    """Rounds in forward and passes the gradient straight through, in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> tuple[Tensor, Tensor]:
        inside = x.abs() < limit
        ctx.save_for_backward(inside)
        ctx.mark_non_differentiable(inside)
        return x.round().clamp(-limit, limit), inside

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
        (inside,) = ctx.saved_tensors
        return gradient * inside, None


class Doubled(torch.autograd.Function):
    """Works in place on its argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def test_autograd_functions_equal_the_cpu() -> None:
    def run(x: Tensor) -> list[Tensor]:
        rounded, _ = Clipped.apply(x * 3, 2.0)
        return [rounded, Doubled.apply(x.sin())]

    x = torch.randn(4, 5, requires_grad=True)
    assert_runs_the_same(with_gradients(run), x)
    double = torch.randn(3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: Doubled.apply(x.sin()), (double,))
    assert torch.autograd.gradgradcheck(lambda x: Doubled.apply(x.sin()), (double,))


def test_saved_tensor_hooks_move_tensors_to_the_host() -> None:
    def run(x: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=x.device.type == DEVICE):
            return (x * x).exp().sin()

    assert_runs_the_same(with_gradients(run), torch.randn(5, requires_grad=True))
