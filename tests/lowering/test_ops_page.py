"""The table of operators covers what it promises and tells how each call fares."""

import pytest
import torch

from tools import op_examples, ops_page
from torchneuron.lowering import ops  # noqa: F401 (its import fills the table)
from torchneuron.lowering.registry import TABLE


@pytest.fixture(scope="module")
def rows() -> dict[str, ops_page.Row]:
    return {row.name: row for row in ops_page.rows()}


def test_every_core_operator_and_every_rule_has_a_row(rows: dict[str, ops_page.Row]) -> None:
    core = list(ops_page.core_operators())
    assert torch.ops.aten.convolution.default in core
    assert len(core) > 150
    assert {ops_page.short_name(each) for each in (*core, *TABLE)} == rows.keys()


def test_every_program_is_judged(rows: dict[str, ops_page.Row]) -> None:
    silent = {name for name, row in rows.items() if not row.legality}
    assert all(not rows[name].how.startswith("native") for name in silent)
    assert all(rows[name].because for name in rows.keys() - silent
               if rows[name].legality != "documented yes")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how", "legality", "because"),
    [
        ("add.Tensor", "native", "documented yes", ""),
        ("_fft_r2c", "native", "documented no (NCC_EVRF004)", "fft of f32, complex<f32>"),
        ("sigmoid", "native", "unknown", "logistic (real-of-complex-only)"),
        ("amax", "native", "documented yes", ""),
        ("argmax", "native", "documented yes", ""),
        ("fmod.Tensor", "native", "unknown", "remainder"),
        ("avg_pool1d", "decomposed", "documented yes", ""),
        ("atan2.out", "decomposed: atan2", "", ""),
        ("nonzero", "host", "", ""),
        ("sym_numel", "host: a size, filled in", "", ""),
        ("randn", "host: drawn eagerly before the program", "", ""),
    ],
)
def test_rows(
    rows: dict[str, ops_page.Row], name: str, how: str, legality: str, because: str
) -> None:
    assert rows[name] == ops_page.Row(name, how, legality, because)


def test_examples_are_for_operators_of_the_table() -> None:
    known = {str(each) for each in (*TABLE, *ops_page.core_operators())}
    assert op_examples.examples().keys() - known == set()
