"""The model suite itself: it sees what is wrong, and its report is what its data says."""

import json
from typing import Any

import pytest
import torch

from arch.repository import ROOT
from compile.suite import SUITE
from compile.suite.compare import Pass, compare_losses, differences, experts_missed
from tools.models_report import render

REPORT = ROOT / "docs" / "reference" / "models.json"


def passed(**changed: Any) -> Pass:
    values = {
        "loss": 2.0,
        "outputs": [torch.tensor([1.0, -4.0, float("-inf")])],
        "gradients": {"weight": torch.tensor([[3.0, 0.5]]), "bias": torch.zeros(2)},
    }
    return Pass(**{**values, **changed})


def test_equal_passes_have_no_differences() -> None:
    nearly = {"weight": torch.tensor([[3.0 + 1e-5, 0.5]]), "bias": torch.full((2,), 1e-6)}
    assert differences(passed(loss=2.0 + 1e-6, gradients=nearly), passed()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"loss": 2.001}, "loss"),
        ({"loss": float("nan")}, "loss"),
        ({"outputs": []}, "0 outputs"),
        ({"outputs": [torch.tensor([1.0, -4.01, float("-inf")])]}, "output 0"),
        ({"outputs": [torch.tensor([1.0, float("nan"), float("-inf")])]}, "output 0"),
        ({"outputs": [torch.tensor([1.0, -4.0])]}, "output 0"),
        ({"gradients": {"weight": torch.tensor([[3.0, 0.5]])}}, "gradients of ['bias']"),
        (
            {"gradients": {"weight": torch.tensor([[3.0, 0.6]]), "bias": torch.zeros(2)}},
            "gradient of weight",
        ),
        (
            {"gradients": {"weight": torch.tensor([[3.0, 0.5]]), "bias": torch.full((2,), 1e-3)}},
            "gradient of bias",
        ),
    ],
)
def test_a_difference_is_seen(changed: dict[str, Any], said: str) -> None:
    [found] = differences(passed(**changed), passed())
    assert said in found


def test_training_may_part_as_far_as_the_cpu_from_itself() -> None:
    expected = [2.0, 1.5, 1.0]

    def calm(seed: int) -> list[float]:
        return [2.0, 1.5 + 1e-5, 1.0]

    def chaotic(seed: int) -> list[float]:
        return [2.0, 1.5 + 0.01 * seed, 1.0]

    assert compare_losses([2.0, 1.5 + 1e-4, 1.0], expected, calm) == []
    for train_changed in (calm, chaotic):
        [said] = compare_losses([2.0, 1.5, 1.2], expected, train_changed)
        assert said.startswith("step 2")
    [said] = compare_losses([2.0, 1.55, 1.05], expected, calm)
    assert said.startswith("step 1")
    assert compare_losses([2.0, 1.55, 1.05], expected, chaotic) == []
    [said] = compare_losses([2.0, float("nan"), 1.0], expected, chaotic)
    assert said.startswith("step 1")
    [said] = compare_losses([2.0] * 3, [2.0] * 3, calm)
    assert "does not fall" in said


def test_experts_without_a_gradient_are_seen() -> None:
    one, two = torch.zeros(4, 2, 3), torch.zeros(4, 2, 3)
    one[1] = two[1] = two[3] = 1.0
    assert experts_missed({"a.experts.up": one, "b.experts.up": two}) == ["a"]
    numbered = {"a.experts.0.up.weight": torch.ones(2, 2), "a.experts.3.up.weight": torch.ones(2)}
    assert experts_missed(numbered) == []
    assert experts_missed({"a.dense.weight": torch.ones(2)}) == ["all of them"]


def test_forty_architectures_of_every_kind_are_in_the_suite() -> None:
    theirs = [row.kind for row in SUITE.values() if row.source == "transformers"]
    assert len(theirs) >= 40
    assert set(theirs) == {
        "decoder", "encoder", "encoder-decoder", "experts", "state-space", "vision", "audio",
        "multimodal",
    }  # fmt: skip


def test_the_report_is_what_its_data_says() -> None:
    data = json.loads(REPORT.read_text())
    assert list(data["rows"]) == list(SUITE)
    assert REPORT.with_suffix(".md").read_text() == render(data)


def test_nine_in_ten_architectures_are_whole_programs() -> None:
    rows = json.loads(REPORT.read_text())["rows"].values()
    theirs = [row for row in rows if row["source"] == "transformers"]
    whole = [row for row in theirs if row["compiled"] and not row["fallbacks"]]
    assert len(whole) >= 0.9 * len(theirs)
