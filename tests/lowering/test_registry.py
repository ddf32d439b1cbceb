"""The lowering table refuses what would make it say two things, or nothing."""

import pytest
import torch

from torchneuron.lowering import ops  # noqa: F401 (its import fills the table)
from torchneuron.lowering.registry import TABLE, LoweringTable, resolve


def rule(call: object, *args: object) -> object:
    return args[0]


def test_a_second_rule_is_an_error() -> None:
    table = LoweringTable()
    table.add("aten.sin", rule)
    with pytest.raises(ValueError, match="aten.sin.default has a lowering already"):
        table.add("aten.sin.default", rule)


def test_an_unknown_overload_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no aten.add.Tensr; its overloads: .*Tensor"):
        resolve("aten.add.Tensr")
    with pytest.raises(ValueError, match="no aten.ad"):
        resolve("aten.ad")


def test_find_takes_anything() -> None:
    assert TABLE.find(torch.ops.aten.sin.default) is not None
    assert TABLE.find(torch.ops.aten.sin) is None
    assert TABLE.find(len) is None


def test_rules_are_for_functional_overloads_only() -> None:
    changing = [str(target) for target in TABLE if target._schema.is_mutable]
    assert changing == []
