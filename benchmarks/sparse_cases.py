"""The cases that `bench_sparse.py` measures, by group; each builder makes one for one device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import torchneuron

Case = Callable[[], object]
Build = Callable[[torch.device], Case]

ROWS, WIDTH = 100_000, 64


def _seed() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _adjacency(size: int, share: float, layout: torch.layout) -> Tensor:
    """Return a matrix float32 [size, size] of which about a share is not zero."""
    seed = _seed()
    mask = torch.rand((size, size), generator=seed) < share
    values = torch.rand((size, size), generator=seed) + 0.5
    return (values * mask).to_sparse(layout=layout)


def _product(size: int, share: float, width: int, layout: torch.layout = torch.sparse_csr) -> Build:
    def build(device: torch.device) -> Case:
        matrix = _adjacency(size, share, layout).to(device)
        other = torch.rand((size, width), generator=_seed()).to(device)
        return lambda: matrix @ other

    return build


def _trained_product(
    size: int, share: float, width: int, layout: torch.layout = torch.sparse_csr
) -> Build:
    """Both operands want a gradient; that of the matrix is sparse as it is."""

    def build(device: torch.device) -> Case:
        matrix = _adjacency(size, share, layout).to(device).requires_grad_()
        other = torch.rand((size, width), generator=_seed()).to(device).requires_grad_()

        def step() -> None:
            matrix.grad = other.grad = None
            torch.sparse.mm(matrix, other).sum().backward()

        return step

    return build


def _compiled_product(size: int, share: float, width: int, *, train: bool = False) -> Build:
    """Compiled on the device, eager on the CPU."""

    def build(device: torch.device) -> Case:
        matrix = _adjacency(size, share, torch.sparse_csr).to(device).requires_grad_(train)
        other = torch.rand((size, width), generator=_seed()).to(device).requires_grad_(train)
        product: Callable[..., Tensor] = torch.sparse.mm
        operand: Any = matrix
        if device.type == "neuron":
            operand = torchneuron.sparse.matrix(matrix.detach())
            operand.values.requires_grad_(train)
            # A function of its own: what is compiled depends on none measured before.
            product = torch.compile(lambda *args: torchneuron.sparse.mm(*args), backend="neuron")
        wanting = operand.values if isinstance(operand, tuple) else operand

        def step() -> None:
            wanting.grad = other.grad = None
            product(operand, other).sum().backward()

        return step if train else lambda: product(operand, other)

    return build


def _coalesce(num_values: int, width: int) -> Build:
    """A value has some others at its index, as in the gradient of an embedding."""

    def build(device: torch.device) -> Case:
        gradient = _gradient(num_values, width, num_rows=num_values).to(device)
        return lambda: gradient.coalesce()

    return build


def _gradient(num_values: int, width: int, num_rows: int = ROWS) -> Tensor:
    """Return a COO tensor [num_rows, width] as backward makes it: rows in any order, some twice."""
    seed = _seed()
    rows = torch.randint(num_rows, (1, num_values), generator=seed)
    values = torch.rand((num_values, width), generator=seed)
    return torch.sparse_coo_tensor(rows, values, (num_rows, width), check_invariants=True)


def _bag(num_rows: int, width: int, bags: int, per_bag: int, *, train: bool) -> Build:
    def build(device: torch.device) -> Case:
        torch.manual_seed(0)
        table = nn.EmbeddingBag(num_rows, width, mode="sum", sparse=True).to(device)
        indices = torch.randint(num_rows, (bags, per_bag), generator=_seed()).to(device)

        def step() -> None:
            table.weight.grad = None
            table(indices).sum().backward()

        @torch.no_grad()
        def forward() -> object:
            return table(indices)

        return step if train else forward

    return build


def _optimizer_step(make: Callable[..., torch.optim.Optimizer], num_values: int) -> Build:
    def build(device: torch.device) -> Case:
        weight = nn.Parameter(torch.rand((ROWS, WIDTH), generator=_seed()).to(device))
        weight.grad = _gradient(num_values, WIDTH).to(device)
        optimizer: Any = make([weight], lr=1e-6)
        return lambda: optimizer.step()

    return build


GROUPS: dict[str, dict[str, Build]] = {
    "CSR matmul": {
        "CSR 64x64 10% @ 64x16": _product(64, 0.1, 16),
        "CSR 1024x1024 1% @ 1024x64": _product(1024, 0.01, 64),
        "CSR 64 @ dense, with backward": _trained_product(64, 0.1, 16),
        "CSR 1024 @ dense, with backward": _trained_product(1024, 0.01, 64),
    },
    "compiled CSR matmul": {
        "CSR 4096x4096 1% @ 4096x64": _compiled_product(4096, 0.01, 64),
        "CSR 4096 @ dense, with backward": _compiled_product(4096, 0.01, 64, train=True),
    },
    "coalesce": {
        "coalesce 64 x 8": _coalesce(64, 8),
        "coalesce 20k x 8": _coalesce(20_000, 8),
    },
    "EmbeddingBag": {
        "64x8, 16 bags of 4": _bag(64, 8, 16, 4, train=False),
        "64x8, 16 bags of 4, with backward": _bag(64, 8, 16, 4, train=True),
        "100k x 64, 512 bags of 32": _bag(ROWS, WIDTH, 512, 32, train=False),
        "100k x 64, 512 bags of 32, with backward": _bag(ROWS, WIDTH, 512, 32, train=True),
    },
    "SparseAdam": {
        "8 rows": _optimizer_step(torch.optim.SparseAdam, 8),
        "256 rows": _optimizer_step(torch.optim.SparseAdam, 256),
    },
    "SGD": {
        "8 rows": _optimizer_step(torch.optim.SGD, 8),
        "256 rows": _optimizer_step(torch.optim.SGD, 256),
    },
    "Adagrad": {
        "8 rows": _optimizer_step(torch.optim.Adagrad, 8),
        "256 rows": _optimizer_step(torch.optim.Adagrad, 256),
    },
}

# Measured, not judged: calling something compiled costs more than a small product.
OTHERS: dict[str, Build] = {
    "compiled CSR 64x64 10% @ 64x16": _compiled_product(64, 0.1, 16),
    "compiled CSR 1024x1024 1% @ 1024x64": _compiled_product(1024, 0.01, 64),
    "COO 64x64 10% @ 64x16": _product(64, 0.1, 16, torch.sparse_coo),
    "COO 1024x1024 1% @ 1024x64": _product(1024, 0.01, 64, torch.sparse_coo),
    "COO 64 @ dense, with backward": _trained_product(64, 0.1, 16, torch.sparse_coo),
    "COO 1024 @ dense, with backward": _trained_product(1024, 0.01, 64, torch.sparse_coo),
}
