"""Networks written here: convolutional ones, recurrent ones, diffusion, messages on a graph."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.path(x) + self.shortcut(x))


def resnet(num_labels: int) -> nn.Module:
    """Make ResNet-18 with a quarter of its channels."""
    stages = [(64, 64, 1), (64, 64, 1), (64, 96, 2), (96, 96, 1), (96, 128, 2), (128, 128, 1)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *(Residual(*stage) for stage in stages),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_labels),
    )  # fmt: skip


class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions and PyTorch's own encoder layers."""

    def __init__(self, num_labels: int, width: int = 64, num_patches: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.start = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, num_patches + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_labels))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.start.expand(x.shape[0], -1, -1), patches], 1)
        return self.head(self.encoder(tokens + self.positions)[:, 0])


class InvertedBottleneck(nn.Module):
    """EfficientNet's block: expansion, depthwise convolution, squeeze and excitation."""

    def __init__(self, channels: int, out: int, stride: int, size: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.expand = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            nn.Conv2d(wide, wide, size, stride, size // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.SiLU(),
        )  # fmt: skip
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, channels // 4, 1), nn.SiLU(),
            nn.Conv2d(channels // 4, wide, 1), nn.Sigmoid(),
        )  # fmt: skip
        self.project = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))
        self.is_residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        wide = self.expand(x)
        made = self.project(wide * self.squeeze(wide))
        return x + F.dropout(made, 0.1, self.training) if self.is_residual else made


def efficientnet(num_labels: int) -> nn.Module:
    """Make a short EfficientNet: kernels of 3 and 5, strides of 1 and 2."""
    blocks = [(64, 64, 1, 3), (64, 72, 2, 5), (72, 72, 1, 5), (72, 96, 2, 3)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.SiLU(),
        *(InvertedBottleneck(*block) for block in blocks),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(96, num_labels),
    )  # fmt: skip


def _twice(channels: int, out: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Two levels down by pooling, two up by transposed convolutions, a class per pixel."""

    def __init__(self, num_labels: int, width: int = 64) -> None:
        super().__init__()
        self.down = nn.ModuleList([_twice(3, width), _twice(width, 2 * width)])
        self.bottom = _twice(2 * width, 2 * width)
        self.widen = nn.ModuleList(
            [nn.ConvTranspose2d(2 * width, 2 * width, 2, 2), nn.ConvTranspose2d(width, width, 2, 2)]
        )
        self.up = nn.ModuleList([_twice(4 * width, width), _twice(2 * width, width)])
        self.head = nn.Conv2d(width, num_labels, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for block in self.down:
            x = block(x)
            skipped.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([widen(x), skipped.pop()], 1))
        return self.head(x)


class Recurrent(nn.Module):
    """A bidirectional recurrent network of two layers over packed or plain sequences."""

    def __init__(self, kind: type[nn.RNNBase], vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = kind(
            width, width, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1
        )
        self.head = nn.Linear(2 * width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.layers(self.embedding(ids))
        return self.head(hidden)


def _timestep_embedding(steps: Tensor, width: int) -> Tensor:
    rates = torch.exp(
        -math.log(10000.0) * torch.arange(width // 2, device=steps.device) / (width // 2)
    )
    angles = steps[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


class TimedResidual(nn.Module):
    """Group norm, SiLU and convolution twice; the time step is added between."""

    def __init__(self, channels: int, out: int, time_width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1)
        )
        self.time = nn.Linear(time_width, out)
        self.second = nn.Sequential(
            nn.GroupNorm(8, out), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(out, out, 3, padding=1)
        )
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.second(inner)


class ImageAttention(nn.Module):
    """Attention over the pixels of a small picture, then over a text beside it."""

    def __init__(self, channels: int, text_width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.itself = nn.MultiheadAttention(channels, 4, batch_first=True)
        self.text = nn.MultiheadAttention(
            channels, 4, kdim=text_width, vdim=text_width, batch_first=True
        )

    def forward(self, x: Tensor, text: Tensor, hidden: Tensor) -> Tensor:
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        pixels = pixels + self.itself(pixels, pixels, pixels, need_weights=False)[0]
        pixels = pixels + self.text(pixels, text, text, key_padding_mask=hidden)[0]
        return x + pixels.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """Predict the noise in a picture from its time step and a text."""

    def __init__(self, width: int = 64, text_width: int = 32) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([TimedResidual(width, width, width) for _ in range(2)])
        self.shrink = nn.Conv2d(width, width, 3, 2, 1)
        self.middle = TimedResidual(width, 2 * width, width)
        self.attention = ImageAttention(2 * width, text_width)
        self.up = nn.ModuleList(
            [TimedResidual(3 * width, width, width), TimedResidual(2 * width, width, width)]
        )
        self.leave = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor, steps: Tensor, text: Tensor, hidden: Tensor) -> Tensor:
        time = self.time(_timestep_embedding(steps, self.time[0].in_features))
        x = self.enter(x)
        skipped = []
        for block in self.down:
            x = block(x, time)
            skipped.append(x)
        x = self.attention(self.middle(self.shrink(x), time), text, hidden)
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        for block in self.up:
            x = block(torch.cat([x, skipped.pop()], 1), time)
        return self.leave(x)


class MessagePassing(nn.Module):
    """Sum and average messages along edges, twice, then read each graph's label off its nodes."""

    def __init__(self, num_features: int, num_labels: int, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Linear(num_features, width)
        self.message = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(2)])
        self.update = nn.ModuleList([nn.GRUCell(width, width), nn.GRUCell(2 * width, width)])
        self.head = nn.Linear(width, num_labels)

    def forward(self, nodes: Tensor, edges: Tensor, graphs: Tensor, num_graphs: int) -> Tensor:
        source, target = edges
        x = F.relu(self.enter(nodes))
        ones = torch.ones_like(target, dtype=x.dtype)
        degree = torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add(0, target, ones)
        for layer, (message, update) in enumerate(zip(self.message, self.update, strict=True)):
            sent = F.relu(message(torch.cat([x[source], x[target]], -1)))
            places = target[:, None].expand_as(sent)
            summed = torch.zeros_like(x).scatter_add(0, places, sent)
            largest = torch.zeros_like(x).scatter_reduce(0, places, sent, "amax")
            average = summed / degree.clamp(min=1)[:, None]
            x = update(average if layer == 0 else torch.cat([average, largest], -1), x)
        pooled = torch.zeros(num_graphs, x.shape[1], dtype=x.dtype, device=x.device)
        return self.head(pooled.index_add(0, graphs, x))
