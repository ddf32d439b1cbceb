"""Check one operator of PyTorch's database on sparse tensors, layout by layout."""

from itertools import islice

import torch

from conformance import scenarios
from conformance.depth import Depth
from conformance.judge import Verdict, judge, quiet, seed
from conformance.placement import CPU
from conformance.tally import Results
from conformance.upstream import (
    SPARSE_LAYOUTS,
    OpInfo,
    dtypes_of,
    sparse_error_cases,
    sparse_samples,
)

# The quick depth runs all samples of the first dtype and a few of each other one.
_QUICK_DTYPES = (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool)
_QUICK_SAMPLES = 3

KINDS = tuple(kind for name in SPARSE_LAYOUTS for kind in (name, f"{name}_backward"))


def check(entry: OpInfo, device: torch.device, depth: Depth) -> Results:
    """Run every layout that the entry declares, in every dtype, then what must raise."""
    results = Results()
    for name, layout in SPARSE_LAYOUTS.items():
        if not entry.supports_sparse_layout(layout):
            continue
        for dtype in dtypes_of(entry):
            if not depth.full and dtype not in _QUICK_DTYPES:
                continue
            limit = None if depth.full or dtype == _QUICK_DTYPES[0] else _QUICK_SAMPLES
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
    plain = [scenarios.forward]
    if entry.inplace_variant is not None:
        plain.append(scenarios.inplace)
    runs = [(name, False, plain)]
    if dtype in entry.supported_backward_dtypes("cpu"):
        runs.append((f"{name}_backward", True, [scenarios.backward_of_sparse]))
    values = entry.name not in scenarios.UNINITIALISED
    for kind, requires_grad, programs in runs:
        seed(CPU)
        with quiet():
            made = sparse_samples(entry, SPARSE_LAYOUTS[name], dtype, requires_grad)
            samples = list(islice(made, limit))
        for index, sample in enumerate(samples):
            for program in programs:
                verdict = judge(program(entry, sample), device, values=values)
                results.tally(dtype, kind).add(verdict, f"{program.__name__} sample {index}")
