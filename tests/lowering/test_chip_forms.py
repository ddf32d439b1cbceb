"""Forms that no public statement refuses give the CPU's numbers, here and for a chip."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torchneuron.lowering.decompose import decompositions
from torchneuron.lowering.graph import lower
from torchneuron.lowering.legality import judge
from torchneuron.lowering.registry import LoweringTable
from torchneuron.runtime import xla

aten = torch.ops.aten
Call = Callable[..., Any]
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BOTH = pytest.mark.parametrize("on_host", [True, False], ids=["host", "chip"])


def agrees(call: Call, *tensors: torch.Tensor, on_host: bool = False, rtol: float = 0) -> None:
    """Compare a program, run by XLA:CPU, with the CPU's kernels; what is for a chip is judged."""
    trace = make_fx(
        lambda *inputs: call(*inputs), decomposition_table=decompositions(), tracing_mode="fake"
    )
    made = lower(trace(*tensors), None, LoweringTable() if on_host else None)
    if not on_host:
        assert not judge(made.module).refused
    executable = xla.compile_module(made.module.text())
    buffers = [xla.import_dlpack(torch._C._to_dlpack(each.contiguous())) for each in tensors]
    results = [torch.from_dlpack(xla.export_dlpack(each, None)) for each in executable(buffers)]
    for one, other in zip(results, pytree.tree_leaves(call(*tensors)), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol, equal_nan=True)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, nan: bool = True) -> torch.Tensor:
    """Make a tensor with ties; floats have infinities, both zeros and several not-a-numbers."""
    generator = torch.Generator().manual_seed(sum(shape))
    made = torch.randint(0, 5, shape, generator=generator).to(dtype)
    if not dtype.is_floating_point:
        return made
    special = torch.tensor([math.inf, -math.inf, -0.0, math.nan if nan else 0.0], dtype=dtype)
    chosen = torch.randint(0, 12, shape, generator=generator)
    return torch.where(chosen < 4, special[chosen.clamp(max=3)], made)


# -- extremes with indices


@BOTH
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_extremes_take_the_first_of_equals(dtype: torch.dtype, on_host: bool) -> None:
    # XLA:CPU runs a chip's maximum without keeping not-a-number.
    x = numbers(7, 9, dtype=dtype, nan=on_host)
    for op in (aten.max.dim, aten.min.dim):
        agrees(partial(op, dim=0), x, on_host=on_host)
        agrees(partial(op, dim=1, keepdim=True), x, on_host=on_host)
    if dtype is not torch.bool:
        agrees(aten.argmax, x, on_host=on_host)
        agrees(aten.argmin, x, on_host=on_host)


@pytest.mark.parametrize("row", [[math.nan, 1.0, math.nan], [-math.inf] * 3, [-0.0, 0.0, -0.0]])
def test_extremes_of_special_rows(row: list[float]) -> None:
    for op in (aten.max.dim, aten.min.dim):
        agrees(partial(op, dim=0), torch.tensor(row), on_host=True)


@BOTH
def test_extremes_of_empty_and_single_dimensions(on_host: bool) -> None:
    for shape in ((0, 3), (3, 1), (2, 3, 0)):
        agrees(lambda x: aten.max.dim(x, 1), torch.zeros(shape), on_host=on_host)
    agrees(lambda x: aten.max.dim(x, 0), torch.tensor(2.0), on_host=on_host)


# -- sorts


@BOTH
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("length", [1, 8, 21])
def test_sorts_are_stable(dtype: torch.dtype, length: int, on_host: bool) -> None:
    x = numbers(6, length, dtype=dtype)
    for descending in (False, True):
        sort = partial(aten.sort.stable, stable=True, dim=1, descending=descending)
        agrees(sort, x, on_host=on_host)


@BOTH
def test_sorts_of_other_dimensions_and_extreme_integers(on_host: bool) -> None:
    bounds = torch.iinfo(torch.int64)
    x = torch.tensor([[bounds.max, 0, bounds.min], [bounds.min, bounds.max, 5]]).repeat(3, 2)
    for dim in (0, 1):
        agrees(partial(aten.sort.stable, stable=True, dim=dim), x, on_host=on_host)
    agrees(lambda x: aten.sort(x, 1), torch.zeros(3, 0), on_host=on_host)
    agrees(lambda x: aten.sort(x, 0), torch.tensor(1.5), on_host=on_host)


