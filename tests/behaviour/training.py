"""One small training run that touches most of what a real one does."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Read = Callable[[int, torch.Tensor, nn.Module], None]
BATCH = 8
CLASSES = 5


class SmallNet(nn.Module):
    """Convolution, normalization with buffers, dropout and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8 * 4 * 4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.dropout(x.flatten(1)))


def make_net(seed: int, device: str) -> SmallNet:
    """Build the net with weights that depend on the seed only, then move it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = SmallNet()
    return net.to(device)


def batch(step: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the images (8, 3, 8, 8) and labels (8,) of one step."""
    generator = torch.Generator().manual_seed(1000 + step)
    images = torch.randn(BATCH, 3, 8, 8, generator=generator)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    return images.to(device), labels.to(device)


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: range,
    *,
    read: Read | None = None,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> torch.Tensor:
    """Train for the given steps and return the last loss, still on the device."""
    device = str(next(net.parameters()).device)
    loss = torch.empty(())
    for step in steps:
        images, labels = batch(step, device)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if read is not None:
            read(step, loss, net)
    return loss.detach()
