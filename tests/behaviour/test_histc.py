"""Counting integers, as accelerators do and the CPU's kernel does not: libraries rely on it."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_histc_counts_integers(dtype: torch.dtype) -> None:
    numbers = torch.tensor([0, 1, 2, 2, 3, 7], dtype=dtype)
    counts = torch.histc(numbers.to("neuron"), bins=4, min=0, max=3)
    assert counts.dtype == dtype
    assert torch.equal(counts.cpu(), torch.histc(numbers.double(), 4, 0, 3).to(dtype))


def test_histc_of_floats_is_the_cpus() -> None:
    numbers = torch.randn(50)
    assert torch.equal(torch.histc(numbers.to("neuron"), 7).cpu(), torch.histc(numbers, 7))
