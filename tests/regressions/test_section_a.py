"""Section A, silent wrong results: views, strides, dtypes, masks and aliasing."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from behaviour.subject import (
    DEVICE,
    FIRST,
    SECOND,
    assert_runs_the_same,
    assert_same,
    moved,
    outcome,
    with_gradients,
)

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "moveaxis": lambda x: x.moveaxis(0, -1),
    "expand": lambda x: x[:, :1].expand(4, 6),
    "flip": lambda x: x.flip(0),
    "step": lambda x: x[::2, 1::3],
    "zero_stride": lambda x: x[1, 1].expand(3, 2),
    "offset": lambda x: x.as_strided((3, 4), (6, 1), 5),
    "empty": lambda x: x[2:2],
}


def unary_ops() -> list[Any]:
    """Return PyTorch's own list of unary operators."""
    from torch.testing._internal.common_methods_invocations import unary_ufuncs

    return [op for op in unary_ufuncs if "jiterator" not in op.name]


def unary_input(op: Any, dtype: torch.dtype) -> torch.Tensor:
    """Make an input of shape (4, 6) inside the operator's domain."""
    low, high = op.domain
    return torch.testing.make_tensor((4, 6), dtype=dtype, device="cpu", low=low, high=high)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_a01_integer_index_reads_every_element(dtype: torch.dtype) -> None:
    """aws-neuron/aws-neuron-sdk #937: every second value read by a 64-bit index was zero."""
    values = torch.arange(1000) * 0.5 + 1
    index = torch.randperm(1000).to(dtype)

    def read(values: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        long = index.long()
        return [
            values[index],
            values.index_select(0, index),
            values.gather(0, long),
            values.take(long),
            torch.full_like(values, 3.5)[index],
            values.view(10, 100)[:, index[:40] % 100],
        ]

    for result in assert_runs_the_same(read, values, index):
        assert torch.count_nonzero(result) == result.numel()


@pytest.mark.parametrize("kind", ["random", "all_true", "all_false", "one_true"])
def test_a02_masked_rows_are_rewritten(kind: str) -> None:
    """aws-neuron/aws-neuron-sdk #1381: `x[m] = f(x[m])` stored wrong values without an error."""
    mask = {
        "random": torch.rand(64) > 0.5,
        "all_true": torch.ones(64, dtype=torch.bool),
        "all_false": torch.zeros(64, dtype=torch.bool),
        "one_true": torch.arange(64) == 17,
    }[kind]

    def rewrite(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x[mask] = x[mask].flip(-1)
        each = (x > 0) & mask[:, None]
        x[each] = x[each] * 2 + 1
        x[mask, 3] -= 1
        return x

    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        assert_runs_the_same(rewrite, (torch.randn(64, 8) * 9).to(dtype), mask)


def test_a02_dilated_convolution_in_bfloat16() -> None:
    """aws-neuron/aws-neuron-sdk #1381: a dilated 1-D network got wrong values in bfloat16."""
    layers = [torch.nn.Conv1d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4, 16)]
    net = torch.nn.Sequential(*layers).to(torch.bfloat16)
    x = torch.randn(2, 8, 50, dtype=torch.bfloat16, requires_grad=True)
    assert_runs_the_same(with_gradients(lambda net, x: net(x)), net, x)


def test_a10_optimizer_steps_reach_transposed_parameters() -> None:
    """pytorch/pytorch #118115: addcmul_ and addcdiv_ on a strided output wrote to a copy."""

    def learn(start: torch.Tensor, options: dict[str, bool]) -> list[torch.Tensor]:
        weight = start.t().requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.1, **options)
        for step in range(5):
            optimizer.zero_grad()
            (weight.sin() * (step + 1)).sum().backward()
            optimizer.step()
        state = optimizer.state[weight]
        return [weight.detach(), state["exp_avg"], state["exp_avg_sq"]]

    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        start = torch.randn(6, 4)
        weight, *_ = assert_runs_the_same(learn, start, options)
        assert not torch.equal(weight.cpu(), start.t())

    def in_place(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out.t().addcmul_(a, b, value=2)
        out.t()[1:, ::2].addcdiv_(a[1:, ::2], b[1:, ::2] + 3)
        return out

    assert_runs_the_same(in_place, torch.randn(6, 4), torch.randn(4, 6), torch.rand(4, 6))


def test_a11_convolution_reads_a_strided_weight() -> None:
    """pytorch/pytorch #192212: conv2d ignored the strides of its weight."""
    x = torch.randn(2, 4, 9, 9, requires_grad=True)
    weight = torch.randn(3, 3, 4, 6, requires_grad=True)
    bias = torch.randn(1, requires_grad=True)

    def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        permuted = weight.permute(3, 2, 0, 1)
        channels_last = permuted.contiguous(memory_format=torch.channels_last)
        wide = x.to(memory_format=torch.channels_last)
        expanded = bias.expand(6)
        return [
            F.conv2d(x, permuted, expanded),
            F.conv2d(x, channels_last),
            F.conv2d(wide, permuted, expanded, stride=2),
            F.conv2d(wide, channels_last, padding=1),
            F.conv2d(x[:, :2], permuted[:, ::2], padding=2),
            F.conv_transpose2d(x, permuted.transpose(0, 1)),
        ]

    assert_runs_the_same(with_gradients(convolve), x, weight, bias)


@pytest.mark.filterwarnings("ignore")
def test_a13_unary_operators_read_every_layout() -> None:
    """pytorch/pytorch #131736: softplus of a moved axis returned other elements."""
    wrong = []
    ops = [op for op in unary_ops() if torch.float32 in op.supported_dtypes("cpu")]
    for op, (name, layout) in itertools.product(ops, LAYOUTS.items()):
        x = unary_input(op, torch.float32)
        options, _ = op.sample_kwargs("cpu", torch.float32, x)
        try:
            assert_runs_the_same(lambda x, o, op=op, v=layout: op(v(x), **o), x, options)
        except AssertionError as error:
            wrong.append(f"{op.formatted_name} on {name}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a13_softplus_of_a_moved_axis() -> None:
    """pytorch/pytorch #131736: the reported call itself, with its gradient."""
    x = torch.randn(3, 4, 5, requires_grad=True)
    assert_runs_the_same(with_gradients(lambda x: F.softplus(x.moveaxis(0, 2))), x)


def test_a14_augmented_assignment_reaches_the_viewed_tensor() -> None:
    """pytorch/pytorch #79672: `x[:, 1] += y` changed nothing."""

    def assign(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[:, 1] += y
        x[::2, 3:] *= 2
        x.diagonal()[1:] -= 5
        x.select(0, 2).unfold(0, 2, 2)[1] /= 3
        x.T[4, ::3] += y[::3]
        x.view(3, 2, 6).movedim(1, 0)[1] -= 0.5
        return x

    assert_runs_the_same(assign, torch.randn(6, 6), torch.randn(6))


def test_a17_reading_a_view_gives_its_own_elements() -> None:
    """torch-spyre/torch-spyre #1470, #1899: copying an expanded tensor to the host gave garbage."""
    x = torch.arange(12.0).view(3, 4)
    z = torch.complex(x, -x)
    views: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda x, z: x[:, :1].expand(3, 5),
        lambda x, z: x[None].expand(2, 3, 4),
        lambda x, z: x.as_strided((4, 4), (2, 1), 1),
        lambda x, z: x.flip(0, 1),
        lambda x, z: x.t()[1::2],
        lambda x, z: x[1:1],
        lambda x, z: z.conj()[1:, ::2],
        lambda x, z: z.conj().imag,
    ]
    for view in views:
        expected = view(x, z)
        actual = view(x.to(DEVICE), z.to(DEVICE))
        assert torch.equal(actual.cpu(), expected)
        assert (actual.numpy(force=True) == expected.numpy(force=True)).all()
        assert actual.tolist() == expected.tolist()
        shown = repr(actual)
        assert f"device='{FIRST}'" in shown
        assert shown.split("]", 1)[0] == repr(expected).split("]", 1)[0].rstrip(")")


def test_a19_in_place_on_a_view_of_a_view() -> None:
    """tinygrad PR #9317, #9371, #17195, pytorch/pytorch PR #124895: such writes were lost."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        x.view(4, 3, 10).select(1, 2).t().mul_(2)
        x.narrow(0, 20, 60).view(6, 10).t()[1:4].add_(1)
        x.as_strided((5, 3), (7, 2), 11).mul_(-1)
        x.as_strided((5, 3), (7, 2), 11).select(1, 1).copy_(torch.arange(5.0))
        return x

    assert_runs_the_same(chain, torch.randn(120))

    def bucket(flat: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """Gradient buckets are views at offsets of one flat tensor."""
        pieces = [flat[0:6].view(2, 3), flat[6:10].view(4), flat[10:].view(2, 5).t()]
        weights = [torch.ones_like(p, requires_grad=True) for p in pieces]
        for weight, piece in zip(weights, pieces, strict=True):
            weight.grad = piece.zero_()
        for _ in range(2):
            sum((w * g.view(-1)[: w.numel()].view(w.shape)).sum() for w, g in
                zip(weights, [grad] * 3, strict=True)).backward()  # fmt: skip
        flat /= 2
        return flat

    assert_runs_the_same(bucket, torch.zeros(20), torch.randn(10))


@pytest.mark.parametrize("reduce", ["scatter", "add", "sum", "prod", "mean", "amax", "amin"])
def test_a22_gradient_of_scatter_with_a_small_index(reduce: str) -> None:
    """intel/torch-xpu-ops #4516, pytorch/pytorch PR #188843: wrong shape or wrong values."""
    index = torch.tensor([[0, 2, 1], [3, 0, 2]])
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    source = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    larger = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def scatter(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        on = index.to(x.device)
        if reduce == "scatter":
            return x.scatter(1, on, source)
        if reduce == "add":
            return x.scatter_add(1, on, source)
        return x.scatter_reduce(1, on, source, reduce=reduce)

    assert_runs_the_same(with_gradients(scatter), x, source)
    assert_runs_the_same(scatter, x.detach(), larger.detach())
    if reduce != "scatter":
        assert torch.autograd.gradcheck(scatter, moved((x, source)))
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="shape|size"):
            with_gradients(scatter)(*moved((x, larger), device))


@pytest.mark.filterwarnings("ignore")
def test_a23_unary_operators_return_full_tensors() -> None:
    """pytorch/pytorch #165549: abs and isfinite returned empty tensors through a fallback."""
    wrong = []
    dtypes = (torch.bool, torch.int16, torch.float64, torch.bfloat16, torch.complex64)
    for op, dtype in itertools.product(unary_ops(), dtypes):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        x = unary_input(op, dtype)
        options, _ = op.sample_kwargs("cpu", dtype, x)
        try:
            assert_runs_the_same(lambda x, o, op=op: op(x, **o), x, options)
        except AssertionError as error:
            wrong.append(f"{op.formatted_name} of {dtype}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a25_indices_with_gaps_reach_the_kernel() -> None:
    """pytorch/pytorch #102081, #106449: a list of optional tensors was dropped by a fallback."""
    x = torch.randn(4, 5, 6, 3)
    index = torch.tensor([3, 0, 3, 1])
    mask = torch.tensor([True, False, True, False, True, True])

    def read_and_write(x: torch.Tensor, index: torch.Tensor, mask: torch.Tensor) -> list[Any]:
        read = x[:, index, None, mask]
        direct = torch.ops.aten.index.Tensor(x, [None, index, None, index[:4] % 3])
        written = x.clone()
        written[:, index, None, mask] = read * 2
        added = x.clone().index_put_((index,), x[index], accumulate=True)
        return [read, direct, written, added]

    assert_runs_the_same(read_and_write, x, index, mask)


def test_a25_custom_operator_takes_optional_tensors() -> None:
    """pytorch/pytorch #106449: the same for an operator that only has a CPU kernel."""
    with torch.library._scoped_library("nrn_a25", "DEF") as library:
        library.define("pick(Tensor x, Tensor?[] indices) -> Tensor")
        library.impl("pick", lambda x, indices: torch.ops.aten.index(x, indices), "CPU")
        x, index = torch.randn(3, 4, 5), torch.tensor([2, 0])
        assert_runs_the_same(torch.ops.nrn_a25.pick, x, [None, index, index])


def test_a28_copies_between_every_pair_of_places() -> None:
    """gabrieldemarmiesse/torch-mojo-backend findings: a copy from another device crashed."""
    source = torch.arange(24.0).view(4, 6)
    views = [lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[:, :1].expand(4, 3)]
    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.complex64]
    places = ["cpu", FIRST, SECOND]
    for origin, goal, view, dtype in itertools.product(places, places, views, dtypes):
        start = view(source.to(origin))
        for non_blocking in (False, True):
            copied = start.to(goal, dtype, non_blocking=non_blocking)
            assert str(copied.device) == goal
            assert torch.equal(copied.cpu(), view(source).to(dtype))
        filled = torch.zeros(start.shape[::-1], dtype=dtype, device=goal).t().copy_(start)
        assert torch.equal(filled.cpu(), view(source).to(dtype))

    pinned = source.pin_memory()
    assert torch.equal(pinned.to(SECOND, non_blocking=True).cpu(), source)
    assert torch.equal(pinned.zero_().copy_(source.to(DEVICE)), source)
    assert source.to(DEVICE).to("meta").is_meta
    with pytest.raises(NotImplementedError, match="meta"):
        torch.empty(3, device="meta").to(DEVICE)


def test_a29_double_precision_values_survive() -> None:
    """pytorch/pytorch #86410, #122602: printing or converting float64 raised or truncated."""
    value = 0.1 + 2**-50
    on_device = torch.tensor([value], dtype=torch.float64, device=DEVICE)
    assert on_device.item() == value
    assert on_device.double().dtype == torch.float64
    assert torch.tensor(value, device=DEVICE).dtype == torch.float32
    x = torch.randn(3)
    assert_runs_the_same(lambda x: [x.double(), x.to(torch.float64) / 3, x.double().sum()], x)
    assert "dtype=torch.float64" in repr(on_device)
    assert "0.1000" in f"{on_device}"
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.tensor(value, device=DEVICE).item() == value
        assert f"device='{FIRST}'" in repr(torch.tensor([value], device=DEVICE))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a38_gradient_passes_through_a_change_of_dtype() -> None:
    """pytorch/pytorch #95207: a backend's own `to` lost the gradient."""
    x = torch.randn(7, requires_grad=True)

    def convert(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.to(torch.bfloat16), x.double(), x.to(x.device, torch.float16), x.type(torch.half)]

    _, (gradient,) = assert_runs_the_same(with_gradients(convert), x)
    assert gradient.dtype == torch.float32


def test_a40_in_place_operators_take_every_kind_of_number() -> None:
    """flagos-ai/Torch-FL #165: an in-place multiply called itself without end."""
    others: list[Any] = [2, 2.5, True, torch.tensor(2.0), torch.tensor(3, dtype=torch.float64)]
    names = "add_ sub_ mul_ div_ pow_ fmod_ remainder_ floor_divide_ copysign_ eq_ lt_ fill_"
    for name, other in itertools.product(names.split(), others):
        x = torch.tensor([1.5, -2.0, 3.25])
        expected = outcome(getattr(x.clone(), name), other)
        actual = outcome(getattr(x.to(DEVICE), name), other)
        assert_same(actual, expected)

    def operators(x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        x *= torch.tensor(2)
        x **= 2
        x //= 3
        x %= 2
        n <<= 2
        n |= 5
        n ^= 3
        n &= torch.tensor(6)
        return [x, n]

    assert_runs_the_same(operators, torch.rand(5) * 9, torch.arange(5))


@pytest.mark.filterwarnings("ignore")
def test_a40_every_in_place_operator() -> None:
    """flagos-ai/Torch-FL #165: the same for each in-place operator that PyTorch lists."""
    from conformance.upstream import entries, samples

    uninitialised = {"resize_", "resize_as_"}
    wrong, tried = [], 0
    for op in entries():
        if op.inplace_variant is None or torch.float32 not in op.supported_dtypes("cpu"):
            continue
        sample = next(samples(op, torch.float32, False, 1))

        def run(x: Any, args: Any, kwargs: Any, op: Any = op) -> Any:
            torch.manual_seed(3)
            return op.inplace_variant(x, *args, **kwargs)

        packed = (sample.input, sample.args, sample.kwargs)
        expected = outcome(run, *moved(packed, "cpu"))
        actual = outcome(run, *moved(packed, DEVICE))
        tried += not isinstance(expected, type)
        try:
            if op.name in uninitialised:
                assert actual.shape == expected.shape
            else:
                assert_same(actual, expected)
        except AssertionError as error:
            wrong.append(f"{op.formatted_name}: {error}")
    assert tried > 150
    assert not wrong, "\n".join(wrong)
