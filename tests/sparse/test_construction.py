"""Making, converting, moving and printing sparse tensors."""

from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from behaviour.subject import DEVICE, ERRORS, FIRST, SECOND
from conformance.placement import with_members
from conformance.upstream import simple_sparse_tensors
from sparse.subject import (
    COMPRESSED,
    CPU,
    LAYOUTS,
    NEURON,
    assert_agree,
    assert_equal,
    assert_same,
    dense,
    members,
    placed,
    sparse,
)

Script = Callable[..., CompletedProcess[str]]

MAKERS = {
    torch.sparse_csr: torch.sparse_csr_tensor,
    torch.sparse_csc: torch.sparse_csc_tensor,
    torch.sparse_bsr: torch.sparse_bsr_tensor,
    torch.sparse_bsc: torch.sparse_bsc_tensor,
    torch.sparse_coo: torch.sparse_coo_tensor,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_batched_hybrid_and_empty_tensors_move_both_ways(layout: torch.layout) -> None:
    count = 0
    for tensor in simple_sparse_tensors(layout, torch.float32):
        expected = with_members(tensor, [member.clone() for member in members(tensor)])
        for made in (tensor.to(DEVICE), placed(tensor)):
            assert str(made.device) == FIRST
            assert_equal(made, expected)
            assert_equal(made.to(SECOND).cpu(), expected, CPU)
        count += 1
    assert count > 15


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_made_from_members_and_from_lists(layout: torch.layout) -> None:
    expected = sparse(layout)
    maker: Any = MAKERS[layout]
    parts = members(expected)
    for arguments in ([part.to(DEVICE) for part in parts], [part.tolist() for part in parts]):
        made = maker(*arguments, size=expected.shape, device=DEVICE, dtype=torch.float32)
        if layout == torch.sparse_coo:
            made._coalesced_(True)
        assert_equal(made, expected)
    inferred = maker(*(part.to(DEVICE) for part in parts))
    assert inferred.device == NEURON
    assert inferred.layout == layout


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_made_where_asked_whatever_device_is_current(layout: torch.layout) -> None:
    expected = sparse(layout)
    for made in (
        expected.to(SECOND),
        placed(expected, SECOND),
        torch.empty(expected.shape, layout=layout, device=SECOND) if layout not in COMPRESSED
        else torch.empty_like(expected.to(SECOND)),
        torch.zeros_like(expected.to(SECOND)),
        expected.to(SECOND) * 2,
        expected.to(SECOND).clone(),
    ):  # fmt: skip
        assert str(made.device) == SECOND
        assert {str(member.device) for member in members(made)} == {SECOND}
    assert torch.neuron.current_device() == 0


@pytest.mark.parametrize("target", LAYOUTS, ids=str)
@pytest.mark.parametrize("layout", [torch.strided, *LAYOUTS], ids=str)
def test_every_layout_converts_to_every_other(layout: torch.layout, target: torch.layout) -> None:
    source = dense() if layout == torch.strided else sparse(layout)

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        blocks = {"blocksize": (2, 2)} if target in (torch.sparse_bsr, torch.sparse_bsc) else {}
        return tensor.to_sparse(layout=target, **blocks)

    assert_agree(convert, source)
    assert_same(torch.Tensor.to_dense, source)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_prints_as_on_the_cpu(layout: torch.layout) -> None:
    tensor = sparse(layout)
    expected = repr(tensor)
    found = repr(tensor.to(DEVICE))
    assert f"device='{FIRST}'" in found
    assert "".join(found.split()).replace(f"device='{FIRST}',", "") == "".join(expected.split())


def test_coalescing() -> None:
    indices, values = torch.tensor([[2, 0, 2, 1], [1, 1, 1, 0]]), torch.arange(8.0).view(4, 2)
    there = torch.sparse_coo_tensor(indices, values, (3, 2, 2), device=DEVICE)
    assert not there.is_coalesced()
    with pytest.raises(RuntimeError, match="uncoalesced tensor"):
        there.indices()
    merged = there.coalesce()
    assert merged.is_coalesced()
    assert merged.coalesce() is merged
    assert_equal(merged, torch.sparse_coo_tensor(indices, values, (3, 2, 2)).coalesce())
    assert there._nnz() == 4
    assert merged._nnz() == 3


def bad_tensors(device: str) -> list[Any]:
    """Return calls that break a rule of some layout each."""
    t, coo, csr = torch.tensor, torch.sparse_coo_tensor, torch.sparse_csr_tensor
    ones = torch.ones(2, device=device)
    return [
        lambda: coo(t([[0, 5]], device=device), ones, (3,)),
        lambda: coo(t([[0, -1]], device=device), ones, (3,)),
        lambda: coo(t([[0, 1, 2]], device=device), ones, (3,)),
        lambda: csr(t([0, 1], device=device), t([0, 1], device=device), ones, (1, 2)),
        lambda: csr(t([0, 2], device=device), t([0, 7], device=device), ones, (1, 2)),
        lambda: csr(t([0, 2], device=device), t([1, 0], device=device), ones, (1, 2)),
        lambda: csr(t([0, 2], device=device), t([0, 1], device=device), ones, (3, 2)),
    ]


def test_broken_invariants_raise_what_the_cpu_raises() -> None:
    with torch.sparse.check_sparse_tensor_invariants():
        for here, there in zip(bad_tensors("cpu"), bad_tensors(DEVICE), strict=True):
            with pytest.raises(ERRORS) as expected:
                here()
            with pytest.raises(type(expected.value)) as found:
                there()
            assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        torch.sparse_coo_tensor([[5]], [1.0], (3,), device=DEVICE, check_invariants=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_members_of_two_devices_are_refused(layout: torch.layout) -> None:
    tensor = sparse(layout)
    first, *rest = (member.to(DEVICE) for member in members(tensor))
    elsewhere = first.to(SECOND)
    with pytest.raises(RuntimeError, match="device"):
        make: Any = MAKERS[layout]
        made = make(elsewhere, *rest, size=tensor.shape)
        made.to_dense()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_operands_of_two_devices_are_refused(layout: torch.layout) -> None:
    tensor = sparse(layout).to(DEVICE)
    for other in (torch.ones(6, 2), torch.ones(6, 2, device=SECOND)):
        with pytest.raises(RuntimeError, match="at least two devices"):
            tensor @ other


def test_semi_structured_is_refused_clearly() -> None:
    weight = torch.tensor([0, 0, 1, 1]).tile((64, 16)).half().to(DEVICE)
    with pytest.raises(RuntimeError, match="neuron:0 is not supported! Only CUDA tensors"):
        torch.sparse.to_sparse_semi_structured(weight)
    with pytest.raises(NotImplementedError, match="neuron device.*\n\nhint: "):
        torch._sparse_semi_structured_tile(weight)


def test_pinning_is_refused_as_for_dense_tensors() -> None:
    for layout in LAYOUTS:
        tensor = sparse(layout).to(DEVICE)
        assert not tensor.is_pinned()
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            tensor.pin_memory()


FIRST_ACTS = (
    'torch.empty(2, 3, layout=torch.sparse_coo, device="neuron")',
    'torch.empty(2, 3, layout=torch.sparse_csr, device="neuron")',
    'torch.sparse_coo_tensor([[0]], [1.0], (2,), device="neuron", check_invariants=True)',
    'torch.sparse_coo_tensor(size=(2, 3), device="neuron")',
    'torch.zeros(2, 3, layout=torch.sparse_csr, device="neuron")',
    'torch.eye(3).to_sparse().to("neuron")',
    'torch.eye(3).to_sparse_csr().to("neuron")',
)


@pytest.mark.parametrize("act", FIRST_ACTS)
def test_a_programs_first_act_on_the_device_may_be_sparse(act: str, fresh_device: Script) -> None:
    process = fresh_device(
        f"""
        import torch
        x = {act}
        print(x.device, (x + x).to_dense().sum().item())
        """
    )
    assert process.stdout.startswith("neuron:0 ")


def test_sparse_tensors_beside_lowered_operators(script: Script) -> None:
    process = script(
        """
        import torch
        dense = torch.arange(9.0).view(3, 3).to("neuron")
        csr, coo = dense.to_sparse_csr(), dense.to_sparse()
        bag = torch.nn.EmbeddingBag(5, 3, mode="sum", sparse=True).to("neuron")
        bag(torch.tensor([[0, 1]], device="neuron")).sum().backward()
        torch.optim.SGD(bag.parameters(), lr=0.1).step()
        print((csr @ dense).sum().item(), (coo * 2).coalesce().to_dense().sum().item())
        """,
        env={"TORCHNEURON_EAGER": "lowered"},
    )
    assert process.stdout.split() == ["486.0", "72.0"]
