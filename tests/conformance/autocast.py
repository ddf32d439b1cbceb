"""Check autocast on a device: the dtype of each operator that CUDA's lists name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from conformance.compare import difference
from conformance.judge import Verdict, quiet, seed
from conformance.placement import CPU, Placement, map_leaves
from conformance.tally import Results
from conformance.upstream import AutocastTestLists

AUTOCAST_DTYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class _Row:
    """One call; `run_in` and `result` are dtypes, None standing for autocast's own."""

    name: str
    args: tuple[Any, ...]
    run_in: torch.dtype | None
    result: torch.dtype | None
    kwargs: dict[str, Any] = field(default_factory=dict)


_NAMESPACES: dict[str, ModuleType | type] = {
    "torch": torch,
    "nn": torch._C._nn,
    "linalg": torch._C._linalg,
    "methods": torch.Tensor,
}

# List of upstream's, in which namespace to call, and in which dtype autocast has to run it.
LISTS: dict[str, tuple[str, torch.dtype | None]] = {
    "torch_fp16": ("torch", None),
    "torch_fp32": ("torch", torch.float32),
    "torch_need_autocast_promote": ("torch", torch.float32),
    "torch_expect_builtin_promote": ("torch", torch.float32),
    "nn_fp16": ("nn", None),
    "nn_fp32": ("nn", torch.float32),
    "linalg_fp16": ("linalg", None),
    "methods_fp16": ("methods", None),
    "methods_fp32": ("methods", torch.float32),
    "methods_expect_builtin_promote": ("methods", torch.float32),
}


def check(list_name: str, device: torch.device) -> Results:
    """Run the calls of one list under autocast on `device`.

    Each result must have the dtype that the list promises, and the bits of the same call
    outside autocast with arguments cast by hand.
    """
    results = Results()
    namespace, run_in = LISTS[list_name]
    for dtype in AUTOCAST_DTYPES:
        seed(CPU)
        for index, row in enumerate(_rows(list_name, run_in, dtype)):
            for function in _variants(namespace, row):
                with quiet():
                    failure = _failure(function, row, dtype, device)
                verdict = Verdict(True, failure)
                results.tally(dtype, "autocast").add(verdict, f"call {index} {row.name}")
    return results


def check_banned(device: torch.device) -> Results:
    """Run what autocast forbids: it has to raise RuntimeError."""
    results = Results()
    for dtype in AUTOCAST_DTYPES:
        for name, args, namespace in AutocastTestLists("cpu").banned:
            moved = Placement(device)(args)
            failure: str | None = f"{name} did not raise RuntimeError"
            with quiet(), torch.autocast(device.type, dtype=dtype):
                try:
                    getattr(namespace, name)(*moved)
                except RuntimeError:
                    failure = None
            results.tally(dtype, "autocast").add(Verdict(True, failure), name)
    return results


def _rows(list_name: str, run_in: torch.dtype | None, dtype: torch.dtype) -> Iterator[_Row]:
    """Yield the rows of a list, with `dtype` where upstream wrote float16."""
    for name, args, *rest in getattr(AutocastTestLists("cpu"), list_name):
        if name.startswith("cudnn"):
            continue
        if isinstance(args, str):  # upstream's own test passes this row (einsum) over as well
            continue
        extra = rest[0] if rest else None
        kwargs = extra if isinstance(extra, dict) else {}
        result = extra if isinstance(extra, torch.dtype) else run_in
        yield _Row(name, _cast(tuple(args), dtype, only=torch.float16), run_in, result, kwargs)


def _variants(namespace: str, row: _Row) -> list[Callable[..., Any]]:
    owners = [_NAMESPACES[namespace]]
    if namespace == "torch":
        owners.append(torch.Tensor)
    found = [getattr(owner, row.name) for owner in owners if hasattr(owner, row.name)]
    return found if isinstance(row.args[0], torch.Tensor) else found[:1]


def _failure(
    function: Callable[..., Any], row: _Row, dtype: torch.dtype, device: torch.device
) -> str | None:
    args = Placement(device)(row.args)
    run_in = row.run_in or dtype
    try:
        with torch.autocast(device.type, dtype=dtype):
            found = function(*args, **row.kwargs)
        control = function(*_cast(args, run_in), **row.kwargs)
    except Exception as error:  # noqa: BLE001 - any class of exception is a finding here
        return f"raised {type(error).__name__}: {str(error).splitlines()[0]}"
    wanted = row.result or dtype
    if isinstance(found, torch.Tensor) and found.dtype != wanted:
        return f"{wanted} expected, {found.dtype} found"
    on_cpu = map_leaves(_to_cpu, control), map_leaves(_to_cpu, found)
    gap = difference(*on_cpu, CPU, exact=True)
    return gap.text if gap else None


def _cast(
    args: tuple[Any, ...], dtype: torch.dtype, only: torch.dtype | None = None
) -> tuple[Any, ...]:
    """Cast floating tensors; with `only`, those of that dtype."""

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.to(dtype) if only in (None, value.dtype) else value

    return map_leaves(leaf, args)


def _to_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
