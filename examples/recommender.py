"""Train a recommender whose tables get sparse gradients.

What it shows: `nn.EmbeddingBag(sparse=True)` and `torch.optim.SparseAdam` on `neuron`; a step
computes and updates only the rows that its batch names. The interactions are made up: users have
a hidden taste, items hidden traits, drawn from a fixed seed, and users meet what suits them.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_USERS, NUM_ITEMS, NUM_TRAITS, NUM_TEST = 10_000, 1_000, 2, 1_000
HISTORY, NEGATIVES, BATCH, WIDTH = 12, 7, 64, 8


def interactions() -> tuple[Tensor, Tensor]:
    """Return what each user met, int64 [users, HISTORY + 1], and the log chances behind it."""
    seed = torch.Generator().manual_seed(0)
    taste = torch.randn(NUM_USERS, NUM_TRAITS, generator=seed)
    traits = torch.randn(NUM_ITEMS, NUM_TRAITS, generator=seed)
    chances = torch.log_softmax(4 * taste @ traits.T / NUM_TRAITS**0.5, dim=1)
    return torch.multinomial(chances.exp(), HISTORY + 1, generator=seed), chances


class Recommender(nn.Module):
    """Score items by the mean of what a user has met, in a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.history = nn.EmbeddingBag(NUM_ITEMS, WIDTH, mode="mean", sparse=True)
        self.items = nn.Embedding(NUM_ITEMS, WIDTH, sparse=True)
        for table in self.parameters():
            nn.init.normal_(table, std=0.1)

    def forward(self, met: Tensor, candidates: Tensor) -> Tensor:
        """Return scores [batch, n] of candidates [batch, n] after a history [batch, HISTORY]."""
        return (self.items(candidates) @ self.history(met).unsqueeze(2)).squeeze(2)


def with_negatives(users: Tensor, met: Tensor, seed: torch.Generator) -> Tensor:
    """Return candidates: the last item that each user met, then random ones."""
    negatives = torch.randint(NUM_ITEMS, (len(users), NEGATIVES), generator=seed)
    return torch.cat([met[users, HISTORY:], negatives], dim=1)


def loss_of(scores: Tensor) -> Tensor:
    """Return the cross entropy of finding the first candidate."""
    first = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    return functional.cross_entropy(scores, first)


def train(device: torch.device, num_steps: int = 400) -> tuple[list[float], float]:
    """Return the loss of each step, and that of users who were held out."""
    met, chances = interactions()
    torch.manual_seed(0)
    model = Recommender().to(device)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.02)
    seed = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(num_steps):
        users = torch.randint(NUM_TEST, NUM_USERS, (BATCH,), generator=seed)
        candidates = with_negatives(users, met, seed).to(device)
        loss = loss_of(model(met[users, :HISTORY].to(device), candidates))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    gradient = model.history.weight.grad.coalesce()
    print(f"last gradient: {gradient.layout}, {gradient.values().shape[0]} of {NUM_ITEMS} rows")
    held_out = torch.arange(NUM_TEST)
    candidates = with_negatives(held_out, met, seed)
    with torch.no_grad():
        scores = model(met[held_out, :HISTORY].to(device), candidates.to(device))
    print(
        f"{(scores.argmax(1) == 0).float().mean().item():.0%} right of {1 + NEGATIVES} candidates"
    )
    print(f"loss of the hidden model: {loss_of(chances.gather(1, candidates)).item():.2f}")
    return losses, loss_of(scores).item()


def main() -> None:
    """Train, and say what the loss was and is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="neuron")
    device = torch.device(parser.parse_args().device)
    losses, held_out = train(device)
    print(f"recommender: loss fell from {losses[0]:.2f} to {held_out:.2f} on {device}, held out")


if __name__ == "__main__":
    main()
