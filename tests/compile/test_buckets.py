"""Buckets: few programs for all lengths, and only where the padding cannot be seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import torchneuron
from torchneuron.compile import buckets as module
from torchneuron.errors import ArgumentError, CompileError

SIZES = [8, 16, 32]
Function = Callable[..., Any]


class Decoder(nn.Module):
    """Embedding, positions, one causal layer, scores."""

    def __init__(self, causal: bool = True, longest: int = 32) -> None:
        super().__init__()
        self.causal = causal
        self.embed, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.position = nn.Parameter(torch.randn(longest, 16))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (N, T) to (N, T, 11)."""
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, 2, 8)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(functional.gelu(x + mixed.transpose(1, 2).flatten(2)))


def bucketed(function: Function, name: str = "x[1]", sizes: Any = SIZES) -> Function:
    """Compile with buckets for one dimension."""
    return torch.compile(
        function, backend="neuron", dynamic=True, options={"buckets": {name: sizes}}
    )


def num_programs(report: Any) -> int:
    """Count the programs that a block made or loaded."""
    found = report.to_dict()
    return len(found["compiles"]) + len(found["cache_hits"])


def test_all_lengths_of_a_decoder_take_a_program_per_bucket() -> None:
    model = Decoder().to("neuron")
    compiled = bucketed(model, "tokens[1]")
    with torch.no_grad(), torchneuron.explain() as report:
        for length in range(3, 33, 3):
            tokens = torch.randint(11, (2, length)).to("neuron")
            torch.testing.assert_close(compiled(tokens), model(tokens), atol=1e-5, rtol=1e-4)
    assert num_programs(report) == len(SIZES)
    report.assert_no("host_fallback")


def test_five_programs_serve_all_lengths_to_256() -> None:
    model = Decoder(longest=256).to("neuron")
    # Dynamo takes a length of one for a constant, which has a program of its own.
    compiled = bucketed(model, "tokens[1]", [32, 64, 128, 256])
    tokens = torch.randint(11, (1, 256)).to("neuron")
    with torch.no_grad(), torchneuron.explain() as report:
        for length in range(1, 257):
            made, wanted = compiled(tokens[:, :length]), model(tokens[:, :length])
            torch.testing.assert_close(made, wanted, atol=1e-5, rtol=1e-4)
    assert 0 < num_programs(report) <= 5
    report.assert_no("host_fallback")


def test_gradients_are_those_of_the_unpadded_model() -> None:
    model = Decoder().to("neuron")
    other = copy.deepcopy(model)
    compiled = bucketed(model, "tokens[1]")
    for length in (3, 8, 21):
        tokens = torch.randint(11, (2, length)).to("neuron")
        for each, call in ((model, compiled), (other, other)):
            each.zero_grad()
            call(tokens).square().mean().backward()
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, atol=1e-5, rtol=1e-4)


def test_buckets_end_where_the_positions_do() -> None:
    model = Decoder().to("neuron")
    compiled = bucketed(model, "tokens[1]", [64])
    tokens = torch.randint(11, (1, 30)).to("neuron")
    torch.testing.assert_close(compiled(tokens), model(tokens), atol=1e-5, rtol=1e-4)


def rows(x: Tensor) -> Tensor:
    """Compute each row by itself."""
    return torch.softmax(functional.relu(x) @ torch.ones(4, 3, device=x.device), dim=-1)


SAFE: dict[str, Function] = {
    "rows": rows,
    "sum of other dimensions": lambda x: x.sum(-1, keepdim=True) + x.amax(0),
    "running sum": lambda x: x.cumsum(1),
    "positions": lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None],
    "flattened and back": lambda x: (x.flatten(0, 1) * 2).unflatten(0, (x.shape[0], x.shape[1])),
    "transposed": lambda x: (x.transpose(1, 2) * 2).transpose(1, 2),
    "mask of positions": lambda x: torch.where(
        torch.arange(x.shape[1], device=x.device)[:, None] > 1, x, 0.0
    ),
    "several results": lambda x: {"a": x.exp(), "b": (x.unsqueeze(2), x.sum(-1))},
    "changed input": lambda x: x.mul_(2) + 1,
}


@pytest.mark.parametrize("case", SAFE)
def test_what_is_proved_safe_is_padded_and_right(case: str) -> None:
    compiled = bucketed(SAFE[case])
    with torchneuron.explain() as report:
        for length in (3, 5, 8):
            x = torch.randn(2, length, 4).to("neuron")
            ours, theirs = x.clone(), x.clone()
            made, wanted = compiled(ours), SAFE[case](theirs)
            torch.testing.assert_close(made, wanted, atol=1e-5, rtol=1e-4)
            assert torch.equal(ours, theirs), "a changed input is written back"
    assert num_programs(report) == 1


