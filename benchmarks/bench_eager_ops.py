"""Small operations on the device beside the CPU: what one eager call costs.

Gates: the geometric mean of the 41 ratios at most 1.00, none over 1.25.
"""

import sys
from collections.abc import Sequence

from eager_cases import SIZES, SMALL
from harness import METHOD, geomean, measure, parse
from report import PAIR_HEADER, Gate, Report, Table, pair_row


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both tables, judge the first."""
    options = parse(__doc__, rounds=60, arguments=arguments)
    report = Report("eager_ops", f"Eager operations on {options.device} beside the CPU", METHOD)
    small = measure(SMALL, options)
    mean, worst = geomean(result.ratio for result in small), max(small, key=lambda r: r.ratio)
    note = f"Geometric mean of the {len(small)} ratios: {mean:.3f}."
    report.tables.append(Table("Small operations", PAIR_HEADER, [*map(pair_row, small)], note))
    sizes = measure(SIZES, options)
    note = f"Geometric mean of the {len(sizes)} ratios, not judged: " + (
        f"{geomean(result.ratio for result in sizes):.3f}."
    )
    report.tables.append(Table("Over sizes", PAIR_HEADER, [*map(pair_row, sizes)], note))
    report.gates.append(Gate(f"geometric mean of {len(small)} small operations", mean, 1.00))
    report.gates.append(Gate(f"worst small operation ({worst.label})", worst.ratio, 1.25))
    return report.finish(options)


if __name__ == "__main__":
    sys.exit(main())
