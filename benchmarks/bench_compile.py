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
from torch.nn import functional

from harness import METHOD, Pair, geomean, pair, parse
from model_cases import GPT, make_resnet
from report import PAIR_HEADER, Gate, Report, Table, pair_row

Step = Callable[[], object]
Wrap = Callable[[nn.Module], Callable[..., torch.Tensor]]
NOTE = """\
"cpu us" is the other side: Inductor's program, or eager PyTorch, on the CPU. The optimizer runs
eagerly on both sides."""


def eager(model: nn.Module) -> Callable[..., torch.Tensor]:
    """Leave a model as it is."""
    return model


def mlp(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype) -> Step:
    """Train an MLP of three hidden layers."""
    width, batch = (32, 4) if smoke else (1024, 64)
    layers = [part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())]
    return training(nn.Sequential(*layers).to(device, dtype), wrap, (batch, width), dtype)


def training(model: nn.Module, wrap: Wrap, shape: tuple[int, ...], dtype: torch.dtype) -> Step:
    """Return a training step on random numbers with AdamW."""
    device = next(model.parameters()).device
    call, x = wrap(model), torch.randn(shape, dtype=dtype).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()

    return step


def gpt(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, a GPT."""
    width, layers, context, batch = (32, 1, 16, 2) if smoke else (256, 4, 128, 4)
    model = GPT(width, layers, context).to(device, dtype)
    tokens = torch.randint(512, (batch, context + 1)).to(device)
    call = wrap(model)
    if not train:
        return torch.no_grad()(lambda: call(tokens[:, :-1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        scores = call(tokens[:, :-1]).float()
        functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def resnet(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, a residual network."""
    model = make_resnet().to(device, dtype)
    shape = (2 if smoke else 4, 3, 96, 96)
    if train:
        return training(model, wrap, shape, dtype)
    call, x = wrap(model.eval()), torch.randn(shape, dtype=dtype).to(device)
    return torch.no_grad()(lambda: call(x))


CASES: dict[str, Callable[..., Step]] = {
    "MLP 3x1024 b64, training": mlp,
    "GPT d256 L4 b4x128, forward": lambda *args: gpt(*args, train=False),
    "GPT, training": lambda *args: gpt(*args, train=True),
    "ResNet 4x3x96x96, forward": lambda *args: resnet(*args, train=False),
    "ResNet, training": lambda *args: resnet(*args, train=True),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case in float32 and bfloat16."""
    options = parse(__doc__, rounds=8, arguments=arguments)
    report = Report("compile", "Compiled models beside Inductor and eager", METHOD)
    cpu = torch.device("cpu")
    others: dict[str, Wrap] = {"inductor": torch.compile, "eager": eager}
    results: dict[str, list[Pair]] = {name: [] for name in others}
    first_calls = []
    chosen = list(CASES.items())[: 1 if options.smoke else None]
    for label, build in chosen:
        for dtype_name, dtype in list(DTYPES.items())[: 1 if options.smoke else None]:
            title = f"{label}, {dtype_name}"
            ours, first_s = prepared(build, options.device, torch.compile, options.smoke, dtype)
            for name, wrap in others.items():
                other, other_s = prepared(build, cpu, wrap, options.smoke, dtype)
                results[name].append(
                    pair(title, other, ours, rounds=options.rounds, smoke=options.smoke)
                )
                if name == "inductor":
                    first_calls.append((title, f"{first_s:.1f}", f"{other_s:.1f}"))
            torch._dynamo.reset()
    for name, pairs in results.items():
        rows = [pair_row(each) for each in pairs]
        report.tables.append(Table(f"Beside {name}", PAIR_HEADER, rows, NOTE))
    header = ("case", "here s", "Inductor s")
    report.tables.append(Table("First call, with its compilation", header, first_calls))
    ratios = {name: [each.ratio for each in pairs] for name, pairs in results.items()}
    report.gates += [
        Gate("geometric mean beside Inductor", geomean(ratios["inductor"]), 0.95),
        Gate("worst beside Inductor", max(ratios["inductor"]), 1.15),
        Gate("geometric mean beside eager", geomean(ratios["eager"]), 0.90),
    ]
    return report.finish(options)


def prepared(
    build: Callable[..., Step], device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype
) -> tuple[Step, float]:
    """Return a step that has run once, and the seconds that took."""
    torch.manual_seed(0)
    step = build(device, wrap, smoke, dtype)
    start = time.monotonic()
    step()
    return step, time.monotonic() - start


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # every first call is a cold one
        os.environ["TORCHNEURON_CACHE_DIR"] = os.path.join(folder, "ours")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        sys.exit(main())
