"""The models of bench_compile: what is built on a device, wrapped by a compiler, and one step.

Each case is `build(device, wrap, smoke, dtype)` and returns a function without arguments.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from model_cases import GPT, Residual

Step = Callable[[], object]
Wrap = Callable[[nn.Module], Callable[..., torch.Tensor]]


def mlp(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, an MLP of three hidden layers."""
    width, batch = (32, 4) if smoke else (1024, 64)
    layers = [part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(device, dtype)
    return _step(model, wrap, torch.randn(batch, width, dtype=dtype).to(device), train)


def _step(model: nn.Module, wrap: Wrap, x: torch.Tensor, train: bool) -> Step:
    """Return a forward pass, or a training step with AdamW, on given numbers."""
    call = wrap(model if train else model.eval())
    if not train:
        return torch.no_grad()(lambda: call(x))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()

    return step


def gpt(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, a GPT."""
    width, layers, context, batch = (32, 1, 16, 2) if smoke else (256, 4, 128, 4)
    model = GPT(width, layers, context).to(device, dtype)
    tokens = torch.randint(512, (batch, context + 1)).to(device)
    call = wrap(model)
    if not train:
        return torch.no_grad()(lambda: call(tokens[:, :-1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        scores = call(tokens[:, :-1]).float()
        functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def resnet(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, the residual network of eighteen layers."""
    width = 8 if smoke else 64
    sizes = (width, width, 2 * width, 4 * width, 8 * width)
    blocks = [
        Residual(before if first else after, after, 2 if first and stage else 1)
        for stage, (before, after) in enumerate(zip(sizes[:-1], sizes[1:], strict=True))
        for first in (True, False)
    ]
    stem = (nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10))
    model = nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head).to(device, dtype)
    shape = (2, 3, 32, 32) if smoke else (4, 3, 96, 96)
    return _step(model, wrap, torch.randn(shape, dtype=dtype).to(device), train)


class ViT(nn.Module):
    """A vision transformer of patches of eight by eight."""

    def __init__(self, width: int, layers: int, size: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.position = nn.Parameter(0.02 * torch.randn((size // 8) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.ModuleList([layer for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, 3, size, size] to [batch, 10]."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for layer in self.layers:
            x = layer(x)
        scores: torch.Tensor = self.head(x.mean(1))
        return scores


def vit(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, a vision transformer."""
    width, layers, size, batch = (32, 1, 16, 2) if smoke else (192, 4, 96, 4)
    model = ViT(width, layers, size).to(device, dtype)
    x = torch.randn((batch, 3, size, size), dtype=dtype).to(device)
    return _step(model, wrap, x, train)


def lstm(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Run, or train, an LSTM of two layers; Dynamo captures it where allow_rnn is set."""
    width, length = (16, 4) if smoke else (128, 16)

    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.lstm(x)[0]
            return outputs

    x = torch.randn(8, length, width, dtype=dtype).to(device)
    return _step(Outputs().to(device, dtype), wrap, x, train)


def decode(device: torch.device, wrap: Wrap, smoke: bool, dtype: torch.dtype, train: bool) -> Step:
    """Decode one token of a Llama with a static cache."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    width, layers = (32, 1) if smoke else (256, 4)
    config = LlamaConfig(
        vocab_size=512, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=256,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device, dtype).eval()
    cache = StaticCache(config=config, max_cache_len=128)
    cache.early_initialization(1, 4, width // 8, dtype, device)
    token = torch.zeros(1, 1, dtype=torch.int64).to(device)
    position = torch.full((1, 1), 100).to(device)
    call = wrap(model)

    def step() -> object:
        for layer in cache.layers:
            layer.cumulative_length.fill_(100)  # the cache counts, and has an end
        return call(token, past_key_values=cache, position_ids=position)

    return torch.no_grad()(step)


CASES: dict[str, tuple[Callable[..., Step], bool]] = {
    "MLP 3x1024 b64, forward": (mlp, False),
    "MLP, training": (mlp, True),
    "GPT d256 L4 b4x128, forward": (gpt, False),
    "GPT, training": (gpt, True),
    "ResNet-18 4x3x96x96, forward": (resnet, False),
    "ResNet-18, training": (resnet, True),
    "ViT d192 L4 4x3x96x96, forward": (vit, False),
    "ViT, training": (vit, True),
    "Llama d256 L4 decode, static cache": (decode, False),
    "LSTM 2x128 b8x16, forward": (lstm, False),
    "LSTM, training": (lstm, True),
}
