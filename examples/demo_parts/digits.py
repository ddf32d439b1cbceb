"""Part 1: a convolutional network on scans of handwritten digits.

The data are the 1,797 scans of 8x8 pixels that scikit-learn carries in its wheel
(https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html).
"""

import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from demo_parts import pace
from demo_parts.outcome import Outcome, Setting
from demo_parts.progress import Progress

NUM_TEST = 450
BATCH = 64
BRIGHTEST = 16.0
LEARNING_RATE = 4e-3


def run(setting: Setting) -> Outcome:
    """Train on three quarters of the scans and count the right answers on the rest."""
    epochs, goal = (4, 0.85) if setting.quick else (24, 0.97)
    train, test = split()
    pace.reset_peak(setting.device)
    start = time.monotonic()
    trainer = Trainer(train, setting.device, setting.seed, epochs)
    with Progress("digits ", trainer.num_steps) as progress:
        for done in range(1, trainer.num_steps + 1):
            loss = trainer.step()
            if progress.is_due(done):
                progress.update(done, f"loss {loss.item():.3f}")
    accuracy = trainer.accuracy(*test)
    seconds = time.monotonic() - start
    peak = pace.peak_bytes(setting.device)
    speed = pace.compare(
        lambda device: Trainer(train, device, setting.seed, epochs).step,
        setting.device,
        rounds=1 if setting.quick else 4,
    )
    stopped = f"digits stopped at {accuracy:.1%} held-out accuracy, below its goal of {goal:.0%}"
    return Outcome(
        title="digits: convnet on scanned handwriting",
        steps=trainer.num_steps,
        seconds=seconds,
        pace=speed,
        peak_bytes=peak,
        result=f"{accuracy:.1%} right on {NUM_TEST} held-out scans",
        goal=f"at least {goal:.0%}",
        shortfall="" if accuracy >= goal else stopped,
    )


def split() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return (train, test), each (images float32 [n, 1, 8, 8] in 0 to 1, digits int64 [n]).

    The split is the same whatever seed trains the network.
    """
    pixels, digits = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().div(BRIGHTEST).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(digits).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:NUM_TEST], order[NUM_TEST:]
    return (images[train], labels[train]), (images[test], labels[test])


class ConvNet(nn.Module):
    """Two blocks of convolution, batch norm and pooling, then a dropout and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(64 * 2 * 2, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores float32 [n, 10] of images float32 [n, 1, 8, 8]."""
        scores: Tensor = self.body(images)
        return scores


class Trainer:
    """The network, its data and its optimizer on one device; `step()` trains one batch."""

    def __init__(
        self, train: tuple[Tensor, Tensor], device: torch.device, seed: int, epochs: int
    ) -> None:
        torch.manual_seed(seed)
        self._images, self._labels = (part.to(device) for part in train)
        self._model = ConvNet().to(device)
        self._batches_per_epoch = len(self._labels) // BATCH
        self.num_steps = epochs * self._batches_per_epoch
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LEARNING_RATE)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, LEARNING_RATE, total_steps=self.num_steps
        )
        self._order = torch.Generator().manual_seed(seed)
        self._taken = 0
        self._shuffled = torch.empty(0)

    def step(self) -> Tensor:
        """Train on the next batch and return its loss, a 0-dim tensor on the device."""
        batch = self._taken % self._batches_per_epoch
        if batch == 0:
            order = torch.randperm(len(self._labels), generator=self._order)
            self._shuffled = order.to(self._labels.device)
        chosen = self._shuffled[batch * BATCH : (batch + 1) * BATCH]
        scores = self._model(self._images[chosen])
        loss = functional.cross_entropy(scores, self._labels[chosen])
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._taken += 1
        if self._taken < self.num_steps:
            self._schedule.step()
        return loss.detach()

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Return the share of images whose highest score is at their label."""
        self._model.eval()
        guesses = self._model(images.to(self._labels.device)).argmax(1)
        self._model.train()
        return float((guesses == labels.to(guesses.device)).float().mean())
