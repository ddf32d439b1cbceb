"""Read the declared failures and hold results against them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from conformance.suites import KINDS
from conformance.tally import Results, Tally

FILE = Path(__file__).with_name("expectations.yaml")
CATEGORIES = ("nested", "cpu_not_repeatable", "upstream", "harness")
_REQUIRED = {"case", "kinds", "dtypes", "category", "reason"}
_OPTIONAL = {"close", "quick"}
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One declared failure; `dtypes` None means every dtype.

    Attributes:
        case: Suite and name of the case.
        kinds: Members of `suites.KINDS`.
        dtypes: Names without the prefix "torch.".
        category: A member of `CATEGORIES`.
        reason: One sentence.
        close: The failure is one of rounding; anything beyond the default tolerance is new.
        quick_passes: The quick depth does not show the failure.
    """

    case: str
    kinds: frozenset[str]
    dtypes: frozenset[str] | None
    category: str
    reason: str
    close: bool
    quick_passes: bool

    def covers(self, dtype: str, kind: str) -> bool:
        """Say whether this declares a failure of `kind` for `dtype`."""
        return kind in self.kinds and (self.dtypes is None or dtype in self.dtypes)


def load(text: str | None = None) -> list[Expectation]:
    """Read declared failures from `text`, by default from the file beside this module.

    Raises:
        ValueError: An entry is incomplete, or has a key, kind or category that nothing knows.
    """
    rows = yaml.safe_load(FILE.read_text() if text is None else text) or []
    return [_parse(row) for row in rows]


def problems(
    case: str, results: Results, expectations: Iterable[Expectation], *, full: bool
) -> list[str]:
    """Return a line for each result that is not what was declared.

    Args:
        case: Suite and name.
        results: What came of it.
        expectations: All declared failures.
        full: The results are of the depth of `make conformance`.
    """
    declared = [one for one in expectations if one.case == case]
    found: list[str] = []
    for (dtype, kind), tally in results.tallies.items():
        one = declaration(dtype, kind, declared)
        text = _problem(tally, one, full)
        if text:
            found.append(f"{case} {dtype} {kind}: {text}")
    return found + _never_run(results, declared)


def declaration(dtype: str, kind: str, declared: Iterable[Expectation]) -> Expectation | None:
    """Return the declared failure for one dtype and kind of a case, if there is one."""
    return next((one for one in declared if one.covers(dtype, kind)), None)


def _problem(tally: Tally, declared: Expectation | None, full: bool) -> str | None:
    if declared is None or (declared.quick_passes and not full):
        return "; ".join(tally.failures) if tally.failed else None
    if declared.close and tally.apart:
        return f"more than the declared rounding: {'; '.join(tally.failures)}"
    if tally.failed or (tally.status == "not applicable" and declared.dtypes is None):
        return None
    return f"a failure is declared ({declared.reason}) but the result is: {tally.status}"


def _never_run(results: Results, declared: Iterable[Expectation]) -> list[str]:
    found: list[str] = []
    for one in declared:
        for kind in sorted(one.kinds):
            run = {dtype for dtype, its_kind in results.tallies if its_kind == kind}
            missing = (one.dtypes or set()) - run if one.dtypes or run else {_ALL}
            found += [
                f"{one.case} {dtype} {kind}: a failure is declared but nothing of it is run"
                for dtype in sorted(missing)
            ]
    return found


def _parse(row: dict[str, object]) -> Expectation:
    missing, unknown = _REQUIRED - row.keys(), row.keys() - _REQUIRED - _OPTIONAL
    if missing or unknown:
        raise ValueError(f"{row}: missing keys {sorted(missing)}, unknown keys {sorted(unknown)}")
    kinds, dtypes = row["kinds"], row["dtypes"]
    if not isinstance(kinds, list) or set(kinds) - set(KINDS):
        raise ValueError(f"{row['case']}: kinds must be a list of {', '.join(KINDS)}")
    if dtypes != _ALL and not isinstance(dtypes, list):
        raise ValueError(f"{row['case']}: dtypes must be a list or `{_ALL}`")
    if row["category"] not in CATEGORIES:
        raise ValueError(f"{row['case']}: category must be one of {', '.join(CATEGORIES)}")
    if row.get("quick", "passes") != "passes":
        raise ValueError(f"{row['case']}: quick can only be `passes`")
    if row.get("close", True) is not True:
        raise ValueError(f"{row['case']}: close can only be `true`")
    return Expectation(
        case=str(row["case"]),
        kinds=frozenset(kinds),
        dtypes=None if dtypes == _ALL else frozenset(map(str, dtypes)),
        category=str(row["category"]),
        reason=str(row["reason"]),
        close="close" in row,
        quick_passes="quick" in row,
    )
