"""Run PyTorch's operator database compiled and as lowered eager, and write the dated report.

    python tools/compiled_report.py               # up to 30 samples an entry, writes the report
    python tools/compiled_report.py abs add       # entries that begin so, printed only

Ends with status 1 where results differ from the CPU's.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "reference" / "compiled.md"
MODES = {"compiled": [], "lowered eager": ["--eager"]}


Outcome = tuple[str, str, list[str]]


def start(mode: str, names: list[str]) -> subprocess.Popen[str]:
    """Start the sweep of one mode in a process of its own."""
    variables = {"TORCHNEURON_EAGER": "lowered" if mode == "lowered eager" else "direct"}
    return subprocess.Popen(
        [sys.executable, "-m", "compile.operators", "--all", "--json", *MODES[mode], *names],
        cwd=ROOT / "tests",
        env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def render(found: dict[str, list[Outcome]], took_s: float) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Operators compiled, and as lowered eager",
        "",
        f"Written by `make conformance` on {date.today().isoformat()} with torch "
        f"{version('torch')} and jaxlib {version('jaxlib')}, in {took_s / 60:.0f} minutes.",
        "",
        "Every entry of PyTorch's operator database that takes float32 and sets no seed itself,",
        "up to 30 samples, forward and backward, compared with CPU eager under tolerances.",
        "*Lowered*: all calls are programs. *Eager in part*: the calls named run on the host,",
        "counted.",
        "",
    ]
    for mode, outcomes in found.items():
        counts = Counter(outcome for _, outcome, _ in outcomes)
        lines += [f"## {mode.capitalize()}", "", "| outcome | entries |", "|---|--:|"]
        lines += [f"| {outcome} | {count} |" for outcome, count in counts.most_common()]
        lines += ["", "| entry | outcome | calls or message |", "|---|---|---|"]
        lines += [
            f"| `{name}` | {outcome} | {', '.join(details).replace('|', ' ')[:160]} |"
            for name, outcome, details in outcomes
            if outcome != "lowered"
        ]
        lines.append("")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run both modes side by side."""
    began = time.monotonic()
    processes = {mode: start(mode, names) for mode in MODES}
    found: dict[str, list[Outcome]] = {}
    for mode, process in processes.items():
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"error: the sweep `{mode}` ended with status {process.returncode}")
        found[mode] = json.loads(output.splitlines()[-1])
    text = render(found, time.monotonic() - began)
    if names:
        print(text)
    else:
        REPORT.write_text(text)
        print(f"compiled_report: {REPORT}")
    wrong = [
        f"{mode}: {name}: {details[0]}"
        for mode, outcomes in found.items()
        for name, outcome, details in outcomes
        if outcome == "AssertionError" and "Jiterator" not in details[0]
    ]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
