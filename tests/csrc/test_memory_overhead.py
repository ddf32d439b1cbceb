"""What a tensor costs beyond its data: at most 128 bytes and the rounding."""

import torch


def test_reserved_bytes_of_many_small_tensors() -> None:
    torch.neuron.empty_cache()
    before = torch.neuron.memory_reserved()
    count, nbytes = 20_000, 256
    kept = [torch.empty(nbytes, dtype=torch.uint8, device="neuron") for _ in range(count)]
    grown = torch.neuron.memory_reserved() - before
    segment_bytes = 2 << 20  # the last segment may be nearly empty
    assert grown <= count * (nbytes + 128) + segment_bytes
    assert torch.neuron.memory_allocated() >= len(kept) * nbytes
