from pathlib import Path
from typing import Any

import pytest

from torchneuron.errors import ArgumentError, ExpectationError
from torchneuron.ledger.explanation import KEYS, Explanation, merged, place


@pytest.fixture
def report() -> Explanation:
    found = Explanation()
    found.add(
        "executed",
        [
            {"op": "aten::mm", "dtype": "float32", "count": 2, "file": "a.py", "line": 3},
            {"op": "aten::add.Tensor", "dtype": "int64", "count": 30, "file": "", "line": 0},
        ],
    )
    return found


def test_dict_has_the_nine_documented_keys(report: Explanation) -> None:
    assert tuple(report.to_dict()) == KEYS
    assert len(KEYS) == 9


def test_dict_is_a_copy(report: Explanation) -> None:
    report.to_dict()["executed"][0]["count"] = 99
    assert report.to_dict()["executed"][0]["count"] == 2


def test_summary_is_an_aligned_table_with_the_most_frequent_first(report: Explanation) -> None:
    assert report.summary() == str(report)
    assert report.summary().splitlines() == [
        "executed: 32",
        "  times  op                dtype    where",
        "     30  aten::add.Tensor  int64",
        "      2  aten::mm          float32  a.py:3",
        "",
        "none: host_fallbacks, compiles, recompiles, cache_hits, graph_breaks, transfers, "
        "host_syncs, collectives",
    ]


def test_summary_says_how_many_lines_it_leaves_out(report: Explanation) -> None:
    assert "... and 1 more; to_dict() has them all" in report.summary(rows=1)


@pytest.mark.parametrize("name", ["recompile", "recompiles", "host_sync", "graph_breaks"])
def test_assert_no_passes_without_records(report: Explanation, name: str) -> None:
    report.assert_no(name)


def test_assert_no_lists_what_it_found(report: Explanation) -> None:
    with pytest.raises(ExpectationError, match=r"expected no executed, found 32") as caught:
        report.assert_no("executed")
    assert "aten::mm          float32  a.py:3" in str(caught.value)


def test_assert_no_of_an_unknown_name_names_the_near_one(report: Explanation) -> None:
    with pytest.raises(ArgumentError, match="unknown kind of record `recompil`") as caught:
        report.assert_no("recompil")
    assert caught.value.hint == "did you mean `recompile`?"


@pytest.mark.parametrize("name", [3, None, ["recompile"], ""])
def test_assert_no_of_what_is_no_name_says_where_names_are(report: Explanation, name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)unknown kind.*known are.*hint: "):
        report.assert_no(name)


def test_records_that_differ_in_amounts_only_become_one() -> None:
    a = {"op": "x", "line": 1, "count": 1, "bytes": 8}
    assert merged([a], [a, a | {"line": 2}]) == [
        {"op": "x", "line": 1, "count": 2, "bytes": 16},
        {"op": "x", "line": 2, "count": 1, "bytes": 8},
    ]
    assert a["count"] == 1


def test_place_is_relative_where_that_is_shorter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert place({"file": str(tmp_path / "train.py"), "line": 4}) == "train.py:4"
    assert place({"file": "/x.py", "line": 4}) == "/x.py:4"
    assert place({"file": "", "line": 0}) == ""
