"""Run one scenario on CPU and on the device under test and judge the pair."""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from conformance.compare import Difference, difference
from conformance.placement import CPU, tensors

_SEED = 1234
CPU_REPEATS = 16

Scenario = Callable[[torch.device], Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one scenario.

    Attributes:
        accepted: CPU ran it without an exception.
        failure: How the device differs from CPU, or None.
        close: The failure is one of rounding: values differ, within the default tolerance.
    """

    accepted: bool
    failure: str | None = None
    close: bool = False


def seed(device: torch.device) -> None:
    """Seed what draws on CPU and on `device`.

    `torch.manual_seed` would also note down a stack for each accelerator that is not there.
    """
    random.seed(_SEED)
    numpy.random.seed(_SEED)
    torch.default_generator.manual_seed(_SEED)
    if device.type not in ("cpu", "meta"):
        torch.get_device_module(device).manual_seed_all(_SEED)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings: samples provoke many, and they are not compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def judge(
    scenario: Scenario, device: torch.device, *, values: bool = True, exact: bool = True
) -> Verdict:
    """Compare what `scenario` gives on CPU with what it gives on `device`.

    Equal bits are asked for where CPU repeats itself exactly, which is checked by running
    CPU again only if the bits differ; else closeness at the default tolerance of the dtype.

    Args:
        scenario: Builds its arguments on the device it is given and returns a tree of results.
        device: The device under test.
        values: False for results whose numbers mean nothing (uninitialised memory).
        exact: False where CPU is known not to repeat itself, so that trying is no proof.
    """
    expected, cpu_error = _attempt(scenario, CPU)
    actual, error = _attempt(scenario, device)
    if cpu_error is not None or error is not None:
        return Verdict(cpu_error is None, _compare_errors(cpu_error, error))
    found = difference(expected, actual, device, exact=True)
    if found is None or (found.values_only and not values):
        return Verdict(True)
    if not found.values_only:
        return Verdict(True, found.text)
    apart = difference(expected, actual, device, exact=False)
    if exact and _cpu_repeats(scenario, expected):
        return Verdict(True, found.text, close=apart is None)
    return Verdict(True, apart.text if apart else None)


def results_with_relations(results: Any, inputs: Any) -> dict[str, Any]:
    """Return what a call left behind: results, inputs after it, and who shares memory.

    Args:
        results: What the call returned.
        inputs: Its tensors, as they are after the call.
    """
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    for tensor in tensors(inputs):
        objects.setdefault(id(tensor), len(objects))
        memory.setdefault(_memory(tensor), len(memory))
    relations: list[tuple[Any, ...]] = []
    returned = list(tensors(results))
    for tensor in returned:
        shared = memory.get(_memory(tensor))
        # A view of memory that nobody else holds is as good as a tensor of its own.
        is_view = shared is not None and tensor._is_view()
        relations.append((objects.get(id(tensor)), shared, is_view))
        objects.setdefault(id(tensor), len(objects))
        memory.setdefault(_memory(tensor), len(memory))
    return {"result": results, "sharing": relations, "inputs": list(tensors(inputs))}


def _memory(tensor: torch.Tensor) -> int:
    """Return the address of the tensor's storage, or of the object where there is none."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.device.type == "meta":
        return id(tensor)
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _attempt(scenario: Scenario, device: torch.device) -> tuple[Any, Exception | None]:
    seed(device)
    with quiet():
        try:
            return scenario(device), None
        except Exception as error:  # noqa: BLE001 - any class of exception is a result here
            return None, error


def _compare_errors(cpu_error: Exception | None, error: Exception | None) -> str | None:
    if type(cpu_error) is type(error):
        return None
    return f"{_describe(cpu_error)} expected, {_describe(error)} found"


def _describe(error: Exception | None) -> str:
    if error is None:
        return "no error"
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} ({lines[0][:200]})"


def _cpu_repeats(scenario: Scenario, expected: Any) -> bool:
    """Say whether CPU gives the same bits again, also with its memory elsewhere."""
    held: list[torch.Tensor] = []
    for repeat in range(CPU_REPEATS):
        held.extend(torch.full((8 * (1 + (repeat + i) % 5),), torch.nan) for i in range(repeat))
        again, error = _attempt(scenario, CPU)
        found: Difference | None = None
        if error is None:
            found = difference(expected, again, CPU, exact=True)
        if error is not None or found is not None:
            return False
    return True
