"""`torch.compile(backend="neuron")` computes what eager computes, forward and backward."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import torchneuron
from torchneuron.errors import ArgumentError, CompileError, StrictError

DEVICE = "neuron"


def compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, backend="neuron", **options)


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.device == other.device and one.dtype == other.dtype
    torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-5)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to(DEVICE)


def test_inference_runs_as_one_program() -> None:
    model, x = net(), torch.randn(3, 8, device=DEVICE)
    with torch.no_grad(), torchneuron.explain() as report:
        close(compiled(model)(x), model(x))
    found = report.to_dict()
    assert len(found["compiles"]) + len(found["cache_hits"]) == 1
    report.assert_no("host_fallback")


def test_metrics_tell_what_each_program_cost() -> None:
    before = torchneuron.compile_stats()
    x = torch.randn(3, 8, device=DEVICE)
    compiled(net())(x)
    after = torchneuron.compile_stats()
    num_new = int(after["programs"] - before["programs"])
    assert num_new == 1 and after["lowering_s"] > before["lowering_s"]
    record = torchneuron.get_dynamo_metrics()[-1]
    assert record["num_nodes"] > 4 and record["compile_s"] > 0
    assert after["compiled"] + after["from_cache"] == after["programs"]


def test_gradients_equal_eager() -> None:
    model, x = net(), torch.randn(3, 8, device=DEVICE, requires_grad=True)
    other, y = copy.deepcopy(model), x.detach().clone().requires_grad_()
    compiled(model)(x).square().sum().backward()
    other(y).square().sum().backward()
    close(x.grad, y.grad)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        close(one.grad, two.grad)


def test_training_follows_eager() -> None:
    model = net()
    other = copy.deepcopy(model)
    x, target = torch.randn(16, 8, device=DEVICE), torch.randint(4, (16,), device=DEVICE)

    def losses(module: nn.Module, call: Callable[..., torch.Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        found = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses(other, other)
    assert losses(model, compiled(model)) == pytest.approx(expected, rel=1e-4)
    assert expected[-1] < expected[0]


def test_dropout_draws_what_eager_draws_and_its_gradient_agrees() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.3) * 2, 0.5)

    x = torch.randn(64, 8, device=DEVICE, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    torch.manual_seed(5)
    one = compiled(fn)(x)
    torch.manual_seed(5)
    other = fn(y)
    close(one, other)
    one.sum().backward()
    other.sum().backward()
    close(x.grad, y.grad)
    assert 0 < (one == 0).sum().item() < one.numel()


def test_random_factories_draw_what_eager_draws() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x) + torch.rand(3, device=x.device)

    x = torch.zeros(2, 3, device=DEVICE)
    torch.manual_seed(1)
    one = compiled(fn)(x)
    torch.manual_seed(1)
    close(one, fn(x))


def test_mutation_of_an_argument_reaches_it() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(4, device=DEVICE)
    address = x.data_ptr()
    result = compiled(fn)(x)
    assert x.tolist() == [1] * 4 and result.tolist() == [2] * 4 and x.data_ptr() == address


def test_buffers_are_updated() -> None:
    torch.manual_seed(0)
    model = nn.BatchNorm1d(4).to(DEVICE)
    other = copy.deepcopy(model)
    x = torch.randn(8, 4, device=DEVICE)
    close(compiled(model)(x), other(x))
    close(model.running_mean, other.running_mean)
    close(model.running_var, other.running_var)
    assert model.num_batches_tracked.item() == 1


def test_an_output_that_is_a_view_of_an_input_shares_its_memory() -> None:
    x = torch.zeros(2, 3, device=DEVICE)
    view, _ = compiled(lambda x: (x.t(), x + 1))(x)
    assert view.data_ptr() == x.data_ptr()
    view.add_(1)
    assert x.sum().item() == 6


def test_outputs_that_are_none_numbers_or_inputs() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return x, None, 3, x.shape[0], x * 2

    x = torch.ones(2, device=DEVICE)
    same, nothing, three, size, double = compiled(fn)(x)
    assert same is x and nothing is None and (three, size) == (3, 2)
    assert double.tolist() == [2, 2]


def test_strided_arguments() -> None:
    x = torch.randn(4, 6, device=DEVICE)
    for view in (x.t(), x[:, 1::2], x[1:, 3], x.expand(2, 4, 6)):
        close(compiled(lambda x: x * 2 + 1)(view), view * 2 + 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_dtypes(dtype: torch.dtype) -> None:
    x = (torch.arange(12, device=DEVICE) % 3).reshape(3, 4).to(dtype)
    result = compiled(lambda x: (x.sum(), x * x, x > 1, x.float()))(x)
    for one, other in zip(result, (x.sum(), x * x, x > 1, x.float()), strict=True):
        assert one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu())


def test_autocast_regions() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return x @ w

    x, w = torch.randn(4, 8, device=DEVICE), torch.randn(8, 8, device=DEVICE)
    result = compiled(fn)(x, w)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.cpu(), fn(x, w).cpu(), rtol=2e-2, atol=2e-2)


def test_what_has_no_lowering_runs_eagerly_and_is_counted() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x @ x.t() + 3 * torch.eye(4, device=x.device)) * 2

    x = torch.randn(4, 4, device=DEVICE)
    with torchneuron.explain() as report:
        close(compiled(fn)(x), fn(x))
    (record,) = report.to_dict()["host_fallbacks"]
    assert record["op"].startswith("aten.linalg_inv") and record["reason"] == "no lowering"
    assert record["file"] == __file__ and record["line"] > 0


def test_fallback_execution_false_refuses_it() -> None:
    call = compiled(lambda x: torch.linalg.inv(x), options={"fallback_execution": False})
    with pytest.raises(BackendCompilerFailed, match="linalg_inv.* at .*test_backend.py") as caught:
        call(torch.eye(4, device=DEVICE))
    assert isinstance(caught.value.inner_exception, CompileError)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fallback_exec": True}, "did you mean `fallback_execution`"),
        ({"fallback_execution": "yes"}, "not of type bool"),
        ({"tritn.cudagraph": True}, "no option `tritn.cudagraph`"),
    ],
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BackendCompilerFailed, match=text) as caught:
        compiled(torch.sin, options=options)(torch.ones(1, device=DEVICE))
    assert isinstance(caught.value.inner_exception, ArgumentError)


def test_new_sizes_reuse_the_graph() -> None:
    call = compiled(lambda x: (x * x.shape[0]).cumsum(0), dynamic=True)
    graphs = counters["stats"]["unique_graphs"]
    for size in (5, 9, 17, 5):
        x = torch.randn(size, 3, device=DEVICE)
        close(call(x), x.mul(size).cumsum(0))
    assert counters["stats"]["unique_graphs"] == graphs + 1


def test_dynamic_training() -> None:
    model = net()
    call = compiled(model, dynamic=True)
    for size in (3, 7, 12):
        other = copy.deepcopy(model)
        model.zero_grad()
        x = torch.randn(size, 8, device=DEVICE)
        call(x).square().mean().backward()
        other(x).square().mean().backward()
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            close(one.grad, two.grad)


# A small output is copied into the pool, a large one is the program's own memory.
@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 1 << 20])
def test_outputs_count_as_device_memory(size: int, settled_memory: Callable[..., int]) -> None:
    x = torch.arange(float(size), device=DEVICE)
    call = compiled(lambda x: x * 2)
    call(x)
    before = settled_memory()
    y = call(x)
    assert torch.equal(y.cpu(), torch.arange(float(size)) * 2)
    counted = torch.neuron.memory_allocated() - before
    assert y.nbytes <= counted < y.nbytes + 64  # a block of the pool has full lines of 64 bytes
    z = call(y)
    assert torch.equal(z.cpu(), torch.arange(float(size)) * 4)
    del y, z
    assert torch.neuron.memory_allocated() == before


def test_a_models_memory_is_freed_with_it(settled_memory: Callable[..., int]) -> None:
    def use() -> None:
        model, x = net(), torch.randn(3, 8, device=DEVICE)
        call = compiled(model)
        for _ in range(2):
            call(x).sum().backward()

    before = settled_memory()
    use()
    torch._dynamo.reset()
    assert settled_memory() == before


def test_a_program_beyond_the_cores_memory_is_refused(settled_memory: Callable[..., int]) -> None:
    x = torch.ones(1 << 20, device=DEVICE)
    call = compiled(lambda x: x * 2)
    call(x)
    settled_memory()
    torch.neuron.empty_cache()  # cached memory would be given back and leave room
    total = torch.neuron.get_device_properties().total_memory
    torch.neuron.set_per_process_memory_fraction((torch.neuron.memory_reserved() + 1024) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            call(x)
    finally:
        torch.neuron.set_per_process_memory_fraction(1.0)
    assert call(x)[0].item() == 2


def test_strict_refuses_what_would_run_on_the_host() -> None:
    call = compiled(lambda x: torch.linalg.inv(x))
    with torchneuron.strict("host_fallback"), pytest.raises(BackendCompilerFailed) as caught:
        call(torch.eye(4, device=DEVICE))
    assert isinstance(caught.value.inner_exception, StrictError)
    text = str(caught.value)
    assert "aten.linalg_inv_ex.default (float32, int32) at " in text and "test_backend.py" in text


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Make the rule of `sin` fail."""

    def rule(*_: object) -> None:
        raise error

    from torchneuron.lowering import decompose
    from torchneuron.lowering.registry import TABLE

    decompose.decompositions()
    monkeypatch.setitem(TABLE._rules, torch.ops.aten.sin.default, rule)


