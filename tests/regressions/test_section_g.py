"""Section G, autocast, gradient scaling and optimizers."""

from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from behaviour.subject import (
    DEVICE,
    assert_equal_states,
    assert_runs_the_same,
    moved,
    outcome,
    state_of,
)
from behaviour.training import batch, make_net, train

HALVES = [torch.float16, torch.bfloat16]


def scaled_steps(scaler: torch.amp.GradScaler, infinite_at: int) -> list[tuple[float, bool]]:
    """Take steps with one infinite gradient; return each scale and whether weights moved."""
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    seen = []
    for step in range(5):
        before = weight.detach().clone()
        optimizer.zero_grad()
        factor = float("inf") if step == infinite_at else 1.0
        scaler.scale((weight * factor).sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([weight], 10.0)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), not torch.equal(weight, before)))
    return seen


def test_g01_scaler_skips_an_infinite_step() -> None:
    """pytorch/pytorch #119358 and others: the scaler asserted a CUDA or XPU device."""
    scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0, growth_interval=2)
    assert scaler.is_enabled()
    expected = [(1024.0, True), (2048.0, True), (1024.0, False), (1024.0, True), (2048.0, True)]
    assert scaled_steps(scaler, infinite_at=2) == expected
    restored = torch.amp.GradScaler(DEVICE)
    restored.load_state_dict(scaler.state_dict())
    assert restored.get_scale() == 2048.0


def test_g02_scaler_without_device_is_enabled() -> None:
    """pytorch/pytorch PR #196195: `GradScaler()` meant CUDA and disabled itself in silence."""
    scaler = torch.amp.GradScaler(init_scale=8.0)
    assert scaler.is_enabled()
    scales = [scale for scale, _ in scaled_steps(scaler, infinite_at=0)]
    assert scales == [4.0] * 5
    x = torch.ones(2, device=DEVICE)
    assert str(scaler.scale(x).device) == str(x.device)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_g04_mixed_precision_recipe_learns(dtype: torch.dtype) -> None:
    """aws-neuron/aws-neuron-sdk #811: a mixed-precision loop with a scaler failed."""
    net = make_net(0, DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE)
    images, labels = batch(0, DEVICE)
    losses = []
    for _ in range(20):
        with torch.autocast(device_type=DEVICE, dtype=dtype):
            scores = net(images)
            assert scores.dtype == dtype
            loss = F.cross_entropy(scores, labels)
            assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters())
    assert losses[-1] < 0.3 * losses[0]


class OpLists:
    """PyTorch's own lists of what autocast does on CUDA, with arguments on the device."""

    def __init__(self) -> None:
        from torch.testing._internal.autocast_test_lists import AutocastTestLists

        lists = AutocastTestLists(torch.device(DEVICE))
        self.lower = [*self.named(lists.torch_fp16, torch), *self.named(lists.nn_fp16, F)]
        self.full = [
            *self.named(lists.torch_fp32, torch),
            *self.named(lists.nn_fp32, torch._C._nn),
            *self.named(lists.methods_fp32, torch.Tensor),
        ]
        self.promoted = self.named(lists.torch_need_autocast_promote, torch)
        self.builtin = [
            *self.named(lists.torch_expect_builtin_promote, torch),
            *self.named(lists.methods_expect_builtin_promote, torch.Tensor),
        ]

    @staticmethod
    def named(rows: list[Any], owner: Any) -> list[tuple[str, Callable[..., Any], Any]]:
        """Return (name, function, row) for each row whose function the owner has."""
        found = [(row[0], getattr(owner, row[0], None), row) for row in rows]
        # The row of einsum holds a formula instead of arguments.
        usable = [row for row in found if row[1] and not isinstance(row[2][1], str)]
        return [row for row in usable if "cudnn" not in row[0]]


