"""Compile on the device and compare with the CPU; programs in a cache of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import torchneuron
from behaviour.subject import DEVICE, moved, with_gradients
from torchneuron.ledger import Explanation
from torchneuron.runtime.cache import user_cache


@contextmanager
def own_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep programs in a folder, and let Dynamo forget what it compiled before and after."""
    monkeypatch.setenv("TORCHNEURON_CACHE_DIR", str(folder))
    user_cache.cache_clear()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    user_cache.cache_clear()


def num_programs(report: Explanation) -> int:
    """Return how many programs a block compiled or loaded."""
    found = report.to_dict()
    return sum(record["count"] for key in ("compiles", "cache_hits") for record in found[key])


def assert_close(actual: Any, expected: Any) -> None:
    """Check a tree of device results against CPU results.

    By PyTorch's tolerance for the dtype, a wider one for float32: a program takes sums in another
    order than eager code (as compile.operators).
    """
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    for got, want in zip(actual_leaves, expected_leaves, strict=True):
        if isinstance(want, torch.Tensor):
            assert got.device.type == DEVICE, f"the result lies on {got.device}"
            wider = {"rtol": 1e-4, "atol": 2e-5} if want.dtype == torch.float32 else {}
            torch.testing.assert_close(got.detach().cpu(), want.detach(), equal_nan=True, **wider)
        else:
            assert got == want


def assert_compiles_the_same(
    fn: Callable[..., Any],
    *args: Any,
    gradients: bool = False,
    eager: frozenset[str] = frozenset(),
    **options: Any,
) -> Any:
    """Compare a compiled function on the device with the function on the CPU.

    Args:
        fn: The function.
        args: Its arguments, on the CPU; copies are used.
        gradients: Whether gradients of the arguments are compared too.
        eager: The calls that may run eagerly, beside at least one program.
        options: Of `torch.compile`.

    Returns:
        The device result.
    """
    wrap = with_gradients if gradients else _as_it_is
    expected = wrap(fn)(*moved(args, "cpu"))
    with torchneuron.explain() as report:
        actual = wrap(torch.compile(fn, backend="neuron", **options))(*moved(args))
    assert num_programs(report) > 0
    assert {record["op"] for record in report.to_dict()["host_fallbacks"]} == eager
    assert_close(actual, expected)
    return actual


def _as_it_is(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn
