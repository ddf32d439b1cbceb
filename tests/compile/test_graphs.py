"""Compiled graphs that torch's cache keeps: a hit gives the same numbers, and some are not kept."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch import config as functorch

import torchneuron
from torchneuron.runtime.cache import user_cache

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep graphs, in a folder of this test; elsewhere the tests keep none."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with functorch.patch(enable_autograd_cache=True):
        yield


def outcomes(function: Function, *shapes: tuple[int, ...], **options: Any) -> list[Any]:
    """Return results and gradients of a compiled function, as a new process would compile it."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(3)
    inputs = [torch.randn(shape).to("neuron").requires_grad_() for shape in shapes]
    result = torch.compile(function, backend="neuron", **options)(*inputs)
    gradients = torch.autograd.grad(result.sum(), inputs)
    return [each.detach().cpu() for each in (result, *gradients)]


def hits() -> int:
    """Return how many graphs came from the cache since the last compilation began."""
    found: int = counters["aot_autograd"]["autograd_cache_hit"]
    return found


def saved() -> int:
    found: int = counters["aot_autograd"]["autograd_cache_saved"]
    return found


def layers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute what takes programs on both sides of drawn numbers."""
    return nn.functional.dropout((x @ y).tanh(), 0.3).exp().transpose(0, 1)


def test_a_kept_graph_gives_the_same_numbers_and_strides() -> None:
    first = outcomes(layers, (4, 6), (6, 5))
    assert (hits(), saved()) == (0, 1)
    before = torchneuron.compile_stats()
    again = outcomes(layers, (4, 6), (6, 5))
    after = torchneuron.compile_stats()
    assert (hits(), saved()) == (1, 0)
    assert after["compiled"] == before["compiled"]
    assert after["lowering_s"] == before["lowering_s"]
    assert after["programs"] > before["programs"]
    for one, other in zip(again, first, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_without_gradient() -> None:
    function = torch.compile(lambda x: (x * 2, None, x.sum()), backend="neuron")
    for expected in (0, 1):
        torch._dynamo.reset()
        counters.clear()
        double, nothing, total = function(torch.ones(3, device="neuron"))
        assert hits() == expected
        assert (double.cpu().tolist(), nothing, total.item()) == ([2.0] * 3, None, 3.0)


def test_training_goes_on_as_before() -> None:
    losses = []
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 1))
        model.to("neuron")
        optimizer = torch.optim.AdamW(model.parameters())
        step = torch.compile(model, backend="neuron")
        inputs = torch.randn(10, 8).to("neuron")
        for _ in range(4):
            loss = step(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert hits() == 1
    assert losses[:4] == losses[4:]


def test_a_view_and_a_written_input() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[0]

    for expected in (0, 1):
        torch._dynamo.reset()
        counters.clear()
        x = torch.zeros(2, 3, device="neuron")
        row = torch.compile(write, backend="neuron")(x)
        assert hits() == expected
        row.fill_(7)
        assert x.cpu().tolist() == [[7.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("options", [{"fallback_execution": True}, {"model_name": "other"}])
def test_other_options_are_another_graph(options: dict[str, Any]) -> None:
    outcomes(layers, (4, 6), (6, 5))
    outcomes(layers, (4, 6), (6, 5), options=options)
    assert (hits(), saved()) == (0, 1)


def test_other_code_of_this_package_is_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes(layers, (4, 6), (6, 5))
    monkeypatch.setattr("torchneuron.compile.graphs._sources", lambda: "changed")
    outcomes(layers, (4, 6), (6, 5))
    assert hits() == 0


def test_a_dropped_program_is_compiled_anew() -> None:
    first = outcomes(layers, (4, 6), (6, 5))
    user_cache().clear()
    before = torchneuron.compile_stats()["compiled"]
    again = outcomes(layers, (4, 6), (6, 5))
    assert hits() == 0
    assert torchneuron.compile_stats()["compiled"] > before
    assert all(map(torch.equal, again, first))
    outcomes(layers, (4, 6), (6, 5))
    assert hits() == 1


def test_size_symbols_are_not_kept() -> None:
    for _ in range(2):
        outcomes(lambda x: x.sin(), (4, 6), dynamic=True)
        assert (hits(), saved()) == (0, 0)


def test_a_fallback_is_counted_each_time() -> None:
    for _ in range(2):
        with torchneuron.explain() as report:
            outcomes(lambda x: torch.linalg.inv(x).sin(), (3, 3))
        assert (hits(), saved()) == (0, 0)
        assert report.to_dict()["host_fallbacks"]


def test_kept_artifacts_are_written_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        folder = tmp_path / str(number)
        monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(folder))
        outcomes(layers, (4, 6), (6, 5), options={"preserve_artifacts": True})
        assert (hits(), saved()) == (0, 0)
        assert any(path.is_file() for path in folder.rglob("*"))


def test_a_damaged_entry_costs_a_compilation(tmp_path: Path) -> None:
    first = outcomes(layers, (4, 6), (6, 5))
    entries = [path for path in (tmp_path / "aotautograd").rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(b"nothing")
    again = outcomes(layers, (4, 6), (6, 5))
    assert hits() == 0
    assert all(map(torch.equal, again, first))


def test_the_cpus_inductor_keeps_its_own_graphs() -> None:
    """The option that ours are kept under is not left on."""
    outcomes(layers, (4, 6), (6, 5))
    assert not functorch.bundled_autograd_cache
