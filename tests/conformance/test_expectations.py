"""The declared failures are few, well formed, and stay strict."""

from dataclasses import replace

import pytest
import torch

from conformance.expectations import Expectation, load, problems
from conformance.judge import Verdict
from conformance.suites import cases
from conformance.tally import Results

DECLARED = Expectation(
    case="operators/abs",
    kinds=frozenset({"forward"}),
    dtypes=frozenset({"float32"}),
    category="upstream",
    reason="why",
    close=False,
    quick_passes=False,
)
PASSED = Verdict(True)
FAILED = Verdict(True, "values differ")
ROUNDED = Verdict(True, "values differ a little", close=True)


def results_of(*verdicts: Verdict) -> Results:
    results = Results()
    tally = results.tally(torch.float32, "forward")
    for verdict in verdicts:
        tally.add(verdict, "sample 0")
    return results


def test_float32_forward_has_no_declared_failure() -> None:
    declared = [
        one
        for one in load()
        if one.case.startswith("operators/") and one.covers("float32", "forward")
    ]
    assert not declared


def test_declared_failures_name_cases_that_exist() -> None:
    names = {case.id for case in cases()}
    assert [one.case for one in load() if one.case not in names] == []


def test_no_failure_is_declared_twice() -> None:
    seen: set[tuple[str, str, str]] = set()
    for one in load():
        for kind in one.kinds:
            for dtype in one.dtypes or {"all"}:
                assert (one.case, kind, dtype) not in seen
                seen.add((one.case, kind, dtype))


def test_undeclared_failure_is_a_problem() -> None:
    found = problems("operators/abs", results_of(PASSED, FAILED), [], full=True)
    assert found == ["operators/abs float32 forward: sample 0: values differ"]


def test_declared_failure_that_fails_is_none() -> None:
    assert problems("operators/abs", results_of(FAILED), [DECLARED], full=True) == []


def test_rounding_is_all_that_a_close_failure_covers() -> None:
    close = replace(DECLARED, close=True)
    assert problems("operators/abs", results_of(ROUNDED), [close], full=True) == []
    (found,) = problems("operators/abs", results_of(ROUNDED, FAILED), [close], full=True)
    assert "more than the declared rounding" in found


def test_failure_that_the_quick_depth_does_not_show_may_pass_there_only() -> None:
    rare = replace(DECLARED, quick_passes=True)
    assert problems("operators/abs", results_of(PASSED), [rare], full=False) == []
    assert problems("operators/abs", results_of(FAILED), [rare], full=False) != []
    assert problems("operators/abs", results_of(PASSED), [rare], full=True) != []


def test_declared_failure_that_passes_is_a_problem() -> None:
    (found,) = problems("operators/abs", results_of(PASSED), [DECLARED], full=True)
    assert "a failure is declared (why) but the result is: passed" in found


def test_declared_failure_that_nothing_runs_is_a_problem() -> None:
    (found,) = problems("operators/abs", Results(), [DECLARED], full=True)
    assert "nothing of it is run" in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {case: a, kinds: [forward], dtypes: all, category: nested}", "missing keys"),
        ("- {case: a, kinds: [x], dtypes: all, category: nested, reason: r}", "kinds must be"),
        ("- {case: a, kinds: [out], dtypes: 1, category: nested, reason: r}", "dtypes must be"),
        ("- {case: a, kinds: [out], dtypes: all, category: x, reason: r}", "category must be"),
    ],
)
def test_malformed_declaration_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load(text)
