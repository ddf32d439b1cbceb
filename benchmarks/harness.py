"""The method of the benchmarks: interleaved pairs in one process, medians of ratios.

A time on a shared machine says little; a ratio of two times taken milliseconds apart says
a lot. So every comparison here runs both sides in one process and in turn, and what is
judged is the median of the ratios of neighbouring blocks, never a time.
"""

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import torch

REPORTS = Path(__file__).parent / "reports"
MIN_BLOCK_S = 2e-3
WARM_UP_CALLS = 10
Side = Callable[[], object]

METHOD = f"""\
Both sides run in one process with one thread. A block is as many calls as take at least
{MIN_BLOCK_S * 1e3:g} ms on the faster side, the same number on both. Blocks alternate
cpu, device, device, cpu; each neighbouring couple gives one ratio device/cpu, so that a
machine which slows down or speeds up does so for both. The ratio in a table is the median of
these ratios; below 1 the device was faster. At least {WARM_UP_CALLS} calls of each side come
first, the garbage collector is off inside a block. Times are medians and only indicative: the
machine is not reserved for this."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of a benchmark says."""

    device: torch.device
    smoke: bool
    rounds: int
    out: Path


@dataclass(frozen=True, slots=True)
class Pair:
    """The result of one comparison; a ratio below 1 means that the device was faster."""

    label: str
    cpu_us: float
    device_us: float
    ratio: float
    low: float
    high: float
    num_ratios: int
    calls: int


def parse(
    description: str | None, *, rounds: int, arguments: Sequence[str] | None = None
) -> Options:
    """Read the options that every benchmark has and pin one thread.

    Args:
        description: the docstring of the benchmark, of which the first line is shown.
        rounds: the default for --rounds.
        arguments: the command line, or None for that of the process.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--device", default="neuron", help="compared with cpu (default: neuron)")
    parser.add_argument(
        "--smoke", action="store_true", help="run in seconds, judge and write nothing"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default: {rounds}")
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder of the report")
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(1)
    num_rounds = 1 if parsed.smoke else parsed.rounds
    return Options(torch.device(parsed.device), parsed.smoke, num_rounds, parsed.out)


def pair(label: str, cpu: Side, device: Side, *, rounds: int, smoke: bool = False) -> Pair:
    """Compare two sides that do the same work.

    Both sides are called equally often, so that two models trained by them have made the same
    steps. A round is four blocks and gives two ratios. With `smoke` a block is a single call.
    """
    calls = 1 if smoke else calls_per_block(cpu, device)
    cpu_s: list[float] = []
    device_s: list[float] = []
    for _ in range(rounds):
        cpu_s.append(block_seconds(cpu, calls))
        device_s += [block_seconds(device, calls), block_seconds(device, calls)]
        cpu_s.append(block_seconds(cpu, calls))
    ratios = sorted(of_device / of_cpu for of_device, of_cpu in zip(device_s, cpu_s, strict=True))
    return Pair(
        label=label,
        cpu_us=1e6 * statistics.median(cpu_s) / calls,
        device_us=1e6 * statistics.median(device_s) / calls,
        ratio=statistics.median(ratios),
        low=ratios[len(ratios) // 4],
        high=ratios[-1 - len(ratios) // 4],
        num_ratios=len(ratios),
        calls=calls,
    )


def calls_per_block(*sides: Side) -> int:
    """Warm the sides up and return how many calls the fastest needs for a block."""
    calls = WARM_UP_CALLS
    while True:
        shortest_s = min(block_seconds(side, calls) for side in sides)
        if shortest_s >= MIN_BLOCK_S:
            # The first guess may be far too long for a model's step.
            return min(calls, math.ceil(1.3 * calls * MIN_BLOCK_S / shortest_s))
        calls = math.ceil(calls * min(8.0, 1.3 * MIN_BLOCK_S / shortest_s))


def block_seconds(side: Side, calls: int) -> float:
    """Return the seconds that `calls` calls take, without the garbage collector."""
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        for _ in repeat(None, calls):
            side()
        return (time.perf_counter_ns() - start) / 1e9
    finally:
        if gc_was_on:
            gc.enable()


def geomean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return statistics.geometric_mean(values)