def test_independent_rows_of_a_batch() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(2))
    model = model.eval().to("neuron")
    compiled = bucketed(lambda x: model(x), "x[0]")
    with torch.no_grad(), torchneuron.explain() as report:
        for batch in (5, 7, 8):
            x = torch.randn(batch, 3, 6, 6).to("neuron")
            torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
    assert num_programs(report) == 1


UNSAFE: dict[str, tuple[Function, str]] = {
    "sum": (lambda x: x.sum(1), "across the padded dimension"),
    "mean of all": (lambda x: x.mean(), "across the padded dimension"),
    "softmax over it": (lambda x: x.softmax(1), "across the padded dimension"),
    "last element": (lambda x: x[:, -1], "across|part of"),
    "but the last": (lambda x: x[:, :-1].sum(-1).amax(1), "part of the dimension"),
    "reversed": (lambda x: x.flip(1), "across the padded dimension"),
    "its size": (lambda x: x * x.shape[1], "computes with the size itself"),
    "product over it": (lambda x: x.transpose(1, 2) @ x, "across the padded dimension"),
    "attention": (
        lambda x: functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
        "not causal",
    ),
    "convolution": (
        lambda x: functional.conv1d(x.transpose(1, 2), torch.ones(1, 4, 1, device=x.device)),
        "across the padded dimension",
    ),
    "joined": (lambda x: torch.cat([x, x], 1).sum(-1).amax(1), "across the padded dimension"),
    "dropout": (lambda x: functional.dropout(x, 0.5), "draws numbers"),
    "mixed dimensions": (
        lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[1], 4) + 1,
        "mixes the padded dimension",
    ),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_what_is_not_safe_is_refused_with_the_reason(case: str) -> None:
    function, reason = UNSAFE[case]
    with pytest.raises(Exception, match=reason) as raised:
        bucketed(function)(torch.randn(2, 5, 4).to("neuron"))
    error = getattr(raised.value, "inner_exception", raised.value)
    assert isinstance(error, CompileError)
    assert "`x[1]` cannot be padded to buckets" in str(error)
    assert "hint:" in str(error)


@pytest.mark.parametrize(
    ("function", "shape", "reason"),
    [
        (lambda x: torch.cat([x, x], 1), (2, 5, 4), "which is computed from it"),
        (lambda x: x + 1, (5, 5, 4), "two dimensions"),
    ],
)
def test_what_cannot_be_padded_from_outside_is_said_and_runs_unpadded(
    function: Function,
    shape: tuple[int, ...],
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_said", set())
    x = torch.randn(shape).to("neuron")
    assert torch.equal(bucketed(function)(x), function(x))
    assert "`x[1]` is not padded" in caplog.text
    assert reason in caplog.text


def test_a_declared_dimension_is_padded_unproved() -> None:
    compiled = bucketed(lambda x: x.sum(1), sizes={"sizes": SIZES, "safe": True})
    x = torch.randn(2, 5, 4).to("neuron")
    torch.testing.assert_close(compiled(x), x.sum(1), atol=1e-5, rtol=1e-4)


def test_a_longer_input_runs_at_its_own_size() -> None:
    compiled = bucketed(rows)
    x = torch.randn(2, 33, 4).to("neuron")
    torch.testing.assert_close(compiled(x), rows(x))


def test_two_dimensions() -> None:
    options = {"buckets": {"x[0]": [4], "x[1]": [8]}}
    compiled = torch.compile(rows, backend="neuron", dynamic=True, options=options)
    with torchneuron.explain() as report:
        for batch, length in ((2, 3), (3, 8), (4, 5)):
            x = torch.randn(batch, length, 4).to("neuron")
            torch.testing.assert_close(compiled(x), rows(x))
    assert num_programs(report) == 1


def test_an_unknown_dimension_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_said", set())
    compiled = bucketed(rows, "y[1]")
    for length in (3, 5):
        compiled(torch.randn(2, length, 4).to("neuron"))
    assert caplog.text.count("no dimension `y[1]`") == 1
    assert "x[1]" in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": [8]}, "names no dimension"),
        ({"x[1]": []}, "not positive integers"),
        ({"x[1]": [0, 8]}, "not positive integers"),
        ({"x[1]": [True]}, "not positive integers"),
        ({"x[1]": 8}, "not positive integers"),
        ({"x[1]": {"size": [8]}}, "not `sizes` and `safe`"),
        ([8], "not of type dict"),
    ],
)
def test_options_that_make_no_sense(given: Any, message: str) -> None:
    compiled = torch.compile(rows, backend="neuron", options={"buckets": given})
    with pytest.raises(Exception, match=message) as raised:
        compiled(torch.randn(2, 5, 4).to("neuron"))
    error = getattr(raised.value, "inner_exception", raised.value)
    assert isinstance(error, ArgumentError)
