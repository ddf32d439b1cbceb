"""Fused recurrent cells, taken apart, equal the device's kernels; whole layers are one program."""

from typing import Any

import pytest
import torch
from torch import nn

import torchneuron
from torchneuron.lowering import recurrent

aten = torch.ops.aten
BATCH, WIDTH = 3, 8


def equals_the_kernel(target: Any, *args: Any) -> Any:
    """Compare a decomposition with the device's kernel and return the kernel's results."""
    expected = target(*args)
    found = recurrent.CELLS[target](*args)
    for one, other in zip(found, expected, strict=True):
        if one is None:
            assert other is None or other.numel() == 0
        else:
            torch.testing.assert_close(one.cpu(), other.cpu())
    return expected


def tensors(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, device="neuron") for shape in shapes]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("missing", [None, 0, 1])
def test_lstm_cell(has_bias: bool, missing: int | None) -> None:
    gates = tensors((BATCH, 4 * WIDTH), (BATCH, 4 * WIDTH), (BATCH, WIDTH))
    biases = tensors((4 * WIDTH,), (4 * WIDTH,)) if has_bias else []
    _, cy, workspace = equals_the_kernel(aten._thnn_fused_lstm_cell.default, *gates, *biases)
    gradients: list[Any] = tensors((BATCH, WIDTH), (BATCH, WIDTH))
    if missing is not None:
        gradients[missing] = None
    backward = aten._thnn_fused_lstm_cell_backward_impl.default
    equals_the_kernel(backward, *gradients, gates[2], cy, workspace, has_bias)


@pytest.mark.parametrize("has_bias", [True, False])
def test_gru_cell(has_bias: bool) -> None:
    gates = tensors((BATCH, 3 * WIDTH), (BATCH, 3 * WIDTH), (BATCH, WIDTH))
    biases = tensors((3 * WIDTH,), (3 * WIDTH,)) if has_bias else []
    _, workspace = equals_the_kernel(aten._thnn_fused_gru_cell.default, *gates, *biases)
    [gradient] = tensors((BATCH, WIDTH))
    equals_the_kernel(aten._thnn_fused_gru_cell_backward.default, gradient, workspace, has_bias)


@pytest.mark.parametrize(
    ("kind", "bias"),
    [
        (nn.LSTM, True),
        (nn.LSTM, False),
        (nn.GRU, True),
        (nn.GRU, False),
        (nn.RNN, True),
    ],
)
@torch._dynamo.config.patch(allow_rnn=True)
def test_compiled_layers_are_whole_programs(kind: type[nn.RNNBase], bias: bool) -> None:
    layer = kind(WIDTH, WIDTH, bidirectional=True, batch_first=True, bias=bias)
    x = torch.randn(BATCH, 4, WIDTH)
    expected, _ = layer(x)
    expected.square().sum().backward()
    gradients = {name: each.grad for name, each in layer.named_parameters()}
    layer.zero_grad()
    layer.to("neuron")
    torch._dynamo.reset()
    before = torchneuron.compile_stats()["programs"]
    with torchneuron.explain() as report:
        found, _ = torch.compile(layer, backend="neuron")(x.to("neuron"))
        found.square().sum().backward()
    report.assert_no("host_fallback")
    assert torchneuron.compile_stats()["programs"] - before == 2
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    for name, each in layer.named_parameters():
        torch.testing.assert_close(each.grad.cpu(), gradients[name], rtol=1e-3, atol=1e-5)
