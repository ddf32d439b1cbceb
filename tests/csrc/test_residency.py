"""A runtime with memory of its own is told before a kernel reads or writes a block on the host."""

import torch

from torchneuron import _C


def _moved(*shape: int) -> torch.Tensor:
    tensor = torch.ones(shape, device="neuron")
    _C.residency_test_move(tensor)
    return tensor


def test_kernel_says_which_arguments_it_reads_and_writes() -> None:
    x, y = _moved(4), _moved(4)
    x.add_(y)
    assert _C.residency_test_log() == ["write", "read"]
    assert x.tolist() == [2.0] * 4
    assert _C.residency_test_log() == []  # both sides are true now


def test_list_and_out_arguments_follow_their_schema() -> None:
    x, y = _moved(4), _moved(4)
    torch._foreach_add_([x, y], 1.0)
    assert _C.residency_test_log() == ["write", "write"]
    x, out = _moved(4), _moved(4)
    torch.special.i0e(x, out=out)
    assert _C.residency_test_log() == ["read", "write"]


def test_copies_reads_and_scalars_ask_too() -> None:
    x = _moved(4)
    x.cpu()
    assert _C.residency_test_log() == ["read"]
    x = _moved(1)
    x.item()
    assert _C.residency_test_log() == ["read"]
    x = _moved(4)
    x.copy_(torch.zeros(4))
    assert _C.residency_test_log() == ["write"]


def test_views_move_no_data() -> None:
    x = _moved(4)
    x.view(2, 2).transpose(0, 1)[0]
    assert _C.residency_test_log() == []
