"""The models that `bench_models.py` trains; each builder returns a model and its step."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[], object]
Build = Callable[[torch.device, bool], "Twin"]


@dataclass(frozen=True, slots=True)
class Twin:
    """One side of a comparison: equal seeds make both sides start equal."""

    model: nn.Module
    step: Step


class Block(nn.Module):
    """A transformer layer with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, time, width] to the same shape."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        result: Tensor = x + self.mlp(self.norm_2(x))
        return result


class GPT(nn.Module):
    """A GPT over 512 tokens."""

    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, width)
        self.position = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, 8) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 512, bias=False))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [batch, time, 512] of tokens int64 [batch, time]."""
        scores: Tensor = self.head(self.blocks(self.embed(tokens) + self.position))
        return scores


class Residual(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inputs, height, width] to outputs channels, sizes divided by stride."""
        return functional.relu(self.body(x) + self.shortcut(x))


def make_resnet() -> nn.Sequential:
    """Return a residual network for ten classes."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def gpt(*, autocast: bool = False, foreach: bool | None = None, fused: bool = False) -> Build:
    """Build a GPT training step with AdamW: forward, backward, clip, update."""

    def build(device: torch.device, smoke: bool) -> Twin:
        torch.manual_seed(0)
        width, layers, context, batch = (32, 1, 16, 2) if smoke else (256, 4, 128, 8)
        model = GPT(width, layers, context).to(device)
        tokens = torch.randint(512, (batch, context + 1)).to(device)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-4, foreach=foreach, fused=fused or None
        )

        def cast() -> AbstractContextManager[object]:
            return torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext()

        def step() -> None:
            with cast():
                scores = model(tokens[:, :-1])
                loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return Twin(model, step)

    return build


def resnet_forward(device: torch.device, smoke: bool) -> Twin:
    """Build a forward pass of a residual network in evaluation mode."""
    torch.manual_seed(0)
    model = make_resnet().to(device).eval()
    images = torch.randn(1 if smoke else 4, 3, 96, 96).to(device)

    @torch.no_grad()
    def step() -> None:
        model(images)

    return Twin(model, step)


def resnet_train(device: torch.device, smoke: bool) -> Twin:
    """Build a training step of a residual network: forward, backward, SGD."""
    torch.manual_seed(0)
    model = make_resnet().to(device)
    images = torch.randn(2 if smoke else 4, 3, 96, 96).to(device)
    labels = torch.randint(10, (len(images),)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return Twin(model, step)


def lstm_train(device: torch.device, smoke: bool) -> Twin:
    """Build a training step of a two-layer LSTM: forward, backward, Adam."""
    torch.manual_seed(0)
    width, length = (16, 4) if smoke else (128, 32)
    model = nn.LSTM(width, width, num_layers=2, batch_first=True).to(device)
    inputs = torch.randn(8, length, width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        outputs, _ = model(inputs)
        loss = functional.mse_loss(outputs, inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return Twin(model, step)


CASES: dict[str, Build] = {
    "GPT d256 L4 b8x128, AdamW default": gpt(),
    "GPT, AdamW foreach": gpt(foreach=True),
    "GPT, AdamW fused": gpt(fused=True),
    "GPT, AdamW fused, autocast bfloat16": gpt(fused=True, autocast=True),
    "ResNet 4x3x96x96, forward": resnet_forward,
    "ResNet 4x3x96x96, training": resnet_train,
    "LSTM 2x128 b8x32, training": lstm_train,
}
