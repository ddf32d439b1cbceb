"""Run one row of the suite in a process of its own; print one line of JSON about it.

python -m compile.suite.worker [--list | NAME]      (in tests/)
"""

import json
import sys
import warnings
from dataclasses import asdict

import torch

from compile.suite import SUITE
from compile.suite.compare import compare


def main(argument: str) -> None:
    """List the rows with their kinds, or run one."""
    if argument == "--list":
        shown = ("kind", "source", "known")
        rows = {name: {key: getattr(row, key) for key in shown} for name, row in SUITE.items()}
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    # Dynamo warns about what it meets in transformers: caches, gradients of inner tensors.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch._dynamo.config.allow_rnn = True
    sys.stdout.write(json.dumps(asdict(compare(SUITE[argument]))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
