"""Section C, constants, random numbers and modes inside compiled graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torchneuron
from behaviour.compiling import assert_close, num_programs
from behaviour.subject import DEVICE, FIRST

pytestmark = pytest.mark.usefixtures("own_cache")
Block = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def test_c16_constants_are_made_inside_the_program() -> None:
    """pytorch/pytorch #178019: constants landed on the CPU and were copied at each call."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([0.5, 1.5, 2.5], device=x.device)
        return x + torch.arange(3, device=x.device) + torch.ones(3, device=x.device) * table

    call = torch.compile(fn, backend="neuron", fullgraph=True)
    x = torch.ones(3)
    on_device = x.to(DEVICE)
    assert_close(call(on_device), fn(x))
    with torchneuron.explain() as report:
        call(on_device)
    report.assert_no("transfer")
    report.assert_no("host_sync")


def test_c17_numbers_do_not_split_the_graph() -> None:
    """pytorch/xla #6288, tenstorrent/tt-xla #2408: a CPU scalar split the graph."""
    number = torch.tensor(2.0)

    def fn(x: torch.Tensor, scale: float) -> torch.Tensor:
        return (x * scale + number) * torch.tensor(3.0) + torch.tensor(4).to(x.device) - number * x

    x = torch.randn(3)
    call = torch.compile(fn, backend="neuron", fullgraph=True)
    with torchneuron.explain() as report:
        assert_close(call(x.to(DEVICE), 1.5), fn(x, 1.5))
    assert num_programs(report) == 1
    report.assert_no("host_fallback")
    report.assert_no("graph_break")


def test_c25_a_draw_is_replayed_from_a_copy_of_the_generator() -> None:
    """pytorch/pytorch #182391: running an operator with a given RNG state existed for CUDA only."""
    from torch._functorch._aot_autograd.utils import supports_graphsafe_rng
    from torch._prims.rng_prims import graphsafe_run_with_rng_state

    assert supports_graphsafe_rng(torch.device(DEVICE))
    x = torch.ones(64, device=DEVICE)
    state = torch.neuron.default_generators[0].clone_state()
    drawn = torch.ops.aten.bernoulli.p(x, 0.5)
    following = torch.rand(1, device=DEVICE)
    torch.neuron.default_generators[0].manual_seed(3)
    untouched = torch.neuron.get_rng_state()
    again = graphsafe_run_with_rng_state(torch.ops.aten.bernoulli.p, x, 0.5, rng_state=state)
    assert torch.equal(again.cpu(), drawn.cpu())
    assert torch.equal(torch.neuron.get_rng_state(), untouched)
    assert following.item() != torch.rand(1, device=DEVICE).item()


