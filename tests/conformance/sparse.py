"""Check one operator of PyTorch's database on sparse tensors, layout by layout."""

from collections.abc import Callable
from itertools import islice

import torch

from conformance import scenarios
from conformance.depth import Depth
from conformance.judge import Scenario, Verdict, judge, quiet, seed
from conformance.placement import CPU
from conformance.tally import Results
from conformance.upstream import (
    SPARSE_LAYOUTS,
    OpInfo,
    SampleInput,
    dtypes_of,
    sparse_error_cases,
    sparse_samples,
)

# The quick depth runs all samples of this dtype, and so many of each other one.
_WHOLE_DTYPE = torch.float32
_QUICK_SAMPLES = 3

KINDS = tuple(kind for name in SPARSE_LAYOUTS for kind in (name, f"{name}_backward"))


def check(entry: OpInfo, device: torch.device, depth: Depth) -> Results:
    """Run every layout that the entry declares, in every dtype, then what must raise."""
    results = Results()
    for name, layout in SPARSE_LAYOUTS.items():
        if not entry.supports_sparse_layout(layout):
            continue
        for dtype in dtypes_of(entry):
            limit = None if depth.full or dtype == _WHOLE_DTYPE else _QUICK_SAMPLES
            _check(entry, dtype, name, limit, device, results)
        for index, sample in enumerate(sparse_error_cases(entry, layout)):
            verdict = judge(scenarios.forward(entry, sample), device, values=False)
            # That CPU rejects the input is the point here, so it counts as accepted.
            counted = Verdict(True, verdict.failure)
            results.tally(None, "error_inputs").add(counted, f"{name} error input {index}")
    return results


def _check(
    entry: OpInfo,
    dtype: torch.dtype,
    name: str,
    limit: int | None,
    device: torch.device,
    results: Results,
) -> None:
    programs: list[tuple[str, bool, Callable[[OpInfo, SampleInput], Scenario]]]
    programs = [(name, False, scenarios.forward)]
    if entry.inplace_variant is not None:
        programs.append((name, False, scenarios.inplace))
    if dtype in entry.supported_backward_dtypes("cpu"):
        programs.append((f"{name}_backward", True, scenarios.backward_of_sparse))
    for kind, requires_grad, program in programs:
        seed(CPU)
        with quiet():
            samples = list(
                islice(sparse_samples(entry, SPARSE_LAYOUTS[name], dtype, requires_grad), limit)
            )
        values = entry.name not in scenarios.UNINITIALISED
        for index, sample in enumerate(samples):
            verdict = judge(program(entry, sample), device, values=values)
            results.tally(dtype, kind).add(verdict, f"{program.__name__} sample {index}")
