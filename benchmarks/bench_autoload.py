"""The entry function that `import torch` calls and the device's first use: how long they take.

Gates: the entry at most 30 ms; the first use of an instance of 64 devices at most 20 ms slower than
that of the default instance. The entry is timed from inside, after `import torch`, since the time
of a fresh process varies by much more; the minimum of 20 fresh processes is judged.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

from harness import parse
from report import Gate, Report, Table

LIMIT_MS, LARGE_LIMIT_MS = 30.0, 20.0
INSTANCES = ("trn2.3xlarge", "trn2.48xlarge")
METHOD = """\
Each sample is a fresh process: `import torch` with TORCH_DEVICE_BACKEND_AUTOLOAD=0, then the entry
point of the group torch.backends is loaded (which imports the package and its extension)
and called. Both together are judged by their minimum: other processes only add to a time. One
process comes before, so that Python finds the package compiled to bytecode, as pip leaves it.
The first use is a tensor of one element and its copy to the CPU, in a process that has imported
torch with the device and done nothing else; the two instances take turns."""
FIRST_USE = """
import time
import torch
start = time.perf_counter_ns()
torch.ones(1, device="neuron").cpu()
print((time.perf_counter_ns() - start) / 1e6)
"""
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
    firsts: dict[str, list[float]] = {name: [] for name in INSTANCES}
    for _ in range(options.rounds):
        for name, times in firsts.items():
            times.append(first_use(name))
    first_rows = [
        (name, f"{min(times):.1f}", f"{statistics.median(times):.1f}", f"{max(times):.1f}")
        for name, times in firsts.items()
    ]
    header = ("instance", *header[1:])
    report.tables.append(Table("First use of the device", header, first_rows))
    small, large = (min(times) for times in firsts.values())
    report.gates.append(Gate("first use of 64 devices, ms more", large - small, LARGE_LIMIT_MS))
    return report.finish(options)


def first_use(instance: str) -> float:
    """Return the milliseconds of the first use of a device of an instance."""
    return float(child(FIRST_USE, {"TORCHNEURON_INSTANCE": instance}))


def sample() -> tuple[float, float]:
    """Return the milliseconds of loading and of calling the entry point in a fresh process."""
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONDONTWRITEBYTECODE": ""}
    load, call = json.loads(child(CHILD, variables))
    return float(load), float(call)


def child(source: str, variables: dict[str, str]) -> str:
    """Run a script in a fresh process and return the last line that it prints."""
    command = [sys.executable, "-c", source]
    environment = os.environ | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench_autoload: the measured process failed\n\n{done.stderr}")
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