@BOTH
@pytest.mark.parametrize("k", [0, 1, 2, 9, 40])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(k: int, largest: bool, on_host: bool) -> None:
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(k))
    x[0, 3:5], x[1, :20], x[2] = math.nan, math.inf, -math.inf
    if k == 1 and not on_host:  # its maximum is the reduction's, see above
        x = x.nan_to_num()
    agrees(lambda x: aten.topk(x, k, 1, largest)[0], x, on_host=on_host)
    agrees(lambda x: aten.topk(x, k, 1, largest), x[3:], on_host=on_host)


@BOTH
def test_what_is_read_off_a_sorted_row(on_host: bool) -> None:
    x = numbers(6, 11)
    for call in (
        lambda x: aten.median.dim(x, 1)[0],
        lambda x: aten.nanmedian.dim(x, 1)[0],
        lambda x: aten.kthvalue(x, 3, 1)[0],
        lambda x: aten.kthvalue(x, 10, 1)[0],
    ):
        agrees(call, x, on_host=on_host)
    agrees(lambda x: aten.mode(x, 1), numbers(6, 11, dtype=torch.int32), on_host=on_host)


# -- windows


@BOTH
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "ceil"),
    [
        (2, 2, 0, 1, False),
        (3, 2, 1, 1, True),
        ((3, 5), (1, 2), (1, 2), 1, False),
        (3, 1, 1, 2, False),
        (7, 1, 3, 1, False),
        (13, 1, 6, 1, True),
        (1, 3, 0, 1, False),
    ],
)
def test_max_pools(
    dtype: torch.dtype,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: int,
    ceil: bool,
    on_host: bool,
) -> None:
    def pool(x: torch.Tensor) -> Any:
        return torch.nn.functional.max_pool2d(
            x, kernel, stride, padding, dilation, ceil, return_indices=True
        )

    agrees(pool, numbers(2, 3, 17, 14, dtype=dtype), on_host=on_host)


@BOTH
def test_max_pools_of_volumes_and_fitted_windows(on_host: bool) -> None:
    volume = numbers(2, 5, 6, 7)
    agrees(lambda x: aten.max_pool3d_with_indices(x, [2, 3, 3], [2, 1, 2]), volume, on_host=on_host)
    agrees(lambda x: aten.adaptive_max_pool3d(x, [2, 4, 1]), volume, on_host=on_host)
    for size in ([1, 1], [3, 5], [6, 7]):
        agrees(partial(aten.adaptive_max_pool2d, output_size=size), volume, on_host=on_host)


# -- integers and doubles that chips do not take


@BOTH
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_embedding_bags(mode: int, on_host: bool) -> None:
    weight = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    indices, offsets = torch.tensor([1, 2, 2, 9, 0, 3, 3]), torch.tensor([0, 3, 3, 5])

    def bag(*tensors: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = aten._embedding_bag(*tensors, False, mode, False, None, False, 3)[0]
        return found

    agrees(bag, weight, indices, offsets, on_host=on_host, rtol=1e-6)


@BOTH
@pytest.mark.parametrize("inner", [8, 1024, 2500])
def test_int8_products_are_exact(inner: int, on_host: bool) -> None:
    left = torch.full((17, inner), -128, dtype=torch.int8)
    agrees(aten._int_mm, left, left.t().contiguous()[:, :16], on_host=on_host)
    right = torch.arange(inner * 16).remainder(255).sub(127).reshape(inner, 16).to(torch.int8)
    agrees(aten._int_mm, left, right, on_host=on_host)


@BOTH
def test_counting_in_floats(on_host: bool) -> None:
    def count(x: torch.Tensor) -> list[torch.Tensor]:
        sizes = [(0, 7, 1), (-3, 8, 2), (5.0, -6.0, -3.0)]
        return [torch.arange(*each, dtype=x.dtype) for each in sizes]

    for dtype in FLOATS:
        agrees(count, torch.zeros(1, dtype=dtype), on_host=on_host)
    image = torch.randn(1, 2, 4, 5)
    agrees(lambda x: aten.upsample_nearest2d.vec(x, [7, 9], None), image, on_host=on_host)


@BOTH
@pytest.mark.parametrize(("first", "second"), [((0, 4, 5), (3, 5)), ((4, 5), (0, 3, 5))])
def test_gradients_of_no_distances(
    first: tuple[int, ...], second: tuple[int, ...], on_host: bool
) -> None:
    """PyTorch broadcasts before it calls for a gradient, but not where there is nothing to do."""
    distance = torch.ones(0, 4, 3)

    def gradient(x: torch.Tensor, y: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = aten._cdist_backward(distance, x, y, 1.0, distance)
        return made

    agrees(gradient, numbers(*first), numbers(*second), distance, on_host=on_host)
