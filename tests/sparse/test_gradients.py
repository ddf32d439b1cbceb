"""Autograd through sparse tensors: gradients, views, versions, modes."""

import threading

import pytest
import torch

from behaviour.subject import DEVICE
from sparse.subject import (
    BLOCKED,
    COMPRESSED,
    LAYOUTS,
    NEURON,
    assert_agree,
    assert_equal,
    assert_same,
    dense,
    members,
    sparse,
)


def leaf(layout: torch.layout) -> torch.Tensor:
    return sparse(layout).requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_of_the_common_ways(layout: torch.layout) -> None:
    weight = torch.arange(24.0).view(4, 6)

    def through_dense(x: torch.Tensor) -> torch.Tensor:
        (x.to_dense() * weight.to(x.device)).sum().backward()
        return x.grad

    def through_values(x: torch.Tensor) -> torch.Tensor:
        values = x.coalesce().values() if layout == torch.sparse_coo else x.values()
        values.square().sum().backward()
        return x.grad

    def round_trip(x: torch.Tensor) -> torch.Tensor:
        blocks = {"blocksize": (2, 2)} if layout in BLOCKED else {}
        made = x.to_sparse(layout=layout, **blocks)
        made.to_dense().square().sum().backward()
        return x.grad

    accepted = assert_agree(through_dense, leaf(layout))
    assert accepted == (layout in (torch.sparse_coo, torch.sparse_csr))
    assert_agree(through_values, leaf(layout))
    assert_same(round_trip, dense().requires_grad_())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_gradients_of_a_product(layout: torch.layout) -> None:
    def product(matrix: torch.Tensor, other: torch.Tensor) -> list[torch.Tensor]:
        result = torch.sparse.mm(matrix, other)
        result.square().sum().backward()
        return [result.detach(), matrix.grad, other.grad]

    assert_same(product, leaf(layout), torch.randn(6, 3, requires_grad=True))


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_products_know_that_a_gradient_is_wanted(reduce: str) -> None:
    def product(matrix: torch.Tensor, other: torch.Tensor) -> list[torch.Tensor]:
        result = torch.sparse.mm(matrix, other, reduce)
        result.square().sum().backward()
        with torch.no_grad():
            again = torch.sparse.mm(matrix, other, reduce)
        return [result.detach(), again, matrix.grad, other.grad]

    other = torch.randn(6, 3)
    matrix = leaf(torch.sparse_csr)
    assert_same(product, matrix, other.requires_grad_())

    def one_sided(matrix: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        torch.sparse.mm(matrix, other, reduce).sum().backward()
        return other.grad

    assert_same(one_sided, matrix.detach(), other)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_gradcheck(layout: torch.layout) -> None:
    matrix = sparse(layout, dense(3, 4, dtype=torch.float64)).to(DEVICE).requires_grad_()
    other = torch.randn(4, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, y: torch.sparse.mm(x, y), (matrix, other), masked=True
    )
    assert torch.autograd.gradcheck(lambda x: x.to_dense(masked_grad=True), (matrix,), masked=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_members_are_views_that_see_writes(layout: torch.layout) -> None:
    def write(x: torch.Tensor) -> list[torch.Tensor]:
        values = x._values() if layout == torch.sparse_coo else x.values()
        values.mul_(3)
        return [values.clone(), x.to_dense()]

    assert_same(write, sparse(layout))
    there = sparse(layout).to(DEVICE)
    assert all(member.device == NEURON for member in members(there))
    if layout != torch.sparse_coo:
        assert there.values().data_ptr() == there.values().data_ptr()


def versions(x: torch.Tensor) -> list[int]:
    """Return the version of a tensor and of its values after each of a few writes."""
    reads = torch.Tensor._values if x.layout == torch.sparse_coo else torch.Tensor.values
    values = reads(x)
    seen = []
    for write in (lambda: x.mul_(2), lambda: values.add_(1), lambda: x.zero_()):
        write()
        seen += [x._version, values._version, reads(x)._version]
    return seen


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_versions_are_counted_as_on_the_cpu(layout: torch.layout) -> None:
    assert versions(sparse(layout).to(DEVICE)) == versions(sparse(layout))


def test_a_write_to_what_backward_needs_is_found() -> None:
    matrix = sparse(torch.sparse_csr).to(DEVICE)
    other = torch.randn(6, 2, device=DEVICE, requires_grad=True)
    result = torch.sparse.mm(matrix, other).sum()
    matrix.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_inference_mode() -> None:
    expected = sparse(torch.sparse_coo)
    with torch.inference_mode():
        made = expected.to(DEVICE)
        doubled = made * 2
        assert doubled.is_inference()
        assert made.add_(made) is made
    assert_equal(made.clone(), expected * 2)
    after = made * 1  # an inference tensor outside, and a shell that was made inside
    assert not after.is_inference()
    after.requires_grad_().to_dense().sum().backward()
    assert after.grad is not None


def test_threads_do_not_share_aliases() -> None:
    matrices = [sparse(layout).to(DEVICE) for layout in (torch.sparse_coo, torch.sparse_csr)]
    expected = [matrix.to_dense().cpu() for matrix in matrices]
    wrong: list[str] = []

    def work(number: int) -> None:
        for step in range(200):
            for matrix, want in zip(matrices, expected, strict=True):
                made = (matrix * number).add_(matrix).to_dense().cpu()
                if not torch.equal(made, want * (number + 1)):
                    wrong.append(f"thread {number} step {step}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_autocast_takes_and_refuses_what_it_does_on_the_cpu() -> None:
    other = torch.randn(6, 3)
    for layout in (torch.sparse_coo, *COMPRESSED[:1]):
        outcomes = []
        for device in ("cpu", DEVICE):
            try:
                with torch.autocast(device, torch.bfloat16):
                    made = sparse(layout, torch.eye(6)).to(device) @ other.to(device)
                outcomes.append((made.dtype, made.float().cpu().tolist()))
            except RuntimeError as error:
                outcomes.append((type(error), None))
        assert outcomes[0] == outcomes[1]
