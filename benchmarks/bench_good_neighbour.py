"""A CPU program beside the loaded but unused device: whether it keeps its speed.

Gate: the geometric mean of all cases at most 1.02 of the same program without us. With
`--device cpu` neither side loads anything, which shows the noise of the method.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness import geomean, parse
from report import Gate, Report, Table

LIMIT = 1.02
CHILD = Path(__file__).with_name("neighbour_cases.py")
METHOD = """\
Fresh processes in turn, one with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and one with the device loaded
and never used; the first of a pair alternates. Each process pins one thread and takes the
median of 41 blocks of at least 2 ms per case, without those during which the operating system
took the core away for another process, as long as half of the 41 remain. The ratio loaded / not
loaded is taken per pair of processes; a table shows the median over the pairs. One process of
each kind comes before, so that Inductor finds its kernels compiled."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs of processes; --rounds is their number."""
    options = parse(__doc__, rounds=20, arguments=arguments)
    report = Report("good_neighbour", "A CPU program beside the loaded device", METHOD)
    loads = options.device.type != "cpu"
    without: list[dict[str, float]] = []
    loaded: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as cache:
        if not options.smoke:
            run(cache, loads=False, smoke=False)
            run(cache, loads=loads, smoke=False)
        for index in range(options.rounds):
            if index % 2:
                loaded.append(run(cache, loads=loads, smoke=options.smoke))
            without.append(run(cache, loads=False, smoke=options.smoke))
            if not index % 2:
                loaded.append(run(cache, loads=loads, smoke=options.smoke))

    rows, ratios = [], []
    for case in without[0]:
        of_pairs = sorted(
            one[case] / other[case] for one, other in zip(loaded, without, strict=True)
        )
        ratios.append(statistics.median(of_pairs))
        quarter = len(of_pairs) // 4
        rows.append(
            (
                case,
                f"{statistics.median(times[case] for times in without):.2f}",
                f"{statistics.median(times[case] for times in loaded):.2f}",
                f"{ratios[-1]:.3f}",
                f"{of_pairs[quarter]:.2f}-{of_pairs[-1 - quarter]:.2f}",
            )
        )
    mean = geomean(ratios)
    header = ("case", "not loaded us", "loaded us", "ratio", "quartiles")
    note = f"Geometric mean of the {len(ratios)} ratios: {mean:.3f}."
    report.tables.append(Table(f"{len(loaded)} pairs of processes", header, rows, note))
    report.gates.append(Gate(f"geometric mean of {len(ratios)} cases", mean, LIMIT))
    return report.finish(options)


def run(cache: str, *, loads: bool, smoke: bool) -> dict[str, float]:
    """Return microseconds by case, measured in a fresh process."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": cache,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if loads else "0",
    }
    command = [sys.executable, str(CHILD), *(["--smoke"] if smoke else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench_good_neighbour: the measured process failed\n\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    if (result["slot"] == "neuron") != loads:
        state = "was not loaded where it should be" if loads else "was loaded all the same"
        raise SystemExit(f"bench_good_neighbour: the device {state}; slot {result['slot']!r}")
    return {case: float(microseconds) for case, microseconds in result["us"].items()}


if __name__ == "__main__":
    sys.exit(main())
