"""Copies in every direction, between layouts and dtypes, give what CPU gives."""

from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import pytest
import torch

from conformance.compare import difference
from conformance.judge import Verdict, judge, quiet
from conformance.layouts import LAYOUTS
from conformance.placement import CPU, Placement

PLACES = ("cpu", "pinned", "device:0", "device:1")
SOURCE_LAYOUTS = ("contiguous", *LAYOUTS)
TARGET_LAYOUTS = ("contiguous", "transposed", "sliced", "offset")
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
GRID = torch.arange(-6.0, 6.0).reshape(3, 4)


def locate(place: str, device: torch.device) -> torch.device:
    """Return the device of a place; with CPU under test all places are CPU."""
    if not place.startswith("device") or device.type == "cpu":
        return CPU
    return torch.device(device.type, int(place[-1]))


def put(tensor: torch.Tensor, place: str, device: torch.device) -> torch.Tensor:
    """Copy `tensor` to a place, strides and offset kept."""
    if place == "pinned" and device.type != "cpu":
        memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).pin_memory()
        target = torch.empty(0, dtype=tensor.dtype)
        layout = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return target.set_(memory.untyped_storage(), *layout)
    return Placement(locate(place, device))(tensor)


def laid_out(layout: str, dtype: torch.dtype) -> torch.Tensor:
    tensor = GRID.to(dtype)
    return tensor.clone() if layout == "contiguous" else LAYOUTS[layout](tensor)


@pytest.mark.parametrize(("source_place", "target_place"), list(product(PLACES, PLACES)))
def test_copy_between_places_equals_cpu(
    source_place: str, target_place: str, device: torch.device
) -> None:
    wrong: list[str] = []
    dtypes = cycle(product(DTYPES, DTYPES))
    layouts = product(SOURCE_LAYOUTS, TARGET_LAYOUTS, range(len(DTYPES)))
    for source_layout, target_layout, turn in layouts:
        # The pairs of dtypes go round, so that each layout meets several and each place all.
        from_dtype, to_dtype = next(dtypes)
        non_blocking = turn % 2 == 1
        source = laid_out(source_layout, from_dtype)
        target = laid_out(target_layout, to_dtype)
        if source.numel() == 0:
            target = target[: source.shape[0], : source.shape[1]]
        here = put(source, source_place, device)
        there = put(target, target_place, device)
        with quiet():
            returned = there.copy_(here, non_blocking=non_blocking)
            target.copy_(source)
        torch.accelerator.synchronize() if device.type != "cpu" else None
        found = difference(target, there, locate(target_place, device), exact=True)
        if found or returned is not there:
            wrong.append(f"{source_layout} {from_dtype} to {target_layout} {to_dtype}: {found}")
    assert wrong == []


@pytest.mark.parametrize(("source_place", "target_place"), list(product(PLACES, PLACES)))
@pytest.mark.parametrize("layout", SOURCE_LAYOUTS)
def test_to_between_places_equals_cpu(
    layout: str, source_place: str, target_place: str, device: torch.device
) -> None:
    source = laid_out(layout, torch.float32)
    here = put(source, source_place, device)
    target = locate(target_place, device)
    for dtype, copy, memory_format in product(
        (torch.float32, torch.bfloat16, torch.int32),
        (False, True),
        (torch.preserve_format, torch.contiguous_format),
    ):
        options: dict[str, Any] = {"dtype": dtype, "copy": copy, "memory_format": memory_format}
        moved = here.to(target, **options)
        if here.device == target:
            expected = source.to(**options)
            assert (moved is here) == (expected is source)
        else:
            expected = source.to(**{**options, "copy": True})
        assert difference(expected, moved, target, exact=True) is None
        assert moved.device == target


def test_to_another_index_moves(device: torch.device) -> None:
    first, second = locate("device:0", device), locate("device:1", device)
    moved = GRID.to(first).to(second)
    assert moved.device == second
    assert torch.equal(moved.cpu(), GRID)


def test_copy_to_another_index_is_independent(device: torch.device) -> None:
    source = put(GRID, "device:0", device)
    target = torch.empty_like(source, device=locate("device:1", device)).copy_(source)
    source.zero_()
    assert torch.equal(target.cpu(), GRID)


