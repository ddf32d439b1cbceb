"""A weight in direction and length has the CPU's gradients, in the compiled program."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import torchneuron
from torchneuron.lowering.weight_norm import weight_norm_backward


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_equal_the_kernels(dim: int, dtype: torch.dtype) -> None:
    v = torch.randn(4, 3, 5, dtype=dtype)
    g = torch.rand([size if each == dim else 1 for each, size in enumerate(v.shape)], dtype=dtype)
    w, norms = torch._weight_norm_interface(v, g, dim)
    arguments = (torch.randn_like(w), v, g, norms, dim)
    expected = torch.ops.aten._weight_norm_interface_backward(*arguments)
    torch.testing.assert_close(weight_norm_backward(*arguments), expected)


@pytest.mark.parametrize("dim", [0, 2])
def test_a_compiled_convolution_stays_in_the_program(dim: int) -> None:
    layer = weight_norm(nn.Conv1d(4, 6, 3), dim=dim)
    other = copy.deepcopy(layer).to("neuron")
    x = torch.randn(2, 4, 9)
    layer(x).square().sum().backward()
    torch._dynamo.reset()
    with torchneuron.explain() as report:
        torch.compile(other, backend="neuron")(x.to("neuron")).square().sum().backward()
    report.assert_no("host_fallback")
    for one, two in zip(other.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), two.grad, rtol=1e-4, atol=1e-4)
