"""Sparse tensors on the device beside the CPU: products, embeddings, optimizers.

Gates: the geometric mean of each group (products with CSR, coalescing, EmbeddingBag, the steps of
SparseAdam, SGD and Adagrad on sparse gradients) at most 1.05; of compiled products with CSR, beside
eager ones on the CPU, at most 1.00.
"""

import sys
import warnings
from collections.abc import Sequence

from harness import METHOD, geomean, measure, parse
from report import PAIR_HEADER, Gate, Report, Table, pair_row
from sparse_cases import GROUPS, OTHERS

LIMIT = 1.05
LIMITS = {"compiled CSR matmul": 1.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every group, judge the mean of each."""
    options = parse(__doc__, rounds=60, arguments=arguments)
    # Said by torch for every layout, on the CPU as well.
    warnings.filterwarnings("ignore", "Sparse .* tensor support is in beta state")
    report = Report("sparse", f"Sparse tensors on {options.device} beside the CPU", METHOD)
    for name, builds in GROUPS.items():
        found = measure(builds, options)
        mean = geomean(result.ratio for result in found)
        note = f"Geometric mean of the {len(found)} ratios: {mean:.3f}."
        report.tables.append(Table(name, PAIR_HEADER, [*map(pair_row, found)], note))
        report.gates.append(Gate(f"geometric mean of {name}", mean, LIMITS.get(name, LIMIT)))
    found = measure(OTHERS, options)
    note = f"Geometric mean of the {len(found)} ratios, not judged: " + (
        f"{geomean(result.ratio for result in found):.3f}."
    )
    report.tables.append(Table("Others", PAIR_HEADER, [*map(pair_row, found)], note))
    return report.finish(options)


if __name__ == "__main__":
    sys.exit(main())
