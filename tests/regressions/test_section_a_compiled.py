"""Section A where the wrong result came out of a compiled graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from behaviour.compiling import assert_close, assert_compiles_the_same
from behaviour.subject import DEVICE, moved, with_gradients
from regressions.test_section_a_autograd import COMPOSITE
from regressions.test_section_a_models import Translator

pytestmark = pytest.mark.usefixtures("own_cache")

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda base: base[:5, :4],
    "offset and step": lambda base: base[3:, ::2],
    "another offset": lambda base: base[2:7, 1::2],
    "transposed": lambda base: base[:4, :5].t(),
    "packed at the same address": lambda base: base.view(-1)[:20].view(5, 4),
    "expanded": lambda base: base[2:3, 2:6].expand(5, 4),
    "one element in": lambda base: base.view(-1)[1:21].view(5, 4),
}


def rewrite(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Read, change and write the rows, the elements and one column that masks choose."""
    x = x.clone()
    x[mask] = x[mask].flip(-1)
    each = (x > 0) & mask[:, None]
    x[each] = x[each] * 2 + 1
    x[mask, 3] -= 1
    return x


@pytest.mark.filterwarnings("ignore::UserWarning:torch._dynamo")
def test_a02_compiled_rewriting_through_a_mask() -> None:
    """aws-neuron/aws-neuron-sdk #1381: the compiled read-modify-write stored wrong values."""
    masks = [
        torch.rand(64) > 0.5,
        torch.ones(64, dtype=torch.bool),
        torch.zeros(64, dtype=torch.bool),
        torch.arange(64) == 17,
    ]
    call = torch.compile(rewrite, backend="neuron")
    for mask in masks:
        x = torch.randn(64, 8)
        assert torch.equal(call(*moved((x, mask))).cpu(), rewrite(x, mask))


