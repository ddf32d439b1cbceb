"""Plain `torch.compile(model)`: this backend for graphs on the device, Inductor for the rest."""

from collections.abc import Iterator

import pytest
import torch

import torchneuron
from torchneuron import ledger
from torchneuron.compile import options
from torchneuron.ledger import Explanation, Notice


@pytest.fixture
def notices() -> Iterator[list[str]]:
    """Collect what is said, as if nothing had been said before."""
    said: list[str] = []
    options._said.clear()
    remove = ledger.add_sink(
        lambda event: said.append(event.text) if isinstance(event, Notice) else None
    )
    yield said
    remove()


def num_programs(report: Explanation) -> int:
    found = report.to_dict()
    return len(found["compiles"]) + len(found["cache_hits"])


def test_a_graph_with_a_neuron_input_comes_here() -> None:
    x = torch.ones(3, device="neuron")
    with torchneuron.explain() as report:
        assert torch.compile(lambda x: x * 2 + 1)(x).tolist() == [3] * 3
    assert num_programs(report) == 1


def test_a_graph_that_makes_its_tensors_on_the_device_comes_here() -> None:
    with torchneuron.explain() as report:
        made = torch.compile(lambda: torch.ones(3, device="neuron") * 2)()
    assert made.is_neuron and num_programs(report) == 1


def test_a_cpu_graph_stays_with_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def compile_fx(graph: torch.fx.GraphModule, *_: object, **__: object) -> object:
        seen.append(graph)
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    with torchneuron.explain() as report:
        torch.compile(lambda x: x * 2)(torch.ones(3))
    assert len(seen) == 1 and num_programs(report) == 0


@pytest.mark.parametrize("mode", ["max-autotune-no-cudagraphs", "reduce-overhead"])
def test_modes_for_cuda_are_said_once_and_ignored(mode: str, notices: list[str]) -> None:
    x = torch.ones(3, device="neuron")
    for _ in range(2):
        torch._dynamo.reset()
        assert torch.compile(lambda x: x + 1, mode=mode, backend="neuron")(x).tolist() == [2] * 3
    assert len(notices) == 1 and f'mode="{mode}"' in notices[0]


def test_inductors_options_are_said_once_each(notices: list[str]) -> None:
    x = torch.ones(3, device="neuron")
    chosen = {"triton.cudagraphs": True, "epilogue_fusion": True}
    assert torch.compile(lambda x: x + 1, options=chosen)(x).tolist() == [2] * 3
    assert sorted(notice.split("`")[1] for notice in notices) == sorted(chosen)
