"""Run cases named on standard input; print one line of JSON for each.

A process of its own for the report: if a case ends it, the report says so and goes on.
"""

import argparse
import json
import sys

import torch

from conformance.depth import FULL, QUICK
from conformance.expectations import Expectation, declaration, load, problems
from conformance.suites import Case, cases


def main() -> None:
    """List the cases, or run the ones that arrive."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    known = {case.id: case for case in cases()}
    expectations = load()
    if options.list:
        declared = [one for one in expectations if one.case in known]
        _write({"cases": list(known), "declared": [_row(one) for one in declared]})
        return
    torch.set_num_threads(1)
    device = torch.device(options.device)
    for line in sys.stdin:
        _write(_run(known[line.strip()], device, options.quick, expectations))


def _run(
    case: Case, device: torch.device, quick: bool, expectations: list[Expectation]
) -> dict[str, object]:
    results = case.check(device, QUICK if quick else FULL)
    declared = [one for one in expectations if one.case == case.id]
    rows = [
        {
            "dtype": dtype,
            "kind": kind,
            "status": tally.status,
            "scenarios": tally.accepted,
            "declared": declaration(dtype, kind, declared) is not None,
        }
        for (dtype, kind), tally in results.tallies.items()
    ]
    found = problems(case.id, results, declared, full=not quick)
    return {"case": case.id, "rows": rows, "problems": found}


def _row(one: Expectation) -> dict[str, object]:
    return {
        "case": one.case,
        "kinds": sorted(one.kinds),
        "dtypes": sorted(one.dtypes) if one.dtypes else ["all"],
        "category": one.category,
        "reason": one.reason,
    }


def _write(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
