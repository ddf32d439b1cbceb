"""Run PyTorch's databases at full depth and write the dated report.

    python tools/conformance_report.py                        # everything, writes the report
    python tools/conformance_report.py --only operators/add   # a part, printed only

Ends with status 1 on a failure that tests/conformance/expectations.yaml does not declare, and
on a declared failure that passes.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "reference" / "conformance.md"
TIMEOUT_S = 900.0
STATUSES = ("passed", "failed", "not applicable")


class Worker:
    """A process that runs one case after the other, and is replaced when a case ends it."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: str) -> dict[str, Any]:
        """Run one case and return what the worker printed about it."""
        if self.process is None:
            self.process = start(self.options)
        assert self.process.stdin and self.process.stdout
        watch = threading.Timer(TIMEOUT_S, self.process.kill)
        watch.start()
        try:
            self.process.stdin.write(case + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if line:
            message: dict[str, Any] = json.loads(line)
            return message
        status = self.process.wait()
        self.process = None
        row = {"dtype": "any", "kind": "process", "status": "failed", "scenarios": 0}
        text = f"{case}: the process ended with status {status}"
        return {"case": case, "rows": [{**row, "declared": False}], "problems": [text]}

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def start(options: list[str]) -> subprocess.Popen[str]:
    """Start a worker process."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "conformance.worker", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def listed() -> dict[str, Any]:
    """Return the names of all cases and the declared failures."""
    with start(["--list"]) as process:
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit("error: the cases cannot be listed, see above")
    answer: dict[str, Any] = json.loads(output)
    return answer


def run_all(cases: Iterable[str], options: list[str], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield what came of each case, as it comes, from `jobs` processes."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    names = list(cases)
    for name in names:
        waiting.put(name)
    done: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def work() -> None:
        worker = Worker(options)
        try:
            while True:
                done.put(worker.run(waiting.get_nowait()))
        except queue.Empty:
            worker.close()

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    for _ in names:
        yield done.get()


def render(results: list[dict[str, Any]], declared: list[dict[str, Any]], took_s: float) -> str:
    """Return the report as Markdown."""
    rows = [{**row, "case": result["case"]} for result in results for row in result["rows"]]
    scenarios = sum(int(row["scenarios"]) for row in rows)
    found = [text for result in results for text in result["problems"]]
    lines = [
        "# Conformance with PyTorch on CPU",
        "",
        f"Written by `make conformance` on {date.today().isoformat()} with torch {torch_version()},"
        f" in {took_s / 60:.0f} minutes: {len(results)} cases, {scenarios} comparisons."
        f" The device `neuron` is an emulated Trainium.",
        "",
        "CPU is the oracle: values have to be equal bit by bit where CPU repeats itself exactly,",
        "and shapes, strides, dtypes, shared memory and classes of errors have to be equal always.",
        "*Not applicable* is what CPU itself rejects. Up to 30 samples an entry, every layout:",
        "transposed, sliced, expanded, offset into a larger storage, without elements.",
        "*Compiled* is equal within rounding: a program takes its sums in another order.",
        "",
    ]
    for suite in dict.fromkeys(result["case"].split("/")[0] for result in results):
        lines += [f"## {suite.capitalize()}", ""]
        lines += table([row for row in rows if row["case"].startswith(suite + "/")])
    lines += ["## Declared failures", ""]
    lines += declared_table(declared) if declared else ["None.", ""]
    lines += ["## Undeclared failures and undeclared passes", ""]
    lines += [f"- {text}" for text in found] or ["None."]
    return "\n".join(lines) + "\n"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return one line for each kind and dtype with the number of entries by status."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row["kind"], row["dtype"]), Counter())[row["status"]] += 1
    kinds = list(dict.fromkeys(kind for kind, _ in counts))
    ordered = sorted(counts.items(), key=lambda item: (kinds.index(item[0][0]), item[0][1]))
    body = [
        f"| {kind} | {dtype} | " + " | ".join(str(count[status]) for status in STATUSES) + " |"
        for (kind, dtype), count in ordered
    ]
    return [
        "| check | dtype | passed | failed | not applicable |",
        "|---|---|--:|--:|--:|",
        *body,
        "",
    ]


def declared_table(declared: list[dict[str, Any]]) -> list[str]:
    """Return the declared failures as a table."""
    body = [
        f"| `{one['case']}` | {', '.join(one['kinds'])} | {', '.join(one['dtypes'])} |"
        f" {one['category']} | {one['reason']} |"
        for one in declared
    ]
    return ["| case | checks | dtypes | category | reason |", "|---|---|---|---|---|", *body, ""]


def torch_version() -> str:
    """Return the version of torch without importing it here."""
    from importlib.metadata import version

    return version("torch")


def main() -> int:
    """Run the cases that the command line names and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="PREFIX", help="some cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--dut", default="neuron", help="another device, to try the harness")
    parser.add_argument("--quick", action="store_true", help="one sample, as `make test` does")
    options = parser.parse_args()
    known = listed()
    prefixes = tuple(options.only)
    cases = [name for name in known["cases"] if not prefixes or name.startswith(prefixes)]
    partial = bool(prefixes) or options.quick or options.dut != "neuron"
    worker_options = ["--device", options.dut, *(["--quick"] if options.quick else [])]
    began, results = time.monotonic(), []
    for number, result in enumerate(run_all(cases, worker_options, options.jobs), start=1):
        results.append(result)
        for text in result["problems"]:
            print(text, flush=True)
        print(
            f"\r{number}/{len(cases)} {result['case']:<60.60}", end="", file=sys.stderr, flush=True
        )
    print(file=sys.stderr)
    results.sort(key=lambda result: cases.index(result["case"]))
    text = render(results, known["declared"], time.monotonic() - began)
    if partial:
        print(text)
    else:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(text)
        print(f"wrote {REPORT.relative_to(ROOT)}")
    failed = sum(len(result["problems"]) for result in results)
    print(f"make conformance: {'FAILED, ' + str(failed) + ' lines above' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