def test_a_rule_that_refuses_its_arguments_leaves_the_call_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, NotImplementedError("sines of Tuesdays"))
    x = torch.randn(3, device=DEVICE)
    with torchneuron.explain() as report:
        close(compiled(lambda x: (x + 1).sin() * 2)(x), (x + 1).sin() * 2)
    (record,) = report.to_dict()["host_fallbacks"]
    assert record["op"] == "aten.sin.default" and "does not cover" in record["reason"]


def test_a_rule_that_fails_is_an_error_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError("by zero"))
    with pytest.raises(
        BackendCompilerFailed, match=r"at .*test_backend.py:\d+: aten.sin"
    ) as caught:
        compiled(lambda x: x.sin())(torch.ones(3, device=DEVICE))
    assert isinstance(caught.value.inner_exception, CompileError)


@pytest.mark.parametrize("how", ["option", "variable"])
def test_fallback_execution_true_runs_a_failed_graph_eagerly(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, ZeroDivisionError("by zero"))
    options = {"fallback_execution": True} if how == "option" else None
    if how == "variable":
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    x = torch.randn(3, device=DEVICE, requires_grad=True)
    with torchneuron.explain() as report:
        result = compiled(lambda x: x.sin(), options=options)(x)
        result.sum().backward()
    close(result.detach(), x.detach().sin())
    close(x.grad, x.detach().cos())
    assert report.to_dict()["host_fallbacks"][0]["op"] == "the whole graph"


def test_lines_of_calls_between_programs_are_the_users() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x * 2) + 1

    x = torch.eye(3, device="neuron")
    with torchneuron.explain() as report:
        torch.compile(fn, backend="neuron")(x)
    executed = {each["op"]: each["file"] for each in report.to_dict()["executed"]}
    assert executed["aten::_linalg_eigh"] == __file__


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: b.exp() - a,
        lambda a, b: (b * 2, a + 1, b - a),
        lambda a, b: (b * 2, b),
        lambda a, b: (b.sum(), b.sum()),
    ],
)
def test_inputs_and_outputs_of_a_single_program_come_in_any_order(
    call: Callable[..., Any],
) -> None:
    a, b = torch.randn(2, 3, device=DEVICE), torch.randn(2, 3, device=DEVICE)
    found = compiled(call)(a, b)
    for one, two in zip(pytree.tree_leaves(found), pytree.tree_leaves(call(a, b)), strict=True):
        close(one, two)
