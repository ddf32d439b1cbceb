"""What compiling and calling cost: the first call, a call of one operator, a new length.

Gates: cold first call at most a third of Inductor's, warm at most Inductor's; a call of two inputs
and one operator at most twice Inductor's; a new length under dynamic sizes at most half of a static
recompilation.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from harness import METHOD, Options, pair, parse
from report import PAIR_HEADER, Gate, Report, Table, pair_row

COLD_LIMIT, WARM_LIMIT, CALL_LIMIT, LENGTH_LIMIT = 1 / 3, 1.0, 2.0, 0.5
FIRST_CALLS = ("GPT, training", "ResNet-18, training", "Llama d256 L4 decode, static cache")
FIRST_METHOD = """\
A first call is that of a fresh process, with Dynamo and everything behind it: cold with an empty
cache directory, warm with the one that the cold process left. The two compilers take turns.
Inductor compiles for the CPU. A new length is one that the GPT has not seen, forward only, with an
empty cache: under dynamic=True one program more, under dynamic=False all of Dynamo again."""
CHILD = """
import json, sys, time
sys.path.insert(0, {folder!r})
import torch
from compile_cases import CASES
torch.set_num_threads(1)
build, train = CASES[{case!r}]
torch.manual_seed(0)
step = build(torch.device({device!r}), torch.compile, {smoke}, torch.float32, train)
start = time.monotonic()
step()
print(json.dumps(time.monotonic() - start))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; --rounds is the number of pairs of fresh processes for each case."""
    options = parse(__doc__, rounds=3, arguments=arguments)
    report = Report("compile_calls", "First calls, calls, new lengths", f"{METHOD}\n{FIRST_METHOD}")
    one_call(options, report)
    new_lengths(options, report)
    first_calls(options, report)
    return report.finish(options)


def one_call(options: Options, report: Report) -> None:
    """Compare a call of two inputs and one operator."""

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def other_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    sides: list[Callable[[], object]] = []
    for function, device in ((add, torch.device("cpu")), (other_add, options.device)):
        a, b = (torch.ones(8, 8).to(device) for _ in range(2))
        compiled = torch.compile(function)
        sides.append(lambda compiled=compiled, a=a, b=b: compiled(a, b))  # type: ignore[misc]
    found = pair("a + b, 8x8", *sides, rounds=10, smoke=options.smoke)
    report.tables.append(Table("One operator, beside Inductor", PAIR_HEADER, [pair_row(found)]))
    report.gates.append(Gate("call of one operator beside Inductor", found.ratio, CALL_LIMIT))


def new_lengths(options: Options, report: Report) -> None:
    """Time lengths that are new to a dynamic and to a static compilation, in turn."""
    from model_cases import GPT

    model = GPT(32 if options.smoke else 256, 1 if options.smoke else 4, 256).to(options.device)
    position = model.position

    def scores(tokens: torch.Tensor) -> object:
        return model.head(model.blocks(model.embed(tokens) + position[: tokens.shape[1]]))

    def other_scores(tokens: torch.Tensor) -> object:
        return model.head(model.blocks(model.embed(tokens) + position[: tokens.shape[1]]))

    torch._dynamo.config.recompile_limit = 64
    dynamic = torch.compile(scores, backend="neuron", dynamic=True)
    static = torch.compile(other_scores, backend="neuron", dynamic=False)
    times: dict[str, list[float]] = {"dynamic": [], "static": []}
    with torch.no_grad():
        dynamic(torch.zeros(2, 9, dtype=torch.int64).to(options.device))
        static(torch.zeros(2, 8, dtype=torch.int64).to(options.device))
        for place in range(1 if options.smoke else 6):
            for number, (name, call) in enumerate((("dynamic", dynamic), ("static", static))):
                tokens = torch.zeros(2, 33 + 30 * place + number, dtype=torch.int64)
                tokens = tokens.to(options.device)
                start = time.monotonic()
                call(tokens)
                times[name].append(time.monotonic() - start)
    medians = {name: statistics.median(each) for name, each in times.items()}
    rows = [(name, str(len(times[name])), f"{each:.2f}") for name, each in medians.items()]
    report.tables.append(Table("A new length", ("compilation", "lengths", "median s"), rows))
    ratio = medians["dynamic"] / medians["static"]
    report.gates.append(Gate("new length, dynamic beside static", ratio, LENGTH_LIMIT))


def first_calls(options: Options, report: Report) -> None:
    """Time first calls in fresh processes, the compilers in turn."""
    rows = []
    ratios: dict[str, list[float]] = {"cold": [], "warm": []}
    for case in FIRST_CALLS[: 1 if options.smoke else None]:
        seconds: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for device in (str(options.device), "cpu"):
                with tempfile.TemporaryDirectory() as folder:
                    for state in ("cold", "warm"):
                        took = first_call(case, device, folder, options.smoke)
                        seconds.setdefault((device, state), []).append(took)
        ours, other = str(options.device), "cpu"
        for state, found in ratios.items():
            medians = [statistics.median(seconds[device, state]) for device in (ours, other)]
            found.append(medians[0] / medians[1])
            rows.append((case, state, *(f"{each:.1f}" for each in medians), f"{found[-1]:.2f}"))
    header = ("case", "cache", "here s", "Inductor s", "ratio")
    report.tables.append(Table("First call in a fresh process", header, rows))
    for state, limit in (("cold", COLD_LIMIT), ("warm", WARM_LIMIT)):
        name = f"{state} first call, worst beside Inductor"
        report.gates.append(Gate(name, max(ratios[state]), limit))


def first_call(case: str, device: str, folder: str, smoke: bool) -> float:
    """Return the seconds of a case's first step in a fresh process with its caches in a folder."""
    source = CHILD.format(folder=str(Path(__file__).parent), case=case, device=device, smoke=smoke)
    caches = {
        "TORCHNEURON_CACHE_DIR": os.path.join(folder, "ours"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
    }
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | caches,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"bench_compile_calls: the measured process failed\n\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHNEURON_CACHE_DIR"] = os.path.join(cache, "ours")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache, "inductor")
        sys.exit(main())
