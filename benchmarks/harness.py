"""The method of the benchmarks: interleaved pairs in one process, medians of ratios.

A time on a shared machine says little; a ratio of two times taken milliseconds apart says
a lot. So every comparison here runs both sides in one process and in turn, and what is
judged is the median of the ratios of neighbouring blocks, never a time.
"""

import argparse
import gc
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import torch

REPORTS = Path(__file__).parent / "reports"
MIN_BLOCK_S = 2e-3
WARM_UP_BLOCKS, WARM_UP_CALLS = 4, 2
MAX_EXTRA = 5
LONG_BLOCK_S = 20e-3
MIN_ROUNDS, MAX_PAIR_S = 3, 120
Side = Callable[[], object]

METHOD = f"""\
Both sides run in one process with one thread. A block is as many calls as take at least
{MIN_BLOCK_S * 1e3:g} ms on the faster side, the same number on both. Blocks alternate
cpu, device, device, cpu; each neighbouring couple gives one ratio device/cpu, so that a
machine which slows down or speeds up does so for both. A couple during which the operating
system took the core away for another process is left out; up to {MAX_EXTRA} times the rounds are
made to have enough of the others (not where a block takes over {LONG_BLOCK_S * 1e3:g} ms), and
where even that does not give half of them, all count. The ratio in a table is the median; below
1 the device was faster. Both sides are called before, the garbage collector is off inside a
block. After {MAX_PAIR_S} s a case ends with the rounds it has, {MIN_ROUNDS} at least. Times are
medians and only indicative: the machine is not reserved for this."""


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
    num_judged: int
    num_couples: int
    calls: int


@dataclass(frozen=True, slots=True)
class Couple:
    """Two neighbouring blocks, one on each side."""

    cpu_s: float
    device_s: float
    was_preempted: bool


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


def measure(builds: Mapping[str, Callable[[torch.device], Side]], options: Options) -> list[Pair]:
    """Compare each case on the device with itself on the CPU."""
    cpu = torch.device("cpu")
    return [
        pair(label, build(cpu), build(options.device), rounds=options.rounds, smoke=options.smoke)
        for label, build in builds.items()
    ]


def pair(label: str, cpu: Side, device: Side, *, rounds: int, smoke: bool = False) -> Pair:
    """Compare two sides that do the same work.

    Both sides are called equally often, so that two models trained by them have made the same
    steps. A round is four blocks and gives two ratios. With `smoke` a block is a single call.
    """
    calls = 1 if smoke else calls_per_block(cpu, device)
    couples: list[Couple] = []
    start_s = time.monotonic()
    for num_rounds in range(1, rounds * MAX_EXTRA + 1):
        couples.append(_couple(cpu, device, calls, cpu_first=True))
        couples.append(_couple(cpu, device, calls, cpu_first=False))
        is_long = couples[-1].cpu_s > LONG_BLOCK_S
        wanted = 0 if smoke or is_long else 2 * rounds
        num_undisturbed = sum(not couple.was_preempted for couple in couples)
        if num_rounds >= rounds and num_undisturbed >= wanted:
            break
        if num_rounds >= MIN_ROUNDS and time.monotonic() - start_s > MAX_PAIR_S:
            break
    judged = [couple for couple in couples if not couple.was_preempted]
    if len(judged) < rounds:
        judged = couples
    ratios = sorted(couple.device_s / couple.cpu_s for couple in judged)
    return Pair(
        label=label,
        cpu_us=1e6 * statistics.median(couple.cpu_s for couple in judged) / calls,
        device_us=1e6 * statistics.median(couple.device_s for couple in judged) / calls,
        ratio=statistics.median(ratios),
        low=ratios[len(ratios) // 4],
        high=ratios[-1 - len(ratios) // 4],
        num_judged=len(judged),
        num_couples=len(couples),
        calls=calls,
    )


def _couple(cpu: Side, device: Side, calls: int, *, cpu_first: bool) -> Couple:
    before = _num_preemptions()
    if cpu_first:
        cpu_s = block_seconds(cpu, calls)
        device_s = block_seconds(device, calls)
    else:
        device_s = block_seconds(device, calls)
        cpu_s = block_seconds(cpu, calls)
    return Couple(cpu_s, device_s, was_preempted=_num_preemptions() != before)


def _num_preemptions() -> int:
    """Return how often the operating system has taken the core from this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def median_call_seconds(side: Side, num_blocks: int) -> float:
    """Return the median seconds of a call where there is nothing to interleave with.

    As in `pair`, blocks that another process disturbed are left out if enough others remain.
    """
    calls = calls_per_block(side)
    times: list[float] = []
    undisturbed: list[float] = []
    while len(undisturbed) < num_blocks and len(times) < num_blocks * MAX_EXTRA:
        before = _num_preemptions()
        times.append(block_seconds(side, calls))
        if _num_preemptions() == before:
            undisturbed.append(times[-1])
    enough = undisturbed if len(undisturbed) >= num_blocks / 2 else times
    return statistics.median(enough) / calls


def calls_per_block(*sides: Side) -> int:
    """Warm the sides up and return how many calls the fastest needs for a block.

    Every side is called equally often.
    """
    if min(block_seconds(side, 1) for side in sides for _ in range(2)) > LONG_BLOCK_S:
        return 1
    calls = WARM_UP_CALLS
    while True:
        # The shortest of some blocks: another process can only make one longer.
        shortest_s = min(
            block_seconds(side, calls) for side in sides for _ in range(WARM_UP_BLOCKS)
        )
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