def test_a02_compiled_masks_of_static_shape() -> None:
    """aws-neuron/aws-neuron-sdk #1381: the same written with `where`, as one program."""

    def replace(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = torch.where(mask[:, None], x.flip(-1), x)
        x.masked_fill_(x > 3, 0.5)
        x[:, 2:5] += mask[:, None]
        return x

    for dtype in (torch.float32, torch.bfloat16):
        x = (torch.randn(64, 8) * 9).to(dtype)
        assert_compiles_the_same(replace, x, torch.rand(64) > 0.5, fullgraph=True)


def test_a02_compiled_dilated_convolution_in_bfloat16() -> None:
    """aws-neuron/aws-neuron-sdk #1381: a dilated 1-D network got wrong values in bfloat16."""
    layers = [nn.Conv1d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4, 16)]
    exact = nn.Sequential(*layers).double()
    x = torch.randn(2, 8, 50, requires_grad=True, dtype=torch.float64)

    def forward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return net(x)

    def outcome(fn: Callable[..., Any], device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        net, at = moved((exact, x), device)
        at = at.detach().to(dtype).requires_grad_()
        result, gradients = with_gradients(fn)(net.to(dtype), at)
        return [each.double().cpu() for each in (result, *gradients)]

    truth = outcome(forward, "cpu", torch.float64)
    eager = outcome(forward, "cpu", torch.bfloat16)
    compiled = outcome(torch.compile(forward, backend="neuron"), DEVICE, torch.bfloat16)
    for want, one, other in zip(truth, eager, compiled, strict=True):
        # Eight bits say little about single elements: the error must not exceed eager's by much.
        assert (other - want).abs().max() <= 2 * (one - want).abs().max()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a16_each_view_is_read_with_its_own_strides_and_offset(dynamic: bool) -> None:
    """torch-spyre/torch-spyre #2803: a compiled kernel ignored offset and strides of a view."""
    base = torch.randn(8, 8)
    on_device = base.to(DEVICE)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2 + x.sum(0)

    call = torch.compile(fn, backend="neuron", dynamic=dynamic)
    for _ in range(2):
        for view in VIEWS.values():
            assert_close(call(view(on_device)), fn(view(base)))


@pytest.mark.parametrize("name", ["offset and step", "transposed", "one element in"])
def test_a16_writing_to_a_view_changes_its_elements_only(name: str) -> None:
    """torch-spyre/torch-spyre #2803: the same for a view that the compiled function writes."""
    base = torch.randn(8, 8)
    on_device = base.to(DEVICE)

    def write(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3).add_(1)
        return x.sum()

    call = torch.compile(write, backend="neuron")
    for _ in range(2):
        assert_close(call(VIEWS[name](on_device)), write(VIEWS[name](base)))
        assert_close(on_device, base)


def test_a16_two_views_of_one_tensor_may_overlap() -> None:
    """torch-spyre/torch-spyre #2803: what one argument writes, the other one reads."""
    base = torch.randn(8, 8)
    on_device = base.to(DEVICE)

    def shift(upper: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
        upper.add_(1)
        return lower * 2

    call = torch.compile(shift, backend="neuron")
    for _ in range(2):
        assert_close(call(on_device[:5], on_device[3:]), shift(base[:5], base[3:]))
        assert_close(on_device, base)


def test_a16_memory_that_is_used_again_is_read_again() -> None:
    """torch-spyre/torch-spyre #2803: a cached view of an address must not outlive its tensor."""
    call = torch.compile(lambda x: x * 2, backend="neuron")
    seen = set()
    for step in range(6):
        x = torch.full((64,), float(step), device=DEVICE)
        seen.add(x.data_ptr())
        assert call(x).tolist() == [step * 2.0] * 64
        del x
    assert len(seen) < 6, "no address came back: the test shows nothing"


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a20_gradients_of_slices_of_odd_sizes(dynamic: bool) -> None:
    """pytorch/pytorch PR #192575: a buffer was used again while a strided slice still read it."""

    def cut(x: torch.Tensor) -> list[torch.Tensor]:
        half = x.shape[1] // 2
        left, right = x[:, :half], x[:, half:]
        mixed = (left.sin().t() @ right).reshape(-1) * 2
        odd = x[1:, 1::2].reshape(-1).cumsum(0)
        return [mixed, odd, torch.cat([right, left], 1).flatten()[3:-1].square()]

    call = torch.compile(cut, backend="neuron", dynamic=dynamic)
    graphs = counters["stats"]["unique_graphs"]
    for rows, columns in ((3, 5), (7, 13), (6, 33)):
        x = torch.randn(rows, columns, requires_grad=True)
        actual, expected = (with_gradients(fn)(leaf) for fn, leaf in
                            ((call, moved(x)), (cut, moved(x, "cpu"))))  # fmt: skip
        assert_close(actual, expected)
    assert not dynamic or counters["stats"]["unique_graphs"] == graphs + 1


def test_a20_overlapping_views_are_flattened_element_by_element() -> None:
    """pytorch/pytorch PR #176651: flattening an overlapping view took its memory as it lies."""

    def flatten(x: torch.Tensor) -> list[torch.Tensor]:
        overlapping = x.as_strided((5, 3), (2, 1), 1)
        windows = x.unfold(0, 4, 1)
        return [overlapping.reshape(-1) * 1, windows.flatten() + 1, windows.sum(1), x.expand(2, 17)]

    assert_compiles_the_same(flatten, torch.randn(17, requires_grad=True), gradients=True)


def test_a26_compiled_composite_operators_keep_their_gradient() -> None:
    """gabrieldemarmiesse/torch-mojo-backend PR #401, #406: compiled, `grad` was silently None."""
    x, w = torch.randn(5, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)

    def run(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [op(x, w).square().sum() for op in COMPOSITE.values()]

    def each_gradient(fn: Callable[..., Any], x: torch.Tensor, w: torch.Tensor) -> list[Any]:
        torch.manual_seed(1)
        return [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in fn(x, w)]

    expected = each_gradient(run, x, w)
    actual = each_gradient(torch.compile(run, backend="neuron", fullgraph=True), *moved((x, w)))
    for name, one, other in zip(COMPOSITE, actual, expected, strict=True):
        assert torch.count_nonzero(one), name
        torch.testing.assert_close(one.cpu(), other, msg=lambda text, name=name: f"{name}: {text}")


class Padded(nn.Module):
    """A translator that decodes a buffer of fixed length, so that one program serves each step."""

    def __init__(self, inner: Translator) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: torch.Tensor, source: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Return the buffer with the token after the `at`-th filled in."""
        net, padding = self.inner, source == 0
        places = torch.arange(tokens.shape[1], device=tokens.device)
        memory = net.layers.encoder(net.embed(source), src_key_padding_mask=padding)
        decoded = net.layers.decoder(
            net.embed(tokens),
            memory,
            tgt_key_padding_mask=(places > at).expand(tokens.shape),
            memory_key_padding_mask=padding,
        )
        following = net.head(decoded.index_select(1, at))[:, 0].argmax(-1)
        return torch.where(places == at + 1, following[:, None], tokens)


@torch.no_grad()
def test_a37_compiled_padded_generation_gives_the_same_tokens() -> None:
    """aws-neuron/aws-neuron-sdk #672: padded generation was right on the CPU, wrong compiled."""
    source = torch.randint(2, 20, (3, 9))
    source[1, 5:] = 0
    source[2, 2:] = 0
    net = Translator().eval()
    expected = net(source)

    step = torch.compile(moved(Padded(net)), backend="neuron", fullgraph=True)
    graphs = counters["stats"]["unique_graphs"]
    tokens = torch.zeros(3, 33, dtype=torch.long, device=DEVICE)
    tokens[:, 0] = 1
    on_device = source.to(DEVICE)
    for place in range(32):
        tokens = step(tokens, on_device, torch.tensor([place], device=DEVICE))
    assert tokens.tolist() == expected.tolist()
    assert len(expected.unique()) > 3
    assert counters["stats"]["unique_graphs"] == graphs + 1
