"""Compiled tensors lie in memory as eager's do, and what is drawn follows that order.

The CPU's generator fills memory, so a mask depends on the strides of the tensor that it is for.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torchneuron

DEVICE = "neuron"
LAST = torch.channels_last
Fn = Callable[..., Any]
HEADS, WIDTH = 4, 8


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(memory_format=LAST)


def plain(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE)


def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.conv2d(x, w), 0.5).sin()


def recomputed(x: torch.Tensor, w: torch.Tensor) -> Any:
    return checkpoint(convolved, x, w, use_reentrant=False)


def transposed_convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.conv_transpose2d(x, w), 0.5)


def transposed(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.permute(2, 0, 1), 0.5).sin()


def expanded(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x[:, None].expand(-1, 3, -1, -1).transpose(0, 2), 0.5)


def padded(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.pad(x.permute(2, 0, 1), (1, 1)), 0.5)


def attended(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    heads = x.unflatten(2, (HEADS, WIDTH)).transpose(1, 2)
    found = F.scaled_dot_product_attention(heads, heads, heads)
    return F.dropout(found), F.dropout(found.transpose(1, 2).flatten(2))


def attended_with_dropout(x: torch.Tensor) -> torch.Tensor:
    heads = x.unflatten(2, (HEADS, WIDTH)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5)


def other_dropouts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    turned = x.permute(2, 0, 1)
    return F.alpha_dropout(turned, 0.5, True), F.dropout1d(turned), torch.rand_like(turned) * turned


def in_place_and_not(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    turned = x.permute(2, 0, 1)
    filled = torch.empty_like(turned).bernoulli_(0.5)
    return turned * filled, turned * torch.bernoulli(turned.detach(), 0.5)


CASES: dict[str, tuple[Fn, Callable[[], Sequence[torch.Tensor]]]] = {
    "kernel of one": (convolved, lambda: [images(2, 8, 6, 6), plain(4, 8, 1, 1)]),
    "kernel of three": (convolved, lambda: [images(2, 8, 6, 6), plain(4, 8, 3, 3)]),
    "weight": (convolved, lambda: [plain(2, 8, 6, 6), images(4, 8, 3, 3)]),
    "recomputed": (recomputed, lambda: [images(2, 8, 6, 6), plain(4, 8, 3, 3)]),
    "transposed kernel": (
        transposed_convolution,
        lambda: [images(2, 8, 6, 6), plain(8, 4, 2, 2)],
    ),
    "transposed": (transposed, lambda: [plain(2, 5, 32)]),
    "expanded": (expanded, lambda: [plain(2, 5, 32)]),
    "padded": (padded, lambda: [plain(2, 5, 32)]),
    "attention": (attended, lambda: [plain(2, 5, 32)]),
    "dropout of attention": (attended_with_dropout, lambda: [plain(2, 5, 32)]),
    "other dropouts": (other_dropouts, lambda: [plain(2, 5, 32)]),
    "in place": (in_place_and_not, lambda: [plain(2, 5, 32)]),
}


def outcome(fn: Fn, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return results and gradients."""
    given = [each.detach().requires_grad_() for each in inputs]
    torch.manual_seed(5)
    made = fn(*given)
    results = list(made) if isinstance(made, tuple) else [made]
    torch.autograd.backward(results, [torch.ones_like(each) for each in results])
    return [*(each.detach() for each in results), *(each.grad for each in given)]


def order(tensor: torch.Tensor) -> list[int]:
    """Return the strides that say something."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_numbers_and_strides_are_eagers(name: str, dynamic: bool) -> None:
    fn, make = CASES[name]
    torch.manual_seed(0)
    inputs = make()
    expected = outcome(fn, inputs)
    found = outcome(torch.compile(fn, backend="neuron", dynamic=dynamic), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-4, atol=1e-5)
        assert order(one) == order(other)


def test_results_with_strides_can_be_written_in_place() -> None:
    x = torch.randn(3, 4, device=DEVICE, requires_grad=True)
    found = torch.compile(lambda x: (x * 2).t(), backend="neuron")(x)
    assert found.stride() == (1, 4)
    found.add_(1).sum().backward()
    torch.testing.assert_close(found.detach().cpu(), (x * 2).t().detach().cpu() + 1)
    assert torch.equal(x.grad.cpu(), torch.full((3, 4), 2.0))


def test_strides_other_than_traced_are_taken() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="neuron", dynamic=True)
    for x in (plain(4, 6).t(), plain(5, 7), plain(9, 14)[:, ::2], plain(1, 6).expand(5, 6)):
        torch.testing.assert_close(compiled(x).cpu(), x.cpu() * 2 + 1)


def test_a_graph_that_is_cut_goes_on_with_eagers_strides() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        turned = x.transpose(0, 1) * 2
        torch._dynamo.graph_break()
        return F.dropout(turned, 0.5)

    x = plain(5, 7)
    torch.manual_seed(1)
    found = torch.compile(fn, backend="neuron")(x)
    torch.manual_seed(1)
    assert torch.equal(found.cpu(), fn(x).cpu())


def test_a_part_gets_the_sizes_that_only_sums_are_known_of() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 1)).nan_to_num().exp().cumsum(0).tanh()

    def cut(x: torch.Tensor) -> Any:
        return torch.ops.aten.linalg_inv_ex(fn(x) + 9 * torch.eye(x.shape[0], device=DEVICE))[0]

    with torchneuron.explain():
        compiled = torch.compile(cut, backend="neuron", dynamic=True)
        for size in (6, 8):
            x = torch.rand(size, size - 2, device=DEVICE)
            torch.testing.assert_close(compiled(x).cpu(), cut(x).cpu(), rtol=1e-3, atol=1e-4)
