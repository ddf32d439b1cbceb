"""The device's statistics count a sparse tensor's members, and nothing else."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE
from sparse.subject import LAYOUTS, members, sparse

Settled = Callable[..., int]
LARGE = 1 << 20


def test_a_csr_tensor_costs_its_three_arrays(settled_memory: Settled) -> None:
    rows, per_row = LARGE // 8, 16
    crow = torch.arange(0, rows * per_row + 1, per_row)
    columns = torch.arange(per_row).repeat(rows)
    values = torch.ones(rows * per_row)
    parts = [crow, columns, values]
    before = settled_memory()
    there = torch.sparse_csr_tensor(
        *(part.to(DEVICE) for part in parts), (rows, per_row), check_invariants=False
    )
    counted = settled_memory() - before
    alone = 0
    for part in parts:
        start = settled_memory()
        copy = part.to(DEVICE)
        alone += settled_memory() - start
        del copy
    assert counted == alone
    wanted = sum(part.nbytes for part in parts)
    assert wanted <= counted < 1.1 * wanted
    del there
    assert settled_memory() == before


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_everything_is_given_back(layout: torch.layout, settled_memory: Settled) -> None:
    source = torch.randn(64, 64).relu()
    before = settled_memory()
    there = sparse(layout, source).to(DEVICE)
    held = [there.clone(), there.to_dense(), there * 2, there.to_sparse(), there.cpu()]
    assert settled_memory() > before
    held.append(held[0].mul_(3))
    del there, held
    assert settled_memory() == before


def test_results_lie_in_the_pool() -> None:
    there = sparse(torch.sparse_coo, torch.randn(300, 300).relu()).to(DEVICE)
    before = torch.neuron.memory_allocated()
    product = (there + there).coalesce()
    grown = torch.neuron.memory_allocated() - before
    assert grown >= sum(member.nbytes for member in members(product))


def test_steps_keep_memory_flat(settled_memory: Settled) -> None:
    bag = nn.EmbeddingBag(50, 8, mode="sum", sparse=True, device=DEVICE)
    optimizer = torch.optim.SparseAdam(bag.parameters())
    matrix = sparse(torch.sparse_csr, torch.randn(8, 8).relu()).to(DEVICE).requires_grad_()
    chain = sparse(torch.sparse_coo, torch.randn(8, 8)).to(DEVICE)
    seen = []
    for step in range(21):  # each counts once garbage is collected, which takes a while
        optimizer.zero_grad()
        rows = torch.randint(50, (4, 5), generator=torch.Generator().manual_seed(step % 3))
        out = torch.sparse.mm(matrix, bag(rows.to(DEVICE)).t().repeat(1, 2))
        out.square().sum().backward()
        optimizer.step()
        chain.add_(chain).mul_(0.5).coalesce().t().clone()
        matrix.grad = None
        with pytest.raises(RuntimeError):
            matrix @ chain.to_dense()[:3]
        seen.append(settled_memory())
    assert len(set(seen[5:])) <= 3, seen
    assert max(seen[13:]) <= max(seen[5:13])
