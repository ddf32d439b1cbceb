"""Part 4: a graph network on the scans of digits, a few of them labelled, with a CSR adjacency.

Each scan is joined to the scans most like it, so what fifty labels say spreads through the graph
(https://arxiv.org/abs/1609.02907). The other labels only judge the outcome.
"""

import time
import warnings

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor, nn
from torch.nn import functional

from demo_parts import pace
from demo_parts.outcome import Outcome, Setting
from demo_parts.progress import Progress

NUM_NEIGHBOURS, NUM_LABELLED_EACH, NUM_DIGITS = 9, 5, 10
BRIGHTEST = 16.0
WIDTH = 64
LEARNING_RATE, WEIGHT_DECAY = 1e-2, 5e-4


def run(setting: Setting) -> Outcome:
    """Train on the whole graph, fifty labels known, and count the right answers on the rest."""
    num_steps, goal = (60, 0.8) if setting.quick else (200, 0.9)
    graph = Graph()
    pace.reset_peak(setting.device)
    start = time.monotonic()
    trainer = Trainer(graph, setting.device, setting.seed)
    with Progress("sparse ", num_steps) as progress:
        for done in range(1, num_steps + 1):
            loss = trainer.step()
            if progress.is_due(done):
                progress.update(done, f"loss {loss.item():.3f}")
    accuracy = trainer.accuracy()
    seconds = time.monotonic() - start
    peak = pace.peak_bytes(setting.device)
    speed = pace.compare(
        lambda device: Trainer(graph, device, setting.seed).step,
        setting.device,
        rounds=1 if setting.quick else 4,
    )
    num_labelled = NUM_DIGITS * NUM_LABELLED_EACH
    stopped = f"sparse stopped at {accuracy:.1%} of the unlabelled scans, below its goal {goal:.0%}"
    return Outcome(
        title="sparse: graph network, CSR adjacency",
        steps=num_steps,
        seconds=seconds,
        pace=speed,
        peak_bytes=peak,
        result=f"{accuracy:.1%} right on {len(graph.labels) - num_labelled} scans after "
        f"{num_labelled} labels",
        goal=f"at least {goal:.0%}",
        shortfall="" if accuracy >= goal else stopped,
    )


class Graph:
    """The scans, and which of them are alike; the same whatever seed trains the network."""

    def __init__(self) -> None:
        pixels, digits = load_digits(return_X_y=True)
        self.features = torch.from_numpy(pixels).float().div(BRIGHTEST)
        self.labels = torch.from_numpy(digits).long()
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(0))
        chosen = [order[self.labels[order] == digit] for digit in range(NUM_DIGITS)]
        self.is_labelled = torch.zeros(len(self.labels), dtype=torch.bool)
        self.is_labelled[torch.cat([each[:NUM_LABELLED_EACH] for each in chosen])] = True
        alike = kneighbors_graph(pixels, NUM_NEIGHBOURS, include_self=True)
        self.adjacency = normalized(torch.from_numpy(alike.maximum(alike.T).toarray()).float())


def normalized(adjacency: Tensor) -> Tensor:
    """Return an adjacency float32 [n, n] in CSR, each edge over the root of its ends' degrees."""
    scale = adjacency.sum(dim=1).rsqrt()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return (adjacency * scale * scale[:, None]).to_sparse_csr()


class GraphNetwork(nn.Module):
    """Two graph convolutions: each node averages what its neighbours say."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(num_features, WIDTH), nn.Linear(WIDTH, NUM_DIGITS)
        self.drop = nn.Dropout(0.5)

    def forward(self, adjacency: Tensor, features: Tensor) -> Tensor:
        """Return the scores float32 [n, 10] of features float32 [n, num_features]."""
        hidden = functional.relu(adjacency @ self.inner(features))
        scores: Tensor = adjacency @ self.outer(self.drop(hidden))
        return scores


class Trainer:
    """The network, the graph and the optimizer on one device; `step()` trains on the graph."""

    def __init__(self, graph: Graph, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self._adjacency = graph.adjacency.to(device)
        self._features = graph.features.to(device)
        self._labels = graph.labels.to(device)
        self._is_labelled = graph.is_labelled.to(device)
        self._model = GraphNetwork(graph.features.shape[1]).to(device)
        self._optimizer = torch.optim.Adam(
            self._model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )

    def step(self) -> Tensor:
        """Train on the labelled scans and return their loss, a 0-dim tensor on the device."""
        scores = self._model(self._adjacency, self._features)
        known = self._is_labelled
        loss = functional.cross_entropy(scores[known], self._labels[known])
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the share of unlabelled scans whose highest score is at their label."""
        self._model.eval()
        guesses = self._model(self._adjacency, self._features).argmax(1)
        self._model.train()
        return float((guesses == self._labels)[~self._is_labelled].float().mean())
