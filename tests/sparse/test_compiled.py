"""Sparse matrices and sparse gradients in compiled functions."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch import config as functorch

import torchneuron
from behaviour.compiling import own_programs
from behaviour.subject import DEVICE
from torchneuron import sparse
from torchneuron.errors import ArgumentError
from torchneuron.lowering import register

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with own_programs(tmp_path, monkeypatch):
        yield


def compiled(call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(call, backend="neuron", **options)


def adjacency(rows: int = 9, columns: int = 12, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a dense matrix with empty rows, of which a third is not zero."""
    made = torch.randn(rows, columns) * (torch.rand(rows, columns) < 0.3)
    made[::4] = 0
    return made.to(dtype)


def run(
    call: Callable[..., torch.Tensor], matrix: sparse.Matrix, dense: torch.Tensor
) -> list[torch.Tensor]:
    """Return a result and the gradients to the entries and the dense factor."""
    values = matrix.values.detach().requires_grad_()
    factor = dense.detach().requires_grad_()
    result = call(matrix._replace(values=values), factor)
    result.square().sum().backward()
    assert values.grad is not None and factor.grad is not None
    return [each.detach().cpu() for each in (result, values.grad, factor.grad)]


def layer(matrix: sparse.Matrix, dense: torch.Tensor) -> torch.Tensor:
    return sparse.mm(matrix, dense * 2).relu()


