"""Section B, sparse tensors and sparse gradients."""

import functools
from collections.abc import Callable
from io import BytesIO
from typing import Any

import torch
from torch import nn

from behaviour.subject import DEVICE, assert_runs_the_same, assert_same, with_gradients


def learned_embedding(
    layer: Callable[..., nn.Module], optimizer: Any, device: str
) -> list[torch.Tensor]:
    """Return the weight after each of a few steps."""
    torch.manual_seed(0)
    net = layer(20, 4).to(device)
    optimize = optimizer(net.parameters(), lr=0.1)
    seen = []
    for step in range(4):
        rows = torch.randint(20, (3, 5), generator=torch.Generator().manual_seed(step))
        optimize.zero_grad()
        net(rows.to(device)).square().sum().backward()
        optimize.step()
        seen.append(net.weight.detach().clone())
    return seen


def test_b11_sparse_gradients_of_embeddings() -> None:
    """pytorch/xla #8719, #6008, #2215: sparse gradients unsupported, `EmbeddingBag` failed."""
    layers = [functools.partial(nn.Embedding, sparse=True)]
    layers += [
        functools.partial(nn.EmbeddingBag, mode=mode, sparse=True) for mode in ("sum", "mean")
    ]
    for layer in layers:
        for optimizer in (torch.optim.SGD, torch.optim.SparseAdam):
            found = learned_embedding(layer, optimizer, DEVICE)
            assert_same(found, learned_embedding(layer, optimizer, "cpu"))
    largest = functools.partial(nn.EmbeddingBag, mode="max")
    found = learned_embedding(largest, torch.optim.SGD, DEVICE)
    assert_same(found, learned_embedding(largest, torch.optim.SGD, "cpu"))
    moved = torch.eye(3).to_sparse().to(DEVICE)
    assert moved.is_sparse and moved.device.type == DEVICE
    assert torch.equal(moved.to_dense().cpu(), torch.eye(3))


def test_b13_members_products_and_saving_of_sparse_tensors() -> None:
    """flagos-ai/Torch-FL #293; pytorch/pytorch #121797, PR #126384: CSR members, mm, saving."""
    square = torch.eye(4) + torch.eye(4).roll(1, 0)
    csr = square.to_sparse_csr().to(DEVICE)
    assert_same(
        [csr.crow_indices(), csr.col_indices(), csr.values()],
        [torch.tensor([0, 2, 4, 6, 8]), square.to_sparse_csr().col_indices(), torch.ones(8)],
    )

    def product(values: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        parts = square.to_sparse_csr().to(values.device)
        rows, columns = parts.crow_indices(), parts.col_indices()
        return torch.sparse.mm(torch.sparse_csr_tensor(rows, columns, values, (4, 4)), other)

    values = torch.arange(1.0, 9.0, requires_grad=True)
    other = torch.randn(4, 3, requires_grad=True)
    assert_runs_the_same(product, values.detach(), other.detach())
    assert_runs_the_same(
        with_gradients(lambda x, y: torch.sparse.mm(x.to_sparse_csr(), y)), square, other
    )
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        file = BytesIO()
        torch.save(square.to_sparse(layout=layout).to(DEVICE), file)
        file.seek(0)
        loaded = torch.load(file)
        assert (loaded.layout, loaded.device.type) == (layout, DEVICE)
        assert torch.equal(loaded.to_dense().cpu(), square)
