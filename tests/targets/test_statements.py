"""Statements on programs: every row is well-formed, and a bad row is an error that names it."""

import re

import pytest
from jaxlib.mlir.dialects import chlo, stablehlo

from torchneuron import chips, targets
from torchneuron.errors import DataError
from torchneuron.targets import Statement, statements

ROW = {
    "id": "x",
    "ops": ["sort"],
    "verdict": "no",
    "code": "NCC_EVRF029",
    "summary": "s",
    "source": "p",
    "confidence": "user",
}


def rows() -> tuple[Statement, ...]:
    return targets.load_statements("torch_neuronx_2_33")


def test_the_vendors_target_adds_to_the_compilers_statements() -> None:
    shared, vendors = targets.load_statements("torchneuron"), rows()
    assert len(shared) > 100
    assert [row.id for row in vendors if row not in shared] == ["all-to-all-size"]


def test_chips_of_the_rows_are_the_known_ones() -> None:
    assert {chip for row in rows() for chip in row.chips} <= set(chips.CHIP_NAMES)
    assert set(chips.CHIP_NAMES) == statements._CHIPS


def test_operations_of_the_rows_exist() -> None:
    named = {
        cls.OPERATION_NAME.partition(".")[2]
        for dialect in (stablehlo, chlo)
        for cls in vars(dialect).values()
        if hasattr(cls, "OPERATION_NAME")
    }
    # an end of a program, or an operator of HLO that has no like in StableHLO
    named |= {"input", "output", "*", "topk"}
    assert {op for row in rows() for op in (*row.ops, *row.but)} - named == set()


def test_rows_say_where_they_come_from() -> None:
    for row in rows():
        assert row.summary and row.source
        seen_without_code = row.verdict == "no" and not row.code and row.confidence == "user"
        assert not seen_without_code or row.outside or row.id == "all-to-all-size"


def test_complex64_is_refused_exactly_where_it_is_not_listed() -> None:
    found = {row.id: row for row in rows()}
    accepted, ends = found["complex64-operators"].ops, found["complex64-ends"].ops
    assert set(found["complex64-elsewhere"].but) == {*accepted, *ends}
    assert len(accepted) == 36


def test_custom_call_targets_are_refused_exactly_where_they_are_not_listed() -> None:
    found = {row.id: row for row in rows()}
    listed = {*found["known-target"].targets, *found["mx-target"].targets}
    assert set(found["unknown-target"].other_than) == listed
    assert len(found["known-target"].targets) == 29


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "maybe"}, "has the verdict `maybe`"),
        ({"confidence": "sure"}, "has the confidence `sure`"),
        ({"colour": "red"}, "has unknown fields colour"),
        ({"dtypes": ["float32"]}, "has unknown dtypes float32"),
        ({"chips": ["trn9"]}, "has unknown chips trn9"),
        ({"ops": []}, "names no ops"),
        ({"ops": "sort"}, "ops is no list of words"),
        ({"code": "EVRF029"}, "has the code `EVRF029`"),
        ({"verdict": "yes"}, "is accepted and has the code NCC_EVRF029"),
        ({"confidence": "inferred"}, "is inferred, so its verdict is unknown"),
        ({"when": {"stride": True}}, "asks for `stride`"),
        ({"when": {"strided": 1}}, "`strided` is compared with 1, not bool"),
        ({"when": {"group_size": {"least": 2}}}, "`group_size` has no range of this form"),
        ({"when": {"comparator": []}}, r"`comparator` is compared with \[\], not str"),
    ],
)
def test_a_malformed_row_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=rf"x.toml: row `x`:? {message}"):
        statements.parse_statement(ROW | change, "x.toml")


def test_a_missing_field_and_a_double_id_are_named() -> None:
    lacking = {key: value for key, value in ROW.items() if key != "source"}
    with pytest.raises(DataError, match="x.toml: row `x` lacks source"):
        statements.parse_statement(lacking, "x.toml")
    with pytest.raises(DataError, match=re.escape("b.toml: the id `x` occurs twice")):
        statements.gather_statements([(ROW, "a.toml"), (ROW, "b.toml")])


@pytest.mark.parametrize(
    ("when", "facts", "holds"),
    [
        ({}, {}, True),
        ({"strided": True}, {}, False),
        ({"strided": True}, {"strided": False}, False),
        ({"comparator": ["LT", "GT"]}, {"comparator": "GT"}, True),
        ({"group_size": {"min": 2}}, {"group_size": 1}, False),
        ({"group_size": {"max": 2}}, {"group_size": 2}, True),
        ({"group_size": {"not_in": [4], "not_multiple_of": 32}}, {"group_size": 2}, True),
        ({"group_size": {"not_in": [4], "not_multiple_of": 32}}, {"group_size": 64}, False),
        ({"group_size": {"not_in": [4], "not_multiple_of": 32}}, {"group_size": 4}, False),
    ],
)
def test_conditions(when: dict[str, object], facts: dict[str, object], holds: bool) -> None:
    row = statements.parse_statement(ROW | {"when": when}, "x.toml")
    assert row.holds_of("sort", facts) is holds  # type: ignore[arg-type]
    assert not row.holds_of("add", facts)  # type: ignore[arg-type]
