"""The entry function that `import torch` calls: how long it takes.

Gate: at most 30 ms. It is timed from inside, after `import torch`, since the time of a fresh
process varies by much more; the minimum of 20 fresh processes is judged.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

from harness import parse
from report import Gate, Report, Table

LIMIT_MS = 30.0
METHOD = """\
Each sample is a fresh process: `import torch` with TORCH_DEVICE_BACKEND_AUTOLOAD=0, then the entry
point of the group torch.backends is loaded (which imports the package and its extension)
and called. Both together are judged by their minimum: other processes only add to a time. One
process comes before, so that Python finds the package compiled to bytecode, as pip leaves it."""
CHILD = """
import importlib.metadata, json, time
import torch
points = importlib.metadata.entry_points(group="torch.backends")
[point] = [point for point in points if point.value.partition(".")[0] == "torchneuron"]
start = time.perf_counter_ns()
entry = point.load()
loaded = time.perf_counter_ns()
entry()
called = time.perf_counter_ns()
assert torch._C._get_privateuse1_backend_name() == "neuron", "the device was not registered"
print(json.dumps([(loaded - start) / 1e6, (called - loaded) / 1e6]))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the entry function in fresh processes; --rounds is their number."""
    options = parse(__doc__, rounds=20, arguments=arguments)
    report = Report("autoload", "The autoload entry function", METHOD)
    sample()
    samples = [sample() for _ in range(options.rounds)]
    columns = {
        "load": [load for load, _ in samples],
        "call": [call for _, call in samples],
        "both": [load + call for load, call in samples],
    }
    rows = [
        (name, f"{min(times):.1f}", f"{statistics.median(times):.1f}", f"{max(times):.1f}")
        for name, times in columns.items()
    ]
    header = ("part", "minimum ms", "median ms", "maximum ms")
    report.tables.append(Table(f"{len(samples)} processes", header, rows))
    report.gates.append(Gate("minimum of both, in ms", min(columns["both"]), LIMIT_MS))
    return report.finish(options)


def sample() -> tuple[float, float]:
    """Return the milliseconds of loading and of calling the entry point in a fresh process."""
    environment = os.environ | {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench_autoload: the measured process failed\n\n{done.stderr}")
    load, call = json.loads(done.stdout.splitlines()[-1])
    return float(load), float(call)


if __name__ == "__main__":
    sys.exit(main())
