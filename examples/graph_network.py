"""Train a graph network on a CSR adjacency: who joined which half of a karate club.

What it shows: a sparse adjacency moves to `neuron` like any tensor, and `adjacency @ x` has its
gradient there. The graph is Zachary's: 34 members, 78 friendships, a quarrel between the
instructor and the president that split the club. Only those two are labelled in training.
"""

import argparse

import networkx
import torch
from torch import Tensor, nn
from torch.nn import functional


def club() -> tuple[Tensor, Tensor, Tensor]:
    """Return (adjacency [n, n] in CSR, sides int64 [n], labelled members int64 [2])."""
    graph = networkx.karate_club_graph()
    num_members = len(graph)
    friends = torch.tensor(list(graph.edges)).T
    loops = torch.arange(num_members).expand(2, -1)
    rows, columns = torch.cat([friends, friends.flip(0), loops], dim=1)
    scale = torch.bincount(rows).rsqrt()
    adjacency = torch.sparse_coo_tensor(
        torch.stack([rows, columns]),
        scale[rows] * scale[columns],
        (num_members, num_members),
        check_invariants=True,
    )
    sides = [int(graph.nodes[member]["club"] == "Officer") for member in graph]
    return adjacency.to_sparse_csr(), torch.tensor(sides), torch.tensor([0, num_members - 1])


class GraphNetwork(nn.Module):
    """Two graph convolutions (arXiv:1609.02907): each member averages over friends."""

    def __init__(self, num_features: int, width: int = 16) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(num_features, width), nn.Linear(width, 2)

    def forward(self, adjacency: Tensor, features: Tensor) -> Tensor:
        """Return scores [n, 2] of features [n, num_features]."""
        hidden = functional.relu(adjacency @ self.inner(features))
        scores: Tensor = adjacency @ self.outer(hidden)
        return scores


def train(device: torch.device, num_steps: int = 100) -> tuple[list[float], int, int]:
    """Return the loss of each step, how many members are on the right side, and of how many."""
    adjacency, sides, labelled = (part.to(device) for part in club())
    features = torch.eye(len(sides), device=device)
    torch.manual_seed(0)
    model = GraphNetwork(len(sides)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    losses = []
    for _ in range(num_steps):
        scores = model(adjacency, features)
        loss = functional.cross_entropy(scores[labelled], sides[labelled])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"adjacency: {adjacency.layout}, {adjacency.values().numel()} values, {adjacency.device}")
    with torch.no_grad():
        is_right = model(adjacency, features).argmax(1) == sides
    return losses, int(is_right.sum()), len(sides)


def main() -> None:
    """Train, and count the members on the right side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="neuron")
    device = torch.device(parser.parse_args().device)
    losses, num_right, num_members = train(device)
    print(f"loss fell from {losses[0]:.2f} to {losses[-1]:.3f}, two of {num_members} labelled")
    print(f"graph_network: {num_right} of {num_members} members on the right side, on {device}")


if __name__ == "__main__":
    main()
