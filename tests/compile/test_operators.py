"""Each operator of PyTorch's database is one compiled program, both directions, or declared."""

from pathlib import Path

import pytest
import torch
import yaml

from compile.operators import check, entries, samples
from torchneuron.lowering import decompose
from torchneuron.lowering.registry import TABLE

DECLARED = yaml.safe_load(Path(__file__).with_name("operators.yaml").read_text())
ENTRIES = entries()
# Of these the issue of compiling asks nothing; the data-dependent ones have no static shape.
NOT_COUNTED = ("linalg.", "fft.")


@pytest.mark.parametrize("name", ENTRIES)
def test_operator(name: str) -> None:
    refusal = name in DECLARED["untraceable"] or name in DECLARED["refused"]
    compared = 0
    try:
        for sample in samples(ENTRIES[name], 1):
            calls = check(ENTRIES[name], sample)
            compared += 1
    except Exception:
        if refusal:
            return
        raise
    assert compared and not refusal, "declared as not compiling, and it compiles"
    eager = [call.removeprefix("aten.").removesuffix(".default") for call in calls]
    assert eager == sorted(DECLARED["eager"].get(name, [])), "other calls run eagerly than declared"


def test_declared_entries_exist() -> None:
    named = [*DECLARED["eager"], *DECLARED["untraceable"], *DECLARED["refused"]]
    assert [name for name in named if name not in ENTRIES] == []


def test_most_of_the_database_is_lowered() -> None:
    counted = [
        name
        for name in ENTRIES
        if not name.startswith(NOT_COUNTED)
        and name not in DECLARED["untraceable"]
        and name not in DECLARED["refused"]
    ]
    lowered = [name for name in counted if name not in DECLARED["eager"]]
    assert len(lowered) / len(counted) >= 0.85


def test_core_operators_have_a_rule_or_a_decomposition() -> None:
    tables = decompose.with_composites()
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    core = [target for target in map(_overload, names) if torch.Tag.core in target.tags]
    assert len(core) > 150
    missing = {
        str(each)
        for each in core
        if each not in TABLE
        and each not in tables
        and not decompose.draws_numbers(each)
        and not each._schema.is_mutable
    }
    assert missing == {
        "aten._local_scalar_dense.default",  # hands a number to the host
        "aten.nonzero.default",  # has a size that only the data knows
        "aten.sym_numel.default",  # these two are sizes, which are filled in
        "aten.sym_storage_offset.default",
    }


def _overload(name: str) -> torch._ops.OpOverload:
    operator, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, operator), overload or "default")