@pytest.mark.parametrize("capacity", [None, 64])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_product_is_part_of_one_graph(dtype: torch.dtype, capacity: int | None) -> None:
    plain, factor = adjacency(dtype=dtype), torch.randn(12, 5).to(dtype)
    matrix = sparse.matrix(plain.to_sparse_csr(), capacity=capacity)
    with torchneuron.explain() as told:
        found = run(compiled(layer, fullgraph=True), matrix.to(DEVICE), factor.to(DEVICE))
    told.assert_no("host_fallbacks")
    for one, other in zip(found, run(layer, matrix, factor), strict=True):
        assert torch.equal(one, other)
    eager = run(layer, matrix.to(DEVICE), factor.to(DEVICE))
    for one, other in zip(found, eager, strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(found[0], (plain @ (factor * 2)).relu())


@pytest.mark.parametrize(
    "layout",
    [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc],
    ids=str,
)
def test_every_layout_gives_a_matrix(layout: torch.layout) -> None:
    plain, factor = adjacency(8, 12), torch.randn(12, 5)
    blocks = {"blocksize": (2, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    given = plain.to_sparse(layout=layout, **blocks)
    found = compiled(sparse.mm)(sparse.matrix(given.to(DEVICE)), factor.to(DEVICE))
    torch.testing.assert_close(found.cpu(), plain @ factor)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo asks for it
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_a_sparse_tensor_gets_its_gradient(layout: torch.layout) -> None:
    plain, factor = adjacency(), torch.randn(12, 5).to(DEVICE)
    given = plain.to_sparse(layout=layout).to(DEVICE).requires_grad_()
    compiled(sparse.mm)(sparse.matrix(given), factor).sum().backward()
    assert given.grad is not None
    expected = (plain != 0) * factor.cpu().sum(1)
    torch.testing.assert_close(given.grad.cpu().to_dense() * (plain != 0), expected)


def test_duplicates_and_short_indices() -> None:
    indices = torch.tensor([[2, 0, 2, 2], [1, 3, 1, 0]])
    given = torch.sparse_coo_tensor(indices, torch.ones(4), (3, 4))
    matrix = sparse.matrix(given)
    short = matrix._replace(compressed=matrix.compressed.int(), plain=matrix.plain.int())
    factor = torch.randn(4, 2)
    for each in (matrix, short):
        found = compiled(sparse.mm, fullgraph=True)(each.to(DEVICE), factor.to(DEVICE))
        torch.testing.assert_close(found.cpu(), given.to_dense() @ factor)


def test_second_derivatives() -> None:
    plain = adjacency(5, 6, torch.float64)
    matrix = sparse.matrix(plain.to_sparse_csr())
    factor = torch.randn(6, 2, dtype=torch.float64).requires_grad_()
    values = matrix.values.requires_grad_()

    def product(values: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return sparse.mm(matrix._replace(values=values), factor)

    assert torch.autograd.gradgradcheck(product, (values, factor))


@pytest.mark.parametrize("operator", ["csr_mm", "csr_mm_transposed", "csr_sampled"])
def test_operators_pass_pytorchs_checks(operator: str) -> None:
    matrix = sparse.matrix(adjacency(5, 6).to_sparse_csr(), capacity=16)
    values = matrix.values.requires_grad_()
    of_rows, of_columns = (torch.randn(size, 3).requires_grad_() for size in (5, 6))
    rest = {
        "csr_mm": (values, of_columns),
        "csr_mm_transposed": (values, of_rows, 6),
        "csr_sampled": (of_rows, of_columns),
    }
    arguments = (matrix.compressed, matrix.plain, *rest[operator])
    torch.library.opcheck(getattr(register, operator), arguments)


def test_matrices_of_one_capacity_share_a_program() -> None:
    call, factor = compiled(sparse.mm, fullgraph=True), torch.randn(12, 3).to(DEVICE)
    with torchneuron.explain() as told:
        for _ in range(3):
            plain = adjacency()
            matrix = sparse.matrix(plain.to_sparse_csr(), capacity=64)
            found = call(matrix.to(DEVICE), factor)
            torch.testing.assert_close(found.cpu(), plain @ factor.cpu())
    assert len(told.to_dict()["compiles"]) == 1


def test_the_artifact_gathers_and_adds(tmp_path: Path) -> None:
    class Layer(nn.Module):
        def forward(
            self, compressed: torch.Tensor, plain: torch.Tensor, values: torch.Tensor,
            factor: torch.Tensor,
        ) -> torch.Tensor:  # fmt: skip
            return sparse.mm(sparse.Matrix(compressed, plain, values, (9, 12)), factor)

    matrix = sparse.matrix(adjacency().to_sparse_csr(), capacity=64)
    folder = torchneuron.export(Layer(), (*matrix[:3], torch.randn(12, 3)), tmp_path / "made")
    text = (folder / "program.mlir").read_text()
    assert "stablehlo.gather" in text and "stablehlo.scatter" in text
    assert "custom_call" not in text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, x: sparse.matrix(x), "not a sparse matrix"),
        (lambda m, x: sparse.matrix(m, capacity=1), "has .* entries"),
        (lambda m, x: sparse.mm(sparse.matrix(m), x[1:]), "dense is a matrix of 12 rows"),
        (lambda m, x: sparse.mm(sparse.matrix(m), x.double()), "torch.float64"),
        (lambda m, x: sparse.mm(sparse.matrix(m), x.to(DEVICE)), "is on neuron:0"),
    ],
)
def test_what_does_not_fit_is_said(call: Callable[..., Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        call(adjacency().to_sparse_csr(), torch.randn(12, 3))


# -- sparse gradients


class Scores(nn.Module):
    """Look rows up, sparse in the gradient, and score them."""

    def __init__(self, rows: nn.Module) -> None:
        super().__init__()
        self.rows, self.score = rows, nn.Linear(4, 2)

    def forward(self, *inputs: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        return self.score(self.rows(*inputs, **kwargs)).relu()


EMBEDDINGS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: nn.Embedding(10, 4, sparse=True),
    "embedding, padding": lambda: nn.Embedding(10, 4, sparse=True, padding_idx=3),
    "bag, sum": lambda: nn.EmbeddingBag(10, 4, sparse=True, mode="sum"),
    "bag, mean": lambda: nn.EmbeddingBag(10, 4, sparse=True, mode="mean"),
    "bag, sum, padding": lambda: nn.EmbeddingBag(10, 4, sparse=True, mode="sum", padding_idx=3),
    "bag, mean, padding": lambda: nn.EmbeddingBag(10, 4, sparse=True, mode="mean", padding_idx=3),
}


def models(kind: str) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = Scores(EMBEDDINGS[kind]()).to(DEVICE)
    return model, copy.deepcopy(model)


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_sparse_gradients_end_a_graph(kind: str) -> None:
    model, other = models(kind)
    indices = torch.tensor([[1, 2, 3], [3, 4, 4]]).to(DEVICE)
    with torchneuron.explain() as told:
        compiled(model, fullgraph=True)(indices).square().sum().backward()
    told.assert_no("host_fallbacks")
    other(indices).square().sum().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert one.grad is not None and two.grad is not None
        assert one.grad.layout == two.grad.layout
        torch.testing.assert_close(one.grad.to_dense(), two.grad.to_dense())


def test_weighted_bags_of_several_lengths() -> None:
    torch.manual_seed(0)
    model = Scores(nn.EmbeddingBag(10, 4, sparse=True, mode="sum")).to(DEVICE)
    other = copy.deepcopy(model)
    indices = torch.tensor([1, 2, 3, 3, 4, 4, 9]).to(DEVICE)
    offsets = torch.tensor([0, 0, 4]).to(DEVICE)
    weights = torch.randn(7).to(DEVICE)
    found = []
    for call in (compiled(model, fullgraph=True), other):
        given = weights.detach().requires_grad_()
        call(indices, offsets, per_sample_weights=given).square().sum().backward()
        assert given.grad is not None
        found.append(given.grad)
    torch.testing.assert_close(*found)
    rows, other_rows = model.rows.weight.grad, other.rows.weight.grad  # type: ignore[union-attr]
    torch.testing.assert_close(rows.to_dense(), other_rows.to_dense())  # type: ignore[operator,union-attr]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["embedding, padding", "bag, mean"])
def test_training_with_sparse_adam(kind: str, dynamic: bool) -> None:
    model, other = models(kind)
    losses: list[list[float]] = []
    for each, call in ((model, compiled(model, dynamic=dynamic)), (other, other)):
        rows = torch.optim.SparseAdam(each.rows.parameters(), lr=0.1)  # type: ignore[union-attr]
        rest = torch.optim.SGD(each.score.parameters(), lr=0.1)  # type: ignore[union-attr]
        losses.append([])
        for length in (3, 5, 7):
            indices = torch.arange(2 * length).remainder(10).view(2, length).to(DEVICE)
            loss = call(indices).square().mean()
            loss.backward()
            for optimizer in (rows, rest):
                optimizer.step()
                optimizer.zero_grad()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_graph_with_a_sparse_gradient_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "graphs"))
    indices = torch.tensor([[1, 2, 3], [3, 4, 4]]).to(DEVICE)
    found, hits = [], []
    with functorch.patch(enable_autograd_cache=True):
        for _ in range(2):
            torch._dynamo.reset()
            counters.clear()
            model, _ = models("embedding")
            compiled(model, fullgraph=True)(indices).square().sum().backward()
            found.append(model.rows.weight.grad.to_dense())  # type: ignore[operator,union-attr]
            hits.append(counters["aot_autograd"]["autograd_cache_hit"])
    assert torch.equal(*found)
    assert hits == [0, 1]


# -- what Dynamo leaves to eager


def test_a_sparse_tensor_ends_compilation_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, factor = adjacency(), torch.randn(12, 3)
    given = plain.to_sparse_csr().to(DEVICE)

    def product(matrix: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(matrix, factor.sin()).relu()

    def other_product(matrix: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(matrix, factor.cos()).relu()

    with caplog.at_level(logging.WARNING, "torchneuron"), torchneuron.explain() as told:
        found = compiled(product)(given, factor.to(DEVICE))
        compiled(other_product)(given, factor.to(DEVICE))
    torch.testing.assert_close(found.cpu(), (plain @ factor.sin()).relu())
    breaks = told.to_dict()["graph_breaks"]
    assert len(breaks) == 2 and all(each["file"] == __file__ for each in breaks)
    said = [each.message for each in caplog.records if "sparse.matrix" in each.message]
    assert len(said) <= 1  # none where a test before this one had it said
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(lambda x: x @ factor.to(DEVICE), fullgraph=True)(given)


def test_a_sparse_tensor_made_inside_runs() -> None:
    plain, factor = adjacency(), torch.randn(12, 3).to(DEVICE)

    def product(plain: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return (plain.to_sparse_csr() @ factor.sin()).relu()

    found = compiled(product)(plain.to(DEVICE), factor)
    torch.testing.assert_close(found, (plain.to(DEVICE) @ factor.sin()).relu())
