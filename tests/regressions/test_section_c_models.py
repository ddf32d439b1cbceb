"""Section C, a fixed set of small models that must compile with every release, at every batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchneuron
from behaviour.compiling import assert_close, assert_compiles_the_same, num_programs
from behaviour.subject import DEVICE, moved, with_gradients

pytestmark = pytest.mark.usefixtures("own_cache")


class Residual(nn.Module):
    """Convolutions with batch norm, a strided residual block and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.main = nn.Sequential(
            nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(16),
        )  # fmt: skip
        self.skip = nn.Conv2d(8, 16, 1, 2)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        x = F.relu(self.main(x) + self.skip(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Denoiser(nn.Module):
    """A two-level U-shaped net with group norm, attention and a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(4, 8, 3, 2, 1)
        self.norm, self.mix = nn.GroupNorm(2, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.out = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.arange(1, 5, device=x.device)
        wave = torch.cat([angles.sin(), angles.cos()], 1)[..., None, None]
        low = F.silu(self.norm(self.down(x) + wave))
        tokens = low.flatten(2).transpose(1, 2)
        mixed = self.mix(tokens, tokens, tokens, need_weights=False)[0]
        low = low + mixed.transpose(1, 2).unflatten(2, low.shape[2:])
        return self.out(torch.cat([x, self.up(low)], 1))


class Recurrent(nn.Module):
    """A gated recurrence written out over a few steps, with tied embedding and output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.of_input, self.of_state = nn.Linear(8, 24), nn.Linear(8, 24)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(ids.shape[0], 8, device=ids.device)
        outputs = []
        for step in self.embed(ids).unbind(1):
            reset, keep, new = self.of_input(step).chunk(3, -1)
            state_reset, state_keep, state_new = self.of_state(state).chunk(3, -1)
            kept = (keep + state_keep).sigmoid()
            fresh = (new + (reset + state_reset).sigmoid() * state_new).tanh()
            state = torch.lerp(fresh, state, kept)
            outputs.append(F.linear(state, self.embed.weight))
        return torch.stack(outputs, 1)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "residual": (Residual, lambda batch: (torch.randn(batch, 3, 16, 16),)),
    "denoiser": (Denoiser, lambda batch: (torch.randn(batch, 4, 8, 8), torch.rand(batch))),
    "recurrent": (Recurrent, lambda batch: (torch.randint(12, (batch, 4)),)),
    "encoder": (encoder, lambda batch: (torch.randn(batch, 6, 16),)),
}


def forward(net: nn.Module, *inputs: torch.Tensor) -> Any:
    """Call a model that is an argument, so that its gradients are compared."""
    return net(*inputs)


@pytest.mark.parametrize("name", MODELS)
def test_c10_each_model_of_the_fixed_set_trains_compiled(name: str) -> None:
    """aws-neuron/aws-neuron-sdk #1265: after an upgrade three architectures crashed."""
    build, inputs = MODELS[name]
    assert_compiles_the_same(forward, build(), *inputs(2), gradients=True, fullgraph=True)


def test_c11_batches_of_several_sizes_keep_the_statistics() -> None:
    """huggingface/optimum-neuron PR #754: batch above one broke, and so did buffers as aliases."""
    net = Residual()
    on_device = moved(net)
    calls = (torch.compile(forward, backend="neuron", dynamic=True), forward)
    for batch in (2, 1, 4):
        x = torch.randn(batch, 3, 16, 16)
        actual = with_gradients(calls[0])(on_device, x.to(DEVICE))
        assert_close(actual, with_gradients(calls[1])(net, x))
        for one, other in zip(on_device.buffers(), net.buffers(), strict=True):
            assert_close(one, other)
        for module in (net, on_device):
            module.zero_grad()
    assert net.stem[1].num_batches_tracked == 3


class Cached(nn.Module):
    """One attention step over keys and values that are kept in buffers and written in place."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(batch, 6, 8))
        self.register_buffer("values", torch.zeros(batch, 6, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, at, k)
        self.values[:, at] = v
        seen = torch.arange(6, device=x.device) <= at
        return F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen[None])


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_c11_a_cache_in_buffers_is_written_in_place(batch: int) -> None:
    """huggingface/optimum-neuron PR #754: aliased inputs, here keys and values of a decoder."""
    net = Cached(batch)
    on_device = moved(net)
    address = on_device.keys.data_ptr()
    call = torch.compile(on_device, backend="neuron", fullgraph=True)
    with torchneuron.explain() as report:
        for place in range(6):
            x, at = torch.randn(batch, 1, 8), torch.tensor([place])
            assert_close(call(x.to(DEVICE), at.to(DEVICE)), net(x, at))
    assert num_programs(report) == 1
    assert on_device.keys.data_ptr() == address
    assert_close([on_device.keys, on_device.values], [net.keys, net.values])


@torch.no_grad()
def test_c34_another_latent_size_compiles() -> None:
    """aws-neuron/aws-neuron-samples #34: one size compiled, another exceeded a limit."""
    net = Denoiser()
    call = torch.compile(moved(net), backend="neuron", dynamic=False)
    for height, width in ((8, 8), (12, 20), (6, 34)):
        x, time = torch.randn(1, 4, height, width), torch.rand(1)
        assert_close(call(x.to(DEVICE), time.to(DEVICE)), net(x, time))
