"""Packed sequences: batch sizes live on the CPU, and recurrent layers take them."""

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

from behaviour.subject import DEVICE, assert_runs_the_same, with_gradients

LENGTHS = [3, 1, 2]


def padded() -> torch.Tensor:
    """Make a batch of three sequences of up to three steps of four features."""
    return torch.randn(3, 3, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor(LENGTHS)], ids=["list", "tensor"])
def test_packing_and_padding_back_equal_the_cpu(batch_first: bool, lengths: Any) -> None:
    def there_and_back(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        assert packed.batch_sizes.device.type == "cpu"
        assert packed.batch_sizes.tolist() == [3, 2, 1]
        assert packed.sorted_indices.device == packed.data.device == x.device
        back, sizes = pad_packed_sequence(packed, batch_first)
        assert sizes.device.type == "cpu" and sizes.tolist() == LENGTHS
        return packed.data * 1, back

    assert_runs_the_same(with_gradients(there_and_back), padded())


def test_batch_sizes_are_plain_host_memory() -> None:
    x = torch.ones(3, 2, 4, device=DEVICE)
    before = torch.neuron.memory_allocated()
    data, sizes = torch.ops.aten._pack_padded_sequence(x, torch.tensor([3, 2]), False)
    assert data.device == x.device and sizes.device == torch.device("cpu")
    assert sizes.tolist() == [2, 2, 1] and sizes.numpy().tolist() == [2, 2, 1]
    held = torch.neuron.memory_allocated() - before
    del sizes
    assert torch.neuron.memory_allocated() - before == held


def test_lists_of_sequences_are_packed_and_unpacked() -> None:
    def there_and_back(*sequences: torch.Tensor) -> list[torch.Tensor]:
        packed = pack_sequence(sequences)
        assert packed.batch_sizes.device.type == "cpu"
        return [each * 2 for each in unpack_sequence(packed)]

    sequences = [torch.randn(n, 4, requires_grad=True) for n in (3, 2, 1)]
    assert_runs_the_same(with_gradients(there_and_back), *sequences)


def test_a_packed_sequence_moves_with_its_batch_sizes_left_behind() -> None:
    packed = pack_padded_sequence(torch.ones(3, 2, 4), [3, 2])
    moved = packed.to(DEVICE)
    assert moved.data.device.type == DEVICE and moved.batch_sizes.device.type == "cpu"
    assert moved.cpu().data.device.type == "cpu"


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_on_packed_input_equal_the_cpu(kind: Any, bidirectional: bool) -> None:
    torch.manual_seed(0)
    layer = kind(4, 5, num_layers=2, bidirectional=bidirectional)

    def run(x: torch.Tensor, layer: torch.nn.Module) -> Any:
        packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        output, state = layer(packed)
        assert isinstance(output, PackedSequence)
        return pad_packed_sequence(output)[0], state

    assert_runs_the_same(with_gradients(run), padded(), layer)
