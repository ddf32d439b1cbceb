"""Check a compiled GPT at many sequence lengths: one symbolic graph, right at each of them."""

import copy
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

import torchneuron
from conformance.depth import Depth
from conformance.judge import Verdict, seed
from conformance.placement import CPU
from conformance.tally import Results
from torchneuron.runtime.cache import user_cache

LONGEST, WIDTH, HEADS, VOCABULARY = 256, 64, 4, 96
# Powers of two with their neighbours, where tiles and buckets begin and end, and some between.
_EDGES = {2**power + step for power in range(9) for step in (-1, 0, 1)}
QUICK_LENGTHS = sorted(
    (_EDGES & set(range(1, LONGEST + 1))) | {11, 23, 47, 77, 100, 150, 177, 200, 233, 250}
)
# With gradients and without: a length of one, which Dynamo takes for a constant, and all others.
_MAX_GRAPHS = 4


class Block(nn.Module):
    """Causal attention and a network of two layers, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(self.norms[0](x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        return x + self.inner(self.norms[1](x))


class SmallGpt(nn.Module):
    """Two blocks with learned positions; answers with the loss of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device)
        logits = self.head(self.blocks(self.tokens(ids) + self.positions(places)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


def check(device: torch.device, depth: Depth) -> Results:
    """Compare with CPU eager at 32 lengths, or at all up to 256.

    Loss and logits at each, gradients at each eighth; at the full depth gradients at each.
    """
    results = Results()
    tally = results.tally(torch.float32, "lengths")
    if device.type != "neuron":
        tally.add(Verdict(False), "this is about one device's compiler")
        return results
    seed(CPU)
    reference = SmallGpt()
    model = copy.deepcopy(reference).to(device)
    lengths = range(1, LONGEST + 1) if depth.full else QUICK_LENGTHS
    with _own_cache(), torchneuron.explain() as report:
        torch._dynamo.reset()
        counters.clear()
        call = torch.compile(model, backend="neuron", dynamic=True)
        for number, length in enumerate(lengths):
            ids, targets = torch.randint(VOCABULARY, (2, 2, length))
            with torch.set_grad_enabled(depth.full or number % 8 == 0):
                expected = _results(reference, reference, ids, targets)
                found = _results(model, call, ids.to(device), targets.to(device))
            tally.add(Verdict(True, _difference(found, expected)), f"length {length}")
        num_graphs = counters["stats"]["unique_graphs"]
    counts = {key: len(records) for key, records in report.to_dict().items()}
    programs = counts["compiles"] + counts["cache_hits"]
    said = f"{programs} programs, {counts['host_fallbacks']} host fallbacks, {num_graphs} graphs"
    is_right = programs and not counts["host_fallbacks"] and num_graphs <= _MAX_GRAPHS
    tally.add(Verdict(True, None if is_right else said), "what the ledger counts")
    return results


def _results(model: nn.Module, call: nn.Module, ids: Tensor, targets: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss, logits = call(ids, targets)
    if loss.requires_grad:
        loss.backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    return [each.detach().cpu() for each in (loss, logits, *gradients)]


def _difference(found: list[Tensor], expected: list[Tensor]) -> str | None:
    try:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    except AssertionError as error:
        return " ".join(str(error).split())
    return None


@contextmanager
def _own_cache() -> Iterator[None]:
    """Keep hundreds of small programs out of the user's cache."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, TORCHNEURON_CACHE_DIR=folder),
    ):
        user_cache.cache_clear()
        yield
    user_cache.cache_clear()