def test_c25_other_backends_recompute_dropout_with_its_mask() -> None:
    """pytorch/pytorch #182391: `aot_eager` on this device asked for a closed list of devices."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        dropped: Any = checkpoint(lambda x: F.dropout(x * 3, 0.5), x, use_reentrant=False)
        return dropped

    x = torch.ones(256, device=DEVICE, requires_grad=True)
    y = torch.compile(fn, backend="aot_eager")(x)
    y.sum().backward()
    assert str(y.device) == FIRST and 0 < (y == 0).sum().item() < 256
    assert torch.equal(x.grad, y.detach())  # six where it was kept, in both


DRAWS: dict[str, Block] = {
    "dropout": lambda x, w: F.dropout(torch.relu(x @ w), 0.5),
    "bernoulli": lambda x, w: (x @ w) * torch.bernoulli((x @ w).sigmoid().detach()),
    "multinomial": lambda x, w: (x @ w)[:, torch.multinomial(x.detach().abs(), 3)[0]],
    "normal": lambda x, w: (x @ w) * torch.normal(x.detach(), 1.0),
    "permutation": lambda x, w: (x @ w)[torch.randperm(16, device=x.device)] * x,
    "exponential": lambda x, w: (x @ w) * torch.empty_like(x).exponential_(),
    "rrelu": lambda x, w: F.rrelu(x @ w, training=True),
    "attention": lambda x, w: F.scaled_dot_product_attention(
        (x @ w)[None], x[None], w[None], dropout_p=0.3
    )[0],
}


def outcome(fn: Block, *, compiled: bool) -> list[torch.Tensor]:
    """Return loss, gradients and the generator's next numbers, on the CPU."""
    torch.manual_seed(0)
    x, w = (torch.randn(16, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    torch.manual_seed(5)
    loss = (torch.compile(fn, backend="neuron") if compiled else fn)(x, w)
    loss.backward()
    following = torch.rand(2, device=DEVICE)
    return [each.detach().cpu() for each in (loss, x.grad, w.grad, following)]


def test_c26_a_memory_budget_does_not_change_the_mask() -> None:
    """pytorch/pytorch #190717, #190758: recomputed dropout drew a second mask."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return DRAWS["dropout"](x, w).sin().sum()

    expected = outcome(fn, compiled=False)
    for budget in (0.5, 0.0):
        torch._dynamo.reset()
        with torch._functorch.config.patch(activation_memory_budget=budget):
            torch.testing.assert_close(outcome(fn, compiled=True), expected)


def test_c26_what_a_checkpointed_block_drew_is_not_drawn_again() -> None:
    """pytorch/pytorch #190717: the same for everything that draws, in one checkpointed block."""

    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.stack([draw(x, w).mean() for draw in DRAWS.values()])

    def recomputed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        kept: Any = checkpoint(block, x, w, use_reentrant=False)
        return kept.sin().sum()

    expected = outcome(lambda x, w: block(x, w).sin().sum(), compiled=False)
    torch.testing.assert_close(outcome(recomputed, compiled=True), expected)


def test_c26_draws_keep_their_order() -> None:
    """pytorch/pytorch #190717: a draw that reads data must not be overtaken by the others."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        first = torch.bernoulli(x.sigmoid())
        unused = torch.rand(5, device=x.device)
        return [
            first,
            F.dropout(x, 0.5),
            torch.multinomial(x.abs(), 3),
            torch.empty_like(x).normal_(1, 2) + unused.sum() * 0,
            torch.empty_like(x).geometric_(0.3),
            F.gumbel_softmax(x),
            torch.randint(9, (4,), device=x.device),
            torch.rand(3, device=x.device),
        ]

    x = torch.randn(8, 8)
    torch.manual_seed(3)
    expected = fn(x)
    torch.manual_seed(3)
    assert_close(torch.compile(fn, backend="neuron", fullgraph=True)(x.to(DEVICE)), expected)


def test_c26_draws_of_computed_sizes() -> None:
    """pytorch/pytorch #190717: a size worked out from others ended the compilation."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([x, x])
        return both + torch.rand_like(both) + torch.rand(2 * x.shape[0] + 1, 4, device=x.device)[1:]

    call = torch.compile(fn, backend="neuron", dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.manual_seed(rows)
        expected = fn(x)
        torch.manual_seed(rows)
        assert_close(call(x.to(DEVICE)), expected)


def test_c26_dropout_of_dynamic_sizes() -> None:
    """pytorch/pytorch #190758: dropout in a graph whose sizes are symbols."""
    call = torch.compile(lambda x: F.dropout(x, 0.5), backend="neuron", dynamic=True)
    for rows in (3, 5):
        x = torch.ones(rows, 4)
        torch.manual_seed(rows)
        expected = F.dropout(x, 0.5)
        torch.manual_seed(rows)
        assert_close(call(x.to(DEVICE)), expected)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_c28_modes_made_for_cuda_are_named_and_ignored(mode: str, notices: list[str]) -> None:
    """pytorch/pytorch #132856, PR #194598: graph capture was hard-wired to CUDA."""
    weight = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    x = torch.randn(3, 4, device=DEVICE)
    expected = torch.autograd.grad((x @ weight).sin().sum(), weight)[0]
    for how in ({"backend": "neuron"}, {}):
        torch._dynamo.reset()
        call = torch.compile(lambda x, w: (x @ w).sin().sum(), mode=mode, **how)
        for _ in range(3):  # captured modes warm up, then replay
            found = torch.autograd.grad(call(x, weight), weight)[0]
            assert_close(found, expected.cpu())
    named = [notice for notice in notices if f'mode="{mode}"' in notice]
    assert len(named) == 1 and all("ignored" in notice for notice in notices)


def switched_off(how: str, fn: Callable[..., Any], x: torch.Tensor) -> Any:
    """Call fn in one of the ways in which a user asks for no compilation."""
    if how == "disable":
        return torch.compile(fn, backend="neuron", disable=True)(x)
    if how == "stance":
        with torch.compiler.set_stance("force_eager"):
            return torch.compile(fn, backend="neuron")(x)
    if how == "compiler.disable":
        hidden = torch.compiler.disable(fn)
        return torch.compile(lambda x: hidden(x), backend="neuron")(x)
    with torch._dynamo.config.patch(disable=True):
        return torch.compile(fn, backend="neuron")(x)


@pytest.mark.parametrize("how", ["disable", "stance", "compiler.disable", "config"])
def test_c31_no_compilation_means_none(how: str) -> None:
    """vllm-project/tpu-inference #898: programs were compiled although eager was asked for."""
    before = torchneuron.compile_stats()
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with torchneuron.explain() as report:
        y = switched_off(how, lambda x: (x * 2).sin().sum(), x)
        y.backward()
        torch.nn.Linear(3, 3, device=DEVICE)(x).sum().item()
    assert torchneuron.compile_stats() == before
    assert num_programs(report) == 0
