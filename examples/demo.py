"""Train three small networks on real data, compile one, on the `neuron` device beside the CPU.

What it shows: plain PyTorch code trains on `neuron`; nothing but `torch` is imported
for it. Run it with `make demo`, or `python examples/demo.py [--device cpu] [--quick]`.
"""

import argparse
import sys
import time
from collections.abc import Iterable

import torch

from demo_parts import PARTS
from demo_parts.outcome import Outcome, Setting


def main() -> int:
    """Run the chosen parts, print the table and return 0 if every goal was reached."""
    options = parse()
    device = find_device(options.device)
    setting = Setting(device, options.quick, options.seed)
    print(f"demo: {len(options.parts)} part(s) on {describe(device)}", flush=True)
    start = time.monotonic()
    outcomes = [PARTS[name](setting) for name in options.parts]
    seconds = time.monotonic() - start
    print(f"\n{table(outcomes, device)}")
    for outcome in outcomes:
        if outcome.sample:
            print(f"\nA sample written by {outcome.title}:\n{indent(outcome.sample)}")
    shortfalls = [outcome.shortfall for outcome in outcomes if outcome.shortfall]
    if shortfalls:
        print(f"\ndemo failed on {device}: {'; '.join(shortfalls)}.")
        return 1
    results = "; ".join(outcome.result for outcome in outcomes)
    print(f"\ndemo passed on {device} in {seconds:.0f} s: {results}.")
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="neuron", help="where to train (default: neuron)")
    parser.add_argument("--quick", action="store_true", help="seconds only, with low goals")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default: 0)")
    parser.add_argument(
        "--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="default: all"
    )
    return parser.parse_args()


def find_device(name: str) -> torch.device:
    """Return the device of that name, or stop with a sentence that says what is missing."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise SystemExit(
            f"demo: this Python has no usable device {name!r}: {reason}\n\n"
            "hint: `make demo` installs it, or pass --device cpu"
        ) from error
    return device


def describe(device: torch.device) -> str:
    """Return the device with the name that it gives itself, and the thread count."""
    threads = f"{torch.get_num_threads()} CPU thread(s)"
    if device.type == "cpu":
        return f"cpu, {threads}"
    return f"{device}: {torch.get_device_module(device).get_device_name()}, {threads}"


def table(outcomes: Iterable[Outcome], device: torch.device) -> str:
    """Return the results as aligned text."""
    header = ("part", "steps", "training", f"steps/s {device}", "steps/s cpu", "peak memory")
    rows: list[tuple[str, ...]] = [header]
    for outcome in outcomes:
        peak = outcome.peak_bytes
        rows.append(
            (
                outcome.title,
                str(outcome.steps),
                f"{outcome.seconds:.1f} s",
                f"{outcome.pace.device_per_s:.1f}",
                f"{outcome.pace.cpu_per_s:.1f}",
                "not counted" if peak is None else f"{peak / 2**20:.1f} MiB",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [f"{outcome.title}: {outcome.result}, goal {outcome.goal}" for outcome in outcomes]
    return "\n".join(lines)


def indent(text: str) -> str:
    """Return a text with a bar before each line."""
    return "\n".join(f"  | {line}" for line in text.strip("\n").splitlines())


if __name__ == "__main__":
    sys.exit(main())
