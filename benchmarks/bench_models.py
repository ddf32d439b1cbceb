"""Whole models on the device beside the CPU: training steps and a forward pass.

Gates: the GPT's training step, the residual network's forward pass and its training step at
most 1.02 of the CPU. Both sides make the same steps from the same weights, so the report also
says how far the weights differ in the end.
"""

import sys
from collections.abc import Sequence

import torch

from harness import METHOD, Pair, pair, parse
from model_cases import CASES, Twin
from report import PAIR_HEADER, Gate, Report, Table, pair_row

LIMIT = 1.02
NOTE = """\
"default" leaves the choice of AdamW's implementation to PyTorch, which takes a loop on the CPU
and foreach on other devices. Under autocast the two devices have different lists of operations,
so the weights may differ there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case."""
    options = parse(__doc__, rounds=12, arguments=arguments)
    report = Report("models", f"Models on {options.device} beside the CPU", METHOD)
    rows = []
    for label, build in CASES.items():
        cpu = build(torch.device("cpu"), options.smoke)
        device = build(options.device, options.smoke)
        result = pair(label, cpu.step, device.step, rounds=options.rounds, smoke=options.smoke)
        rows.append((*pair_row(result), f"{largest_difference(cpu, device):.1e}"))
        if is_judged(result):
            report.gates.append(Gate(label, result.ratio, LIMIT))
    header = (*PAIR_HEADER, "largest difference of a weight")
    report.tables.append(Table("Models", header, rows, NOTE))
    return report.finish(options)


def is_judged(result: Pair) -> bool:
    """Tell whether a case has a gate."""
    return result.label.startswith(("GPT", "ResNet"))


@torch.no_grad()
def largest_difference(left: Twin, right: Twin) -> float:
    """Return the largest absolute difference between the weights of two models."""
    pairs = zip(left.model.parameters(), right.model.parameters(), strict=True)
    return max((one.cpu() - other.cpu()).abs().max().item() for one, other in pairs)


if __name__ == "__main__":
    sys.exit(main())