def as_half(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Give a float16 argument of the lists the half precision under test."""
    return x.to(dtype) if x.dtype == torch.float16 else x


def dtype_of(result: Any) -> Any:
    """Return the dtype of an operator's first result, or the type of a plain number."""
    while isinstance(result, (tuple, list)):
        result = result[0]
    return result.dtype if isinstance(result, torch.Tensor) else type(result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_g05_autocast_lists_are_those_of_cuda(dtype: torch.dtype) -> None:
    """pytorch/pytorch #101509: PrivateUse1 had no autocast lists."""
    lists = OpLists()
    wrong = []
    wanted = {"lower": dtype, "full": torch.float32, "promoted": torch.float32}
    for kind, rows in vars(lists).items():
        for name, fn, row in rows:
            options = row[2] if len(row) > 2 and isinstance(row[2], dict) else {}
            arguments = tree_map_only(torch.Tensor, lambda x: as_half(x, dtype), row[1])
            with torch.autocast(DEVICE, dtype=dtype):
                result = outcome(lambda fn=fn, a=arguments, o=options: fn(*a, **o))
            if isinstance(result, type):
                wrong.append(f"{kind} {name} raised {result.__name__}")
                continue
            got = dtype_of(result)
            plain = kind == "builtin" and not isinstance(got, torch.dtype)
            want = got if plain else wanted[kind] if kind in wanted else row[2]
            if got != want and not (kind == "full" and got in (torch.bool, torch.int64)):
                wrong.append(f"{kind} {name} gave {got}, not {want}")
    assert len(lists.lower) > 15 and len(lists.full) > 40 and len(lists.promoted) > 10
    assert not wrong, "\n".join(wrong)


def test_g05_autocast_regions_nest_and_clear_their_cache() -> None:
    """pytorch/pytorch #101509: nested and disabled regions, and the weight cache."""
    x = torch.randn(4, 4, device=DEVICE)
    weight = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    assert torch.get_autocast_dtype(DEVICE) == torch.bfloat16
    with torch.autocast(DEVICE):
        assert torch.is_autocast_enabled(DEVICE)
        assert (x @ x).dtype == torch.einsum("ij,jk->ik", x, x).dtype == torch.bfloat16
        with torch.autocast(DEVICE, dtype=torch.float16):
            assert (x @ x).dtype == torch.float16
            with torch.autocast(DEVICE, enabled=False):
                assert (x @ x).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        before = x @ weight
        weight.data.mul_(2)
    with torch.autocast(DEVICE):
        after = x @ weight
    assert torch.equal(after, (x.bfloat16() @ weight.bfloat16()))
    assert not torch.equal(after, before)
    assert not torch.is_autocast_enabled(DEVICE)
    with torch.autocast(DEVICE), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x))


class Doubled(torch.autograd.Function):
    """A function that computes in float32 wherever it is called."""

    @staticmethod
    @torch.amp.custom_fwd(device_type=DEVICE, cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor, seen: SimpleNamespace) -> torch.Tensor:
        seen.calls.append((x.dtype, torch.is_autocast_enabled(DEVICE)))
        ctx.seen = seen
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type=DEVICE)
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.seen.calls.append((gradient.dtype, torch.is_autocast_enabled(DEVICE)))
        return gradient * 2, None


def test_g05_custom_function_chooses_its_precision() -> None:
    """pytorch/pytorch #101509: `custom_fwd` and `custom_bwd` for this device."""
    seen = SimpleNamespace(calls=[])
    x = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE):
        result = Doubled.apply(x @ x, seen)
    assert result.dtype == torch.float32
    result.sum().backward()
    assert seen.calls == [(torch.float32, False), (torch.float32, False)]
    assert torch.isfinite(x.grad).all()


def test_g05_autocast_gives_the_values_of_explicit_casts() -> None:
    """pytorch/pytorch #101509: the region must compute what casts by hand compute."""

    def by_region(net: nn.Module, x: torch.Tensor) -> Any:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            loss = F.linear(x, net.weight, net.bias).softmax(-1).square().sum()
        loss.backward()
        return loss.detach(), net.weight.grad

    def by_hand(net: nn.Module, x: torch.Tensor) -> Any:
        low = [value.bfloat16() for value in (x, net.weight, net.bias)]
        loss = F.linear(*low).float().softmax(-1).square().sum()
        loss.backward()
        return loss.detach(), net.weight.grad

    net, x = nn.Linear(6, 5), torch.randn(4, 6)
    region = by_region(*moved((net, x)))
    hand = by_hand(*moved((net, x)))
    assert all(torch.equal(one, other) for one, other in zip(region, hand, strict=True))
    assert_runs_the_same(by_hand, net, x)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {"fused": True}),
    ("Adagrad", {}),
    ("Adamax", {"foreach": True}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Rprop", {}),
    ("ASGD", {}),
    ("Adadelta", {}),
    ("Adafactor", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
def test_g07_resumed_optimizer_follows_the_same_path(name: str, options: dict[str, Any]) -> None:
    """aws-neuron/aws-neuron-samples PR #52: resuming from saved optimizer state raised KeyError."""
    cls = getattr(torch.optim, name)
    whole = make_net(0, DEVICE)
    optimizer = cls(whole.parameters(), lr=0.01, **options)
    torch.manual_seed(4)
    train(whole, optimizer, range(3))
    saved = BytesIO()
    state = {"net": whole.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "rng": torch.neuron.get_rng_state()}, saved)
    train(whole, optimizer, range(3, 6))

    resumed = make_net(1, DEVICE)
    again = cls(resumed.parameters(), lr=0.01, **options)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=True)
    resumed.load_state_dict(loaded["net"])
    again.load_state_dict(loaded["optimizer"])
    torch.neuron.set_rng_state(loaded["rng"])
    train(resumed, again, range(3, 6))
    assert_equal_states(state_of(resumed), state_of(whole))


def test_g07_training_follows_the_path_of_the_cpu() -> None:
    """aws-neuron/aws-neuron-samples PR #52: the trajectory itself equals the CPU's."""
    cpu, device = make_net(0, "cpu"), make_net(0, DEVICE)
    for net in (cpu, device):
        torch.manual_seed(9)
        train(net, torch.optim.Adam(net.parameters(), lr=0.01, foreach=True), range(5))
    assert_equal_states(state_of(device), state_of(cpu))
