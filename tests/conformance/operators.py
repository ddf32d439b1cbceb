"""Check one operator of PyTorch's database on a device."""

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import torch

from conformance import scenarios
from conformance.depth import MAX_SAMPLES, Depth
from conformance.judge import Scenario, Verdict, judge, quiet, seed
from conformance.layouts import LAYOUTS, relayout
from conformance.placement import CPU
from conformance.tally import Results, Tally
from conformance.upstream import OpInfo, SampleInput, dtypes_of, error_cases, samples, takes_out

_Item = TypeVar("_Item")

# The quick depth starts at another one of the first samples for each dtype.
_TURNED_SAMPLES = 6


def check(entry: OpInfo, device: torch.device, depth: Depth) -> Results:
    """Run every dtype that CPU takes, then what upstream says must raise."""
    results = Results()
    for position, dtype in enumerate(dtypes_of(entry)):
        _check_forward(entry, dtype, position, device, depth, results)
        if dtype in entry.supported_backward_dtypes("cpu"):
            _check_backward(entry, dtype, position, device, depth, results)
    _check_errors(entry, device, results)
    return results


def _check_forward(
    entry: OpInfo,
    dtype: torch.dtype,
    position: int,
    device: torch.device,
    depth: Depth,
    results: Results,
) -> None:
    forward = results.tally(dtype, "forward")
    for label, sample in _samples(entry, dtype, False, position, depth, forward):
        verdict = _judge(entry, scenarios.forward(entry, sample), device)
        forward.add(verdict, label)
        if not verdict.accepted:
            continue
        for kind, name, scenario in _variants(entry, sample, position, depth):
            verdict = _judge(entry, scenario, device, name)
            results.tally(dtype, kind).add(verdict, f"{label} {name}".rstrip())


def _judge(entry: OpInfo, scenario: Scenario, device: torch.device, variant: str = "") -> Verdict:
    empty = variant.startswith("zero") and entry.name in scenarios.UNINITIALISED_WHEN_EMPTY
    values = not empty and entry.name not in scenarios.UNINITIALISED
    exact = entry.name not in scenarios.NOT_REPEATABLE
    return judge(scenario, device, values=values, exact=exact)


def _check_backward(
    entry: OpInfo,
    dtype: torch.dtype,
    position: int,
    device: torch.device,
    depth: Depth,
    results: Results,
) -> None:
    tally = results.tally(dtype, "backward")
    for label, sample in _samples(entry, dtype, True, position, depth, tally):
        tally.add(_judge(entry, scenarios.backward(entry, sample), device), label)


def _check_errors(entry: OpInfo, device: torch.device, results: Results) -> None:
    seed(CPU)
    with quiet():
        cases = error_cases(entry)
    for index, sample in enumerate(cases):
        verdict = judge(scenarios.forward(entry, sample), device, values=False)
        # That CPU rejects the input is the point here, so it counts as accepted.
        counted = Verdict(True, verdict.failure)
        results.tally(None, "error_inputs").add(counted, f"error input {index}")


def _samples(
    entry: OpInfo,
    dtype: torch.dtype,
    requires_grad: bool,
    position: int,
    depth: Depth,
    tally: Tally,
) -> Iterator[tuple[str, SampleInput]]:
    """Yield labelled samples until CPU accepted as many as `depth` asks for."""
    made = enumerate(_quietly(samples(entry, dtype, requires_grad, MAX_SAMPLES)))
    first = list(islice(made, 1 if depth.full else _TURNED_SAMPLES))
    for part in (iter(_turned(first, position)), made):
        for index, sample in part:
            if tally.accepted >= depth.samples:
                return
            yield f"sample {index}", sample


def _quietly(made: Iterator[SampleInput]) -> Iterator[SampleInput]:
    while True:
        seed(CPU)
        with quiet():
            sample = next(made, None)
        if sample is None:
            return
        yield sample


def _variants(
    entry: OpInfo, sample: SampleInput, position: int, depth: Depth
) -> Iterator[tuple[str, str, Scenario]]:
    """Yield kind, label and scenario of everything else to do with an accepted sample."""
    rewritten = ((name, relayout(sample, name)) for name in _turned(list(LAYOUTS), position))
    changed = ((name, other) for name, other in rewritten if other is not None)
    for name, other in islice(changed, depth.layouts):
        yield "layout", name, scenarios.forward(entry, other)
    if entry.inplace_variant is not None:
        yield "inplace", "", scenarios.inplace(entry, sample)
    if takes_out(entry):
        for style in _turned(list(scenarios.OUT_STYLES), position)[: depth.out_styles]:
            yield "out", style, scenarios.out(entry, sample, style)


def _turned(items: list[_Item], position: int) -> list[_Item]:
    turn = position % len(items) if items else 0
    return items[turn:] + items[:turn]
