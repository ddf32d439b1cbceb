"""Single recurrent cells: the CPU adds a bias within the product, accelerators after it."""

import copy

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
# Sizes at which products with and without an addend round in other ways.
@pytest.mark.parametrize(("inputs", "width", "batch"), [(33, 17, 5), (256, 256, 64)])
def test_cells_equal_the_cpus_bit_by_bit(
    kind: type[nn.RNNCellBase], bias: bool, inputs: int, width: int, batch: int
) -> None:
    cell = kind(inputs, width, bias=bias)
    other = copy.deepcopy(cell).to(DEVICE)
    x = torch.randn(batch, inputs)
    found = []
    for each, given in ((cell, x), (other, x.to(DEVICE))):
        state = None
        for _ in range(2):
            state = each(given, state)
        result = state[0] if isinstance(state, tuple) else state
        result.square().sum().backward()
        found.append([result, *(weight.grad for weight in each.parameters())])
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two.cpu())
