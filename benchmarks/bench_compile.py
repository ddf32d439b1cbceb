"""Compiled models on the device beside Inductor and beside eager PyTorch on the CPU.

Gates: ratio to Inductor at most 0.95 as geometric mean, none over 1.15; ratio to eager at most
0.90 as geometric mean. First calls are shown for orientation: they are wall time, not ratios.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from compile_cases import CASES, Step, Wrap
from harness import METHOD, Pair, geomean, pair, parse
from report import PAIR_HEADER, Gate, Report, Table, pair_row

NOTE = """\
"cpu us" is the other side: Inductor's program, or eager PyTorch, on the CPU. The optimizer runs
eagerly on both sides."""


def eager(model: nn.Module) -> Callable[..., torch.Tensor]:
    """Leave a model as it is."""
    return model


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case in float32 and bfloat16."""
    options = parse(__doc__, rounds=8, arguments=arguments)
    report = Report("compile", "Compiled models beside Inductor and eager", METHOD)
    cpu = torch.device("cpu")
    others: dict[str, Wrap] = {"inductor": torch.compile, "eager": eager}
    results: dict[str, list[Pair]] = {name: [] for name in others}
    first_calls = []
    left_out: list[tuple[str, str, str]] = []
    torch._dynamo.config.allow_rnn = True
    chosen = list(CASES.items())[: 1 if options.smoke else None]
    for label, (build, train) in chosen:
        for dtype_name, dtype in list(DTYPES.items())[: 1 if options.smoke else None]:
            title = f"{label}, {dtype_name}"
            how = (options.smoke, dtype, train)
            ours, first_s = prepared(build, options.device, torch.compile, *how)
            for name, wrap in others.items():
                try:
                    other, other_s = prepared(build, cpu, wrap, *how)
                except (RuntimeError, TypeError) as error:  # half-type LSTMs, in oneDNN
                    left_out.append((title, name, str(error).partition("\n")[0]))
                    continue
                found = pair(title, other, ours, rounds=options.rounds, smoke=options.smoke)
                results[name].append(found)
                print(f"bench_compile: {title}, beside {name} {found.ratio:.2f}", flush=True)
                if name == "inductor":
                    first_calls.append((title, f"{first_s:.1f}", f"{other_s:.1f}"))
            torch._dynamo.reset()
    for name, pairs in results.items():
        rows = [pair_row(each) for each in pairs]
        report.tables.append(Table(f"Beside {name}", PAIR_HEADER, rows, NOTE))
    header = ("case", "here s", "Inductor s")
    report.tables.append(Table("First call, with its compilation", header, first_calls))
    if left_out:
        header = ("case", "other side", "why it does not run there")
        report.tables.append(Table("Left out", header, left_out))
    ratios = {name: [each.ratio for each in pairs] for name, pairs in results.items()}
    report.gates += [
        Gate("geometric mean beside Inductor", geomean(ratios["inductor"]), 0.95),
        Gate("worst beside Inductor", max(ratios["inductor"]), 1.15),
        Gate("geometric mean beside eager", geomean(ratios["eager"]), 0.90),
    ]
    return report.finish(options)


def prepared(
    build: Callable[..., Step],
    device: torch.device,
    wrap: Wrap,
    smoke: bool,
    dtype: torch.dtype,
    train: bool,
) -> tuple[Step, float]:
    """Return a step that has run once, and the seconds that took."""
    torch.manual_seed(0)
    step = build(device, wrap, smoke, dtype, train)
    start = time.monotonic()
    step()
    return step, time.monotonic() - start


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # every first call is a cold one
        os.environ["TORCHNEURON_CACHE_DIR"] = os.path.join(folder, "ours")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        sys.exit(main())
