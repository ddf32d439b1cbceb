"""The harness itself: it must see every way in which a device can be wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.compare import difference, same_bits
from conformance.judge import Verdict, judge, results_with_relations
from conformance.layouts import LAYOUTS, relayout
from conformance.placement import CPU, Placement
from conformance.upstream import SampleInput

GRID = torch.arange(6.0).reshape(2, 3)
META = torch.device("meta")


def judged(*results: Callable[[], Any]) -> Verdict:
    """Judge a scenario that gives these results in turn, the last one again and again."""
    calls = list(results)

    def scenario(device: torch.device) -> Any:
        return (calls.pop(0) if len(calls) > 1 else calls[0])()

    return judge(scenario, CPU)


def raise_(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (GRID + 1e-6, "values differ"),
        (GRID.double(), "dtype"),
        (GRID.reshape(3, 2), "shape"),
        (GRID.t().contiguous().t(), "strides"),
        (torch.cat([torch.zeros(1), GRID.reshape(-1)])[1:].view(2, 3), "storage offset"),
        (GRID.clone().requires_grad_(), "requires_grad"),
        (GRID.to_sparse(), "layout"),
        (torch.nn.Parameter(GRID, requires_grad=False), "class"),
        ((GRID,), "builtins.tuple"),
        (None, "NoneType"),
    ],
)
def test_wrong_result_is_seen(wrong: Any, said: str) -> None:
    found = difference(GRID, wrong, CPU, exact=True)
    assert found is not None
    assert said in found.text


def test_wrong_device_is_seen() -> None:
    found = difference(GRID, GRID, META, exact=True)
    assert found is not None
    assert found.text == "result: device meta expected, cpu found"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, float("nan")], [1.0, float("nan")], True),
        ([1.0, float("nan")], [2.0, float("nan")], False),
        ([0.0], [-0.0], False),
        ([float("inf")], [float("-inf")], False),
    ],
)
def test_bits_are_compared_with_any_nan_equal(
    one: list[float], other: list[float], same: bool
) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        left, right = torch.tensor(one, dtype=dtype), torch.tensor(other, dtype=dtype)
        assert same_bits(left, right) is same


def test_nan_of_other_payload_is_equal() -> None:
    payloads = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert same_bits(payloads, payloads.flip(0))


def test_small_difference_fails_where_cpu_repeats_itself() -> None:
    verdict = judged(lambda: GRID, lambda: GRID + 1e-6, lambda: GRID)
    assert verdict.failure is not None
    assert verdict.close


def test_small_difference_passes_where_cpu_does_not() -> None:
    verdict = judged(lambda: GRID, lambda: GRID + 1e-6, lambda: GRID + 2e-6)
    assert verdict == Verdict(True)


def test_large_difference_is_not_close() -> None:
    assert not judged(lambda: GRID, lambda: GRID + 1, lambda: GRID).close


def test_large_difference_fails_where_cpu_does_not_repeat_itself() -> None:
    assert judged(lambda: GRID, lambda: GRID + 1, lambda: GRID + 1e-6).failure is not None


def test_same_class_of_error_is_equal_and_counts_as_rejected() -> None:
    assert judged(lambda: raise_(ValueError("a")), lambda: raise_(ValueError("b"))) == Verdict(
        False
    )


@pytest.mark.parametrize(
    "results",
    [
        (lambda: raise_(ValueError("a")), lambda: GRID),
        (lambda: GRID, lambda: raise_(ValueError("a"))),
        (lambda: raise_(ValueError("a")), lambda: raise_(TypeError("a"))),
        (lambda: raise_(RuntimeError("a")), lambda: raise_(NotImplementedError("a"))),
    ],
)
def test_other_error_is_seen(results: tuple[Callable[[], Any], ...]) -> None:
    assert judged(*results).failure is not None


def test_copy_where_cpu_gives_a_view_is_seen() -> None:
    def viewing() -> Any:
        source = GRID.clone()
        return results_with_relations(source.t(), source)

    def copying() -> Any:
        source = GRID.clone()
        return results_with_relations(source.clone().t(), source)

    assert judged(viewing, viewing) == Verdict(True)
    assert "sharing" in str(judged(viewing, copying).failure)


def test_changed_input_is_seen() -> None:
    def changing(by: float) -> Any:
        source = GRID.clone()
        source += by
        return results_with_relations(None, source)

    assert "inputs" in str(judged(lambda: changing(1), lambda: changing(2)).failure)


def test_placement_keeps_layout_bits_and_sharing() -> None:
    memory = torch.arange(24.0).to(torch.complex64)
    strided = memory.as_strided((2, 3), (1, 4), 5).conj()
    negative = torch._neg_view(memory[2:4])
    leaf = GRID.clone().requires_grad_()
    copies = Placement(CPU)({"a": [strided, negative], "b": (memory, slice(leaf, None)), "c": leaf})
    found = difference(
        [strided, negative, memory, leaf],
        [*copies["a"], copies["b"][0], copies["c"]],
        CPU,
        exact=True,
    )
    assert found is None
    assert copies["b"][1].start is copies["c"]
    copies["b"][0].fill_(7)
    assert torch.equal(copies["a"][0], torch.full((2, 3), 7.0 + 0j))
    assert memory[1] == 1


def test_placement_turns_the_cpu_device_into_the_target() -> None:
    place = Placement(META)
    assert place(["cpu", torch.device("cpu"), "sum", 3]) == ["meta", META, "sum", 3]
    assert place.moved


@pytest.mark.parametrize("layout", LAYOUTS)
def test_relayout_keeps_values_where_it_can(layout: str) -> None:
    rewritten = relayout(SampleInput(GRID.clone()), layout)
    assert rewritten is not None
    if layout in ("transposed", "sliced", "offset"):
        assert torch.equal(rewritten.input, GRID)
    assert relayout(SampleInput(torch.tensor(1.0)), layout) is None or layout == "offset"
