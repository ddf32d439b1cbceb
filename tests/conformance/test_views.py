"""Views of views, writes through them, and tensors that change their memory equal CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.judge import Verdict, judge, results_with_relations
from conformance.placement import Placement

Program = Callable[[torch.Tensor], Any]

GRID = torch.arange(24.0).reshape(4, 6)
COMPLEX = torch.complex(GRID, GRID.flip(0))


def agrees(program: Program, source: torch.Tensor, device: torch.device) -> Verdict:
    """Run `program` on a copy of `source` on both devices, watching who shares memory."""

    def scenario(target: torch.device) -> Any:
        tensor = Placement(target)(source)
        result = program(tensor)
        return {**results_with_relations(result, tensor), "version": tensor._version}

    return judge(scenario, device)


def written(view: torch.Tensor) -> torch.Tensor:
    """Write to every element of a view, in place."""
    return view.mul_(2).add_(1)


def _mask(x: torch.Tensor) -> torch.Tensor:
    x[x > 7] = -1
    return x


def _advanced(x: torch.Tensor) -> torch.Tensor:
    rows = torch.tensor([0, 2, 2], device=x.device)
    x[rows, 1::2] = torch.ones(3, 3, device=x.device)
    x[:, rows].zero_()
    x.index_put_((rows,), x[0].clone(), accumulate=True)
    return x[..., None, -1]


VIEWS: dict[str, Program] = {
    "transpose_slice": lambda x: written(x.t()[1::2, 1:]),
    "view_of_view_of_view": lambda x: written(x[1:].view(-1)[2:14].view(3, 4).t()[1]),
    "as_strided": lambda x: written(x.as_strided((2, 2), (7, 1), 3)),
    "as_strided_of_slice": lambda x: written(x[1:, 2:].as_strided((2, 3), (6, 2), 8)),
    "as_strided_own_offset": lambda x: x[2].as_strided((3,), (2,)),
    "as_strided_in_place": lambda x: x.as_strided_((3, 3), (5, 1), 1),
    "narrow_select": lambda x: written(x.narrow(1, 2, 3).select(0, -1)),
    "diagonal": lambda x: x.diagonal(1).fill_(9),
    "unfold": lambda x: x.unfold(1, 2, 2).mul_(3),
    "unfold_overlapping_read": lambda x: x.unfold(1, 3, 1).sum(-1),
    "unfold_overlapping_write": lambda x: x.unfold(1, 3, 1).mul_(3),
    "expand_read": lambda x: x[:1].expand(5, 6) * 2,
    "expand_write": lambda x: x[:1].expand(5, 6).add_(1),
    "overlapping_in_place": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "split": lambda x: [part.add_(i) for i, part in enumerate(x.split([1, 3]))],
    "chunk_of_unbind": lambda x: [written(row.chunk(2)[1]) for row in x.unbind()],
    "unflatten_flatten": lambda x: written(x.unflatten(1, (2, 3)).flatten(0, 1)),
    "movedim_squeeze": lambda x: written(x[None].movedim(0, -1).squeeze(-1)),
    "reshape_that_copies": lambda x: written(x.t().reshape(-1)),
    "contiguous_is_self": lambda x: x.contiguous(),
    "to_is_self": lambda x: x.to(x.device),
    "mask_write": _mask,
    "advanced_write": _advanced,
    "set_item_scalar": lambda x: x.__setitem__((slice(None, None, 3), Ellipsis), 5),
    "swap_in_place": lambda x: x.t_().unsqueeze_(0).swapdims_(0, 2).squeeze_(2),
    "view_dtype_same": lambda x: x.view(torch.int32)[0].fill_(0x3F800000),
    "view_dtype_smaller": lambda x: x.view(torch.uint8)[:, ::4],
    "view_dtype_larger": lambda x: x.view(torch.float64)[1:],
    "view_dtype_odd_offset": lambda x: x[:, 1:].view(torch.int64),
    "view_dtype_of_transposed": lambda x: x.t().view(torch.int64),
    "view_as_complex": lambda x: written(torch.view_as_complex(x.view(4, 3, 2))[1]),
    "detach_shares": lambda x: x.detach().zero_(),
    "alias": lambda x: written(torch.ops.aten.alias(x)),
    "broadcast_tensors": lambda x: list(torch.broadcast_tensors(x[0], x)),
    "channels_last": lambda x: x.view(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "storage_size_and_offset": lambda x: (x[1:].untyped_storage().nbytes(), x[1:].storage_offset()),
}

COMPLEX_VIEWS: dict[str, Program] = {
    "real": lambda x: written(x.real),
    "imag_of_conj": lambda x: x.conj().imag.mul_(2),
    "view_as_real": lambda x: written(torch.view_as_real(x)[..., 1]),
    "conj_write": lambda x: x.conj().add_(1j),
    "conj_slice_matmul": lambda x: x.conj()[:2] @ x.t(),
    "resolve": lambda x: [x.conj().resolve_conj(), x.conj().imag.resolve_neg(), x.mH],
    "clone_of_conj": lambda x: x.conj().clone(),
}


def _resized_storage(x: torch.Tensor) -> Any:
    storage = x.untyped_storage()
    kept = storage.nbytes()
    storage.resize_(0)
    emptied = storage.nbytes()
    storage.resize_(kept)
    x.fill_(3)
    return x, kept, emptied


def _storage_shared_after_resize(x: torch.Tensor) -> Any:
    other = x.view(-1)[3:]
    x.untyped_storage().resize_(200)
    x.add_(1)
    return other, x.untyped_storage().nbytes()


def _set_to_storage(x: torch.Tensor) -> Any:
    y = torch.empty(0, device=x.device)
    y.set_(x.untyped_storage(), 4, (2, 3), (6, 1))
    y.neg_()
    return y


def _data_assignment(x: torch.Tensor) -> Any:
    parameter = torch.nn.Parameter(x)
    parameter.data = torch.ones(2, 3, device=x.device).t()
    parameter.data.mul_(4)
    return parameter


def _leaf_in_place(x: torch.Tensor) -> Any:
    leaf = x.clone().requires_grad_()
    view = (leaf * 2)[1:]
    view.mul_(3)
    view[0].zero_()
    view.sum().backward()
    return leaf.grad


MEMORY: dict[str, Program] = {
    "resize_smaller": lambda x: x.resize_(2, 5),
    "resize_larger": lambda x: x.resize_(9, 9).view(-1)[24:].zero_(),
    "resize_view": lambda x: x[1:].resize_(2, 2),
    "resize_as": lambda x: x.resize_as_(x.t()),
    "resize_of_empty": lambda x: x.new_empty(0).resize_(3, 4).fill_(1),
    "resize_memory_format": lambda x: x.resize_(1, 2, 3, 4, memory_format=torch.channels_last),
    "resize_requiring_grad": lambda x: x.requires_grad_().resize_(2, 2),
    "storage_resize_to_nothing": _resized_storage,
    "storage_resize_larger": _storage_shared_after_resize,
    "set_to_tensor": lambda x: x.new_empty(0).set_(x[1:, ::2]).zero_(),
    "set_to_storage": _set_to_storage,
    "set_to_nothing": lambda x: x.set_(),
    "set_out_of_bounds": lambda x: x.set_(x.untyped_storage(), 0, (-1,), (1,)),
    "set_grows_storage": lambda x: x.set_(x.untyped_storage(), 20, (2, 4), (4, 1)).zero_(),
    "data_assignment": _data_assignment,
    "data_write_keeps_version": lambda x: x.data.add_(1),
    "leaf_in_place": _leaf_in_place,
    "out_resizes": lambda x: torch.add(x, x, out=x.new_empty(0)),
    "out_is_input": lambda x: torch.add(x, 1, out=x),
    "out_is_view": lambda x: torch.add(x[:2], 1, out=x[2:]),
    "out_strided": lambda x: torch.mm(x, x.t(), out=x.new_empty(4, 8)[:, ::2]),
    "storage_fill": lambda x: x.untyped_storage().fill_(0) and x,
    "storage_index": lambda x: [x.untyped_storage()[i] for i in range(4, 8)],
    "storage_clone": lambda x: x.new_empty(0).set_(x.untyped_storage().clone()).add_(1),
    "storage_copy": lambda x: (
        x.untyped_storage().copy_(x.flip(0).contiguous().untyped_storage()) and x
    ),
}


# CPU refuses these, so the device has to.
REFUSED = {
    "expand_write",
    "overlapping_in_place",
    "view_dtype_odd_offset",
    "view_dtype_of_transposed",
    "resize_requiring_grad",
    "set_out_of_bounds",
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_program_equals_cpu(name: str, device: torch.device) -> None:
    assert agrees(VIEWS[name], GRID, device) == Verdict(name not in REFUSED)


@pytest.mark.parametrize("name", COMPLEX_VIEWS)
def test_complex_view_program_equals_cpu(name: str, device: torch.device) -> None:
    assert agrees(COMPLEX_VIEWS[name], COMPLEX, device) == Verdict(True)


@pytest.mark.parametrize("name", MEMORY)
def test_memory_program_equals_cpu(name: str, device: torch.device) -> None:
    assert agrees(MEMORY[name], GRID, device) == Verdict(name not in REFUSED)


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_views_of_a_tensor_with_gaps_equal_cpu(offset: int, device: torch.device) -> None:
    room = torch.arange(80.0)
    source = room.as_strided((4, 6), (13, 2), offset)
    rejected = [name for name, program in VIEWS.items() if agrees(program, source, device).failure]
    assert rejected == []


def test_write_through_a_view_after_the_original_is_gone(device: torch.device) -> None:
    view = (torch.arange(10.0).to(device) + 1)[3:].view(7)
    torch.empty(10, device=device).fill_(-1)
    assert view.mul_(2).tolist() == [8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0]


def test_autograd_notices_a_write_to_a_saved_tensor(device: torch.device) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)
    saved = leaf * 1
    loss = (saved * saved).sum()
    saved[1:].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