def _to_meta(x: torch.Tensor) -> Any:
    return x.t().to("meta")


def _meta_takes(x: torch.Tensor) -> Any:
    return torch.empty(3, 4, device="meta").copy_(x)


def _from_meta(x: torch.Tensor) -> Any:
    return x.copy_(torch.empty(3, 4, device="meta"))


def _self_copy(x: torch.Tensor) -> Any:
    return x.copy_(x)


def _broadcast(x: torch.Tensor) -> Any:
    return x.copy_(x[0].clone()), x.copy_(x.new_tensor(3.0))


def _expanded_target(x: torch.Tensor) -> Any:
    return x[:1].expand(3, 4).copy_(x)


def _wrong_shape(x: torch.Tensor) -> Any:
    return x.copy_(x.new_ones(5))


def _complex_to_real(x: torch.Tensor) -> Any:
    return x.copy_(torch.complex(x, x))


def _conj_source(x: torch.Tensor) -> Any:
    z = torch.complex(x, x + 1)
    return torch.empty_like(z).copy_(z.conj()), z.conj().clone(), z.conj().contiguous()


def _conj_target(x: torch.Tensor) -> Any:
    z = torch.complex(x, x + 1)
    return z.conj().copy_(z.clone()), z


def _neg_source_and_target(x: torch.Tensor) -> Any:
    z = torch.complex(x, x + 1)
    return torch.empty_like(x).copy_(z.conj().imag), z.conj().imag.copy_(x), z


def _scalars(x: torch.Tensor) -> Any:
    return x[1, 1].item(), x.tolist(), float(x[0, 0]), bool(x[0, 0]), int(x[2, 3]), repr(x.size())


def _fill_from_zero_dim_cpu(x: torch.Tensor) -> Any:
    return x.fill_(torch.tensor(2.0)), x + torch.tensor(1.5), x.new_tensor([1, 2])


def _clone_formats(x: torch.Tensor) -> Any:
    image = x.view(1, 3, 2, 2)
    last = image.to(memory_format=torch.channels_last)
    return [
        last.clone(),
        last.clone(memory_format=torch.contiguous_format),
        torch.empty_like(last).shape,
        last.is_contiguous(memory_format=torch.channels_last),
    ]


PROGRAMS: tuple[Callable[[torch.Tensor], Any], ...] = (
    _to_meta,
    _meta_takes,
    _from_meta,
    _self_copy,
    _broadcast,
    _expanded_target,
    _wrong_shape,
    _complex_to_real,
    _conj_source,
    _conj_target,
    _neg_source_and_target,
    _scalars,
    _fill_from_zero_dim_cpu,
    _clone_formats,
)


# CPU refuses these, so the device has to.
REFUSED = (_from_meta, _expanded_target, _wrong_shape)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__.strip("_"))
def test_copy_program_equals_cpu(
    program: Callable[[torch.Tensor], Any], device: torch.device
) -> None:
    verdict = judge(lambda target: program(Placement(target)(GRID)), device)
    assert verdict == Verdict(program not in REFUSED)


@pytest.mark.parametrize("lazy", ["conj", "neg"])
@pytest.mark.parametrize("place", PLACES)
def test_lazy_bits_survive_or_are_resolved_on_the_way(
    lazy: str, place: str, device: torch.device
) -> None:
    values = torch.complex(GRID, GRID + 1).conj()
    source = values if lazy == "conj" else values.imag
    target = locate(place, device)
    moved = source.to(target)
    assert torch.equal(
        moved.cpu().resolve_conj().resolve_neg(), source.resolve_conj().resolve_neg()
    )
    assert torch.equal((moved + 1).cpu(), source + 1)


def test_large_copy_equals_cpu(device: torch.device) -> None:
    big = torch.arange(3_000_000, dtype=torch.int32).view(1500, 2000)
    there = big.to(device)
    assert torch.equal(there.t().contiguous().cpu(), big.t().contiguous())
    assert torch.equal(there[::2, 1:].cpu(), big[::2, 1:])


def test_module_moves_there_and_back(device: torch.device) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    parameters = list(module.parameters())
    moved = module.to(device)
    assert [one.device.type for one in moved.parameters()] == [device.type] * len(parameters)
    moved.to("cpu")
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
