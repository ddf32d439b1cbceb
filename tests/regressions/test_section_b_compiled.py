"""Section B where a graph is compiled: what runs outside it is counted, named and refusable."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed, UserError

import torchneuron
from behaviour.compiling import assert_close, assert_compiles_the_same, num_programs
from behaviour.subject import DEVICE, moved
from torchneuron.errors import CompileError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_b01_a_supported_model_runs_without_any_fallback() -> None:
    """aws-neuron/aws-neuron-sdk #184, #172: a model ran on the CPU and nobody noticed."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    net.append(nn.Linear(4 * 36, 5)).to(DEVICE)
    call = torch.compile(net, backend="neuron", options={"fallback_execution": False})
    torchneuron.clear_op_tracking()
    with torchneuron.explain() as report:
        call(torch.randn(2, 3, 8, 8, device=DEVICE)).sum().backward()
    report.assert_no("host_fallback")
    assert torchneuron.get_fallback_ops() == []
    assert num_programs(report) == 2  # forward and backward
    computed = [op for op in torchneuron.get_executed_ops() if "convolution" in op or "mm" in op]
    assert not computed, "a layer ran eagerly beside the programs"


def test_b01_a_fallback_is_counted_or_refused() -> None:
    """aws-neuron/aws-neuron-sdk #184, #172: what runs elsewhere is listed with its line."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x * 2) + 1

    x = torch.eye(3, device=DEVICE)
    torchneuron.clear_op_tracking()
    with torchneuron.explain() as report:
        torch.compile(fn, backend="neuron")(x)
    (record,) = report.to_dict()["host_fallbacks"]
    assert record["op"].startswith("aten.linalg_inv") and record["file"] == __file__
    assert torchneuron.get_fallback_ops() == [record["op"]]
    with pytest.raises(torchneuron.NeuronError, match="host_fallback"):
        report.assert_no("host_fallback")

    torch._dynamo.reset()
    strict = torch.compile(fn, backend="neuron", options={"fallback_execution": False})
    with pytest.raises(BackendCompilerFailed, match="linalg_inv") as caught:
        strict(x)
    assert isinstance(caught.value.inner_exception, CompileError)


def test_b02_a_fallback_is_named_once_and_the_rest_stays(
    notices: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """opendatalab/MinerU #1695: one fallback warning looked as if everything ran on the CPU."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.linalg.inv(x.sin() + 3 * torch.eye(3, device=x.device))
        return torch.linalg.inv(y * 2).cos() + torch.linalg.slogdet(y)[1]

    x = torch.randn(3, 3)
    with caplog.at_level(logging.WARNING, "torchneuron"):
        for dynamic in (False, True):
            torch._dynamo.reset()
            assert_close(torch.compile(fn, backend="neuron", dynamic=dynamic)(x.to(DEVICE)), fn(x))
    assert len(notices) == 2
    inverse, determinant = notices
    assert inverse.startswith("2 calls of `aten.linalg_inv_ex.default` in a graph run eagerly")
    assert determinant.startswith("1 call of `aten._linalg_slogdet.default` in a graph run")
    assert all("calls of that graph are compiled" in notice for notice in notices)
    shown = [record for record in caplog.records if "linalg_inv" in record.getMessage()]
    assert len(shown) == 1 and "hint: torchneuron.explain()" in shown[0].getMessage()


def test_b02_a_graph_that_falls_back_as_a_whole_says_so(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """opendatalab/MinerU #1695: only then is nothing left on the device's compiler."""
    from torchneuron.lowering import decompose
    from torchneuron.lowering.registry import TABLE

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    decompose.decompositions()
    monkeypatch.setitem(TABLE._rules, torch.ops.aten.sin.default, broken)
    options = {"fallback_execution": True}
    x = torch.ones(3, device=DEVICE)
    assert_close(torch.compile(torch.sin, backend="neuron", options=options)(x), x.cpu().sin())
    assert len(notices) == 1 and "nothing of it is compiled: aten.sin" in notices[0]


DATA_DEPENDENT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nonzero": lambda x: (x * 2).nonzero() + 1,
    "masked_select": lambda x: (x + 1).masked_select(x > 0).sum(),
    "boolean_index": lambda x: (x + 1)[x < 0] * 2,
    "unique": lambda x: (x * 2).unique() + 1,
    "repeat_interleave": lambda x: x.repeat_interleave(x.abs().sum(1).long(), dim=0) + 1,
}


@pytest.mark.filterwarnings("ignore::UserWarning:torch._dynamo")
def test_b08_compiled_shapes_that_depend_on_data_break_the_graph() -> None:
    """aws-neuron/aws-neuron-sdk #698, #564, #802: the break is reported, the result is right."""
    x = torch.randint(-2, 3, (5, 6)).float()
    for name, fn in DATA_DEPENDENT.items():
        torch._dynamo.reset()
        call = torch.compile(fn, backend="neuron")
        with torchneuron.explain() as report:
            for values in (x, x.flip(0) + 1):
                assert_close(call(values.to(DEVICE)), fn(values))
        breaks = report.to_dict()["graph_breaks"]
        assert breaks and all(each["file"] == __file__ for each in breaks), name


def test_b08_compiled_shapes_that_depend_on_data_in_one_graph() -> None:
    """aws-neuron/aws-neuron-sdk #698: with fullgraph the call runs between programs."""
    for name, call in (("nonzero", "aten.nonzero"), ("boolean_index", "aten.index")):
        torch._dynamo.reset()
        fn = torch.compile(DATA_DEPENDENT[name], backend="neuron", fullgraph=True)
        with torchneuron.explain() as report:
            for _ in range(2):
                x = torch.randint(-2, 3, (5, 6)).float()
                assert_close(fn(x.to(DEVICE)), DATA_DEPENDENT[name](x))
        assert num_programs(report) > 0
        records = report.to_dict()["host_fallbacks"]
        assert any(each["op"].startswith(call) for each in records), name
        assert all(each["reason"] for each in records)


def test_b08_compiled_branches_on_data_are_refused_clearly() -> None:
    """aws-neuron/aws-neuron-sdk #802: a condition on the data cannot be one graph."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    x = torch.ones(3)
    assert_compiles_the_same(fn, x)
    torch._dynamo.reset()
    with pytest.raises((RuntimeError, UserError), match=r"(?s)branching.*test_section_b_compiled"):
        torch.compile(fn, backend="neuron", fullgraph=True)(moved(x))
