"""Run every architecture of the model suite and write the dated report, JSON and Markdown.

    python tools/models_report.py                   # everything
    python tools/models_report.py --only vit bert   # some rows; the others keep their old result

Each row has a process, a program cache and a time-out of its own; if a row ends its process, the
report says so and goes on. Ends with status 1 where a row does not load or is not equal to the CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "reference" / "models.json"
PAGE = ROOT / "docs" / "reference" / "models.md"
SCHEMA = "torchneuron.models/1"
TIMEOUT_S = 900.0
# What a row shows whose process ended, or was ended, before it could say anything.
NOTHING: dict[str, Any] = {
    "loads": False, "eager": False, "compiled": False, "num_graph_breaks": 0, "graph_breaks": [],
    "fallbacks": [], "num_programs": 0, "compile_s": 0.0, "losses": [], "legality": "unknown",
}  # fmt: skip
Row = dict[str, Any]


def worker(argument: str, cache: str) -> subprocess.CompletedProcess[str]:
    """Call the worker of the suite in a process of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "compile.suite.worker", argument],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHNEURON_CACHE_DIR": cache,
        },
    )


def run(name: str) -> Row:
    """Run one row and return what came of it."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        try:
            done = worker(name, cache)
            said = done.stderr.strip().splitlines()[-1:]
            ended = f"the process ended with status {done.returncode}: {' '.join(said)}"
            result = None if done.returncode else json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            result, ended = None, f"stopped after {TIMEOUT_S:.0f} seconds"
    if result is None:
        result = {**NOTHING, "failures": [ended[:300]]}
    took_s = round(time.monotonic() - begin, 1)
    return {**result, "date": date.today().isoformat(), "took_s": took_s}


def table(rows: Sequence[tuple[str, Row]]) -> list[str]:
    """Return one line for each row."""
    lines = [
        "| architecture | kind | loads | eager | compiled | graph breaks | host fallbacks |"
        " compile s | legality |",
        "|---|---|---|---|---|--:|--:|--:|---|",
    ]
    for name, row in rows:
        marks = [_mark(row[key]) for key in ("loads", "eager", "compiled")]
        numbers = [str(row["num_graph_breaks"]), str(len(row["fallbacks"])), _seconds(row)]
        cells = [f"`{name}`", row["kind"], *marks, *numbers, row["legality"]]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _mark(is_right: bool) -> str:
    return "yes" if is_right else "**no**"


def _seconds(row: Row) -> str:
    return f"{row['compile_s']:.0f}" if row["compile_s"] else "-"


def failures(rows: Iterable[tuple[str, Row]]) -> list[str]:
    """Return a bullet per row that fails, with the cause where it is known."""
    lines = []
    for name, row in rows:
        if row["failures"]:
            more = f" (and {len(row['failures']) - 1} more)" if len(row["failures"]) > 1 else ""
            cause = f" Cause: {row['known']}." if row["known"] else ""
            lines.append(f"- `{name}`: {row['failures'][0]}{more}.{cause}")
    return lines or ["None."]


def listed(rows: Iterable[tuple[str, Row]], key: str, nothing: str) -> list[str]:
    """Return a bullet per row that has something under a key."""
    lines = [f"- `{name}`: {'; '.join(row[key])}" for name, row in rows if row[key]]
    return [*(lines or [nothing]), ""]


def render(data: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    rows = list(data["rows"].items())
    theirs = [(name, row) for name, row in rows if row["source"] == "transformers"]
    ours = [(name, row) for name, row in rows if row["source"] != "transformers"]
    whole = sum(row["compiled"] and not row["fallbacks"] for _, row in theirs)
    dates = sorted({row["date"] for _, row in rows})
    kinds = Counter(row["kind"] for _, row in theirs)
    lines = [
        "# Model suite",
        "",
        f"Written by `make models` on {' to '.join(dict.fromkeys([dates[0], dates[-1]]))} with"
        f" torch {data['torch']} and transformers {data['transformers']}. The device `neuron` is"
        " an emulated Trainium.",
        "",
        f"Of {len(theirs)} architectures of transformers ({_counted(kinds)}) {whole} are compiled,"
        " equal to the CPU and without a host fallback.",
        "",
        "Reduced configurations with random weights, training mode, dropout included: two layers",
        "or more, every block type, hidden size 64 or more, a batch of two, at least 32 positions,",
        "one row padded where the model takes a mask, at least two experts hit. *Eager* and",
        "*compiled* mean that loss, outputs and gradients equal CPU eager's; *compiled* also that",
        "the losses of 20 steps of AdamW follow the CPU's and fall. Tolerances are in",
        "[compare.py](../../tests/compile/suite/compare.py). *Graph breaks* are Dynamo's, over all",
        "passes. *Host fallbacks* are operators that run eagerly between programs. *Compile s* is",
        "processor time of the first forward and backward with an empty cache. *Legality* is what",
        "public documents say of the programs; the data is in [models.json](models.json).",
        "",
        "## Architectures of transformers",
        "",
        *table(theirs),
        "## Networks of this repository",
        "",
        *table(ours),
        "## Host fallbacks",
        "",
        *listed(rows, "fallbacks", "None."),
        "## Graph breaks",
        "",
        *listed(rows, "graph_breaks", "None."),
        "## Failures",
        "",
        *failures(rows),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def run_all(
    names: Sequence[str], jobs: int, known: dict[str, Row], rows: dict[str, Row]
) -> list[str]:
    """Run rows in `jobs` processes at a time, writing what came of each; return what failed."""
    failed = []
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, name): name for name in names}
        for number, future in enumerate(as_completed(running), start=1):
            name = running[future]
            row = rows[name] = future.result()
            write({each: rows[each] | known[each] for each in known if each in rows})
            failed += [name] if row["failures"] else []
            said = "; ".join(row["failures"]) or "equal"
            print(f"{number}/{len(names)} {name}: {said}, {row['took_s']} s", flush=True)
    return failed


def write(rows: dict[str, Row]) -> None:
    """Write both files; after each row, so that nothing is lost where a run is stopped."""
    versions = {name: version(name) for name in ("torch", "transformers")}
    data = {"schema": SCHEMA, **versions, "rows": rows}
    DATA.write_text(json.dumps(data, indent=1) + "\n")
    PAGE.write_text(render(data))


def known_rows() -> dict[str, Row]:
    """Return the names of all rows, with kind and source."""
    with tempfile.TemporaryDirectory() as cache:
        done = worker("--list", cache)
    if done.returncode:
        raise SystemExit(f"error: the rows cannot be listed\n{done.stderr}")
    answer: dict[str, Row] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    """Run the rows that the command line names and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some rows")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    known = known_rows()
    if unknown := sorted(set(options.only) - known.keys()):
        parser.error(f"no rows {', '.join(unknown)}; there are {', '.join(known)}")
    rows = json.loads(DATA.read_text())["rows"] if options.only and DATA.exists() else {}
    failed = run_all(options.only or list(known), options.jobs, known, rows)
    print(f"wrote {PAGE.relative_to(ROOT)} and {DATA.relative_to(ROOT)}")
    print(f"make models: {'FAILED, ' + ', '.join(failed) if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
