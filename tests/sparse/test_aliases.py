"""What an alias of a sparse tensor must not get wrong: identity, replaced members, views."""

from collections.abc import Callable

import pytest
import torch

from behaviour.subject import DEVICE
from sparse.subject import (
    LAYOUTS,
    assert_agree,
    assert_equal,
    assert_same,
    dense,
    members,
    sparse,
)

IN_PLACE: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.add_(x),
    lambda x: x.mul_(x),
    lambda x: x.add_(x.clone(), alpha=2),
    lambda x: x.mul_(2.5),
    lambda x: x.abs_(),
    lambda x: x.neg_(),
    lambda x: x.zero_(),
    lambda x: x.copy_(x.clone().mul_(2)),
    lambda x: x.resize_as_sparse_(x.clone()),
    lambda x: x.sub_(x),
    lambda x: x.div_(4.0),
    lambda x: x.sparse_resize_((5, 6), 2, 0),
    lambda x: x.sparse_resize_and_clear_((3, 2), 1, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("place", range(len(IN_PLACE)))
def test_in_place_writes_arrive(layout: torch.layout, place: int) -> None:
    write = IN_PLACE[place]
    tensor = sparse(layout)
    if not assert_agree(write, tensor):
        return
    there = tensor.to(DEVICE)
    assert write(there) is there
    assert_equal(there.to_dense(), write(tensor).to_dense())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_one_tensor_twice_stays_one_tensor(layout: torch.layout) -> None:
    """Kernels compare their operands by identity and take another way for the same one."""
    assert_agree(lambda x: torch.add(x, x), sparse(layout))
    assert_agree(lambda x: torch.mul(x, x), sparse(layout))
    if layout in (torch.sparse_coo, torch.sparse_csr):
        assert_same(lambda x: x.sparse_mask(x), sparse(layout))


def test_replaced_members_are_not_mistaken_for_new_ones() -> None:
    """A member that died in a kernel must not lend its address to a result."""
    x = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3))
    here, there = x.clone(), x.to(DEVICE)
    for _ in range(50):
        for tensor in (here, there):
            tensor.add_(tensor.coalesce()).mul_(0.5)
            tensor.zero_() if tensor._nnz() > 200 else None
        assert_equal(there, here)


def test_written_operands_beside_a_result() -> None:
    def chain(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        target = torch.zeros_like(x)
        result = torch.add(x, y, out=target)
        assert result is target
        torch.mul(x, y, out=target)
        return [target, x, y]

    assert_same(chain, sparse(torch.sparse_coo), sparse(torch.sparse_coo))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_results_that_share_members_share_memory(layout: torch.layout) -> None:
    there = sparse(layout).to(DEVICE)
    shared = there.detach()
    members(shared)[-1].fill_(7)
    assert_equal(there.to_dense(), shared.to_dense().cpu())
    if layout == torch.sparse_coo:
        permuted = there.permute(1, 0)
        permuted._values().fill_(3)
        assert there._values().unique().tolist() == [3.0]
        assert permuted._values().data_ptr() == there._values().data_ptr()


def test_views_into_members_do_not_take_the_device_from_later_aliases() -> None:
    """A view of an input among the results turned the shared twin into a device storage once."""
    matrix = sparse(torch.sparse_csr)
    there = matrix.to(DEVICE)
    other = torch.randn(6, 2)
    for _ in range(3):
        row = there[1]
        crow = there.crow_indices()[1:]
        assert row.device == there.device == crow.device
        assert_equal(there @ other.to(DEVICE), matrix @ other)
        assert_equal(there.t() @ other.to(DEVICE)[:4], matrix.t() @ other[:4])
        assert_equal(there.to_sparse(), matrix.to_sparse())


def test_a_dense_operator_that_makes_a_sparse_result_of_its_operand() -> None:
    mask = sparse(torch.sparse_coo).bool().coalesce()
    assert_same(lambda x, m: x.sparse_mask(m), dense(), mask)
    assert_same(lambda x, y: x.add_(y), dense(), sparse(torch.sparse_coo))
    assert_same(lambda x: x[:, 1:3].to_sparse(), dense())
    assert_same(lambda x: x.t().to_sparse_csr(), dense())


def test_operators_of_other_libraries_take_and_give_sparse_tensors() -> None:
    kept: list[torch.Tensor] = []

    @torch.library.custom_op("sparse_tests::double", mutates_args=(), device_types="cpu")
    def double(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x * 2

    library = torch.library.Library("sparse_tests", "FRAGMENT")
    library.impl("double", lambda x: double._init_fn(x), "SparseCPU")
    matrix = sparse(torch.sparse_coo)
    there = matrix.to(DEVICE)
    assert_equal(torch.ops.sparse_tests.double(there), matrix * 2)
    there._values().fill_(5)
    assert kept[0]._values().unique().tolist() == [5.0]


def test_a_layout_error_leaves_the_device_as_it_was() -> None:
    there = sparse(torch.sparse_csr).to(DEVICE)
    before = there.to_dense().cpu()
    for _ in range(20):
        with pytest.raises(RuntimeError):
            there.mul_(torch.ones(2, 2, device=DEVICE))
        with pytest.raises(RuntimeError):
            there @ torch.ones(3, 3, device=DEVICE)
        with pytest.raises(RuntimeError):
            there + torch.ones(4, 6)
    assert torch.equal(there.to_dense().cpu(), before)
