"""What the fused cells of LSTM and GRU are made of, forward and backward.

On a device that is not the CPU PyTorch calls these operators for each position of a sequence. They
follow the kernels in csrc/aten/recurrent.cpp, and like those what the CPU does step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def _with_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose `aten::_thnn_fused_lstm_cell`; the last result is the gates for the backward."""
    gates = _with_bias(hidden_gates, hidden_bias) + _with_bias(input_gates, input_bias)
    enter, forget, cell, leave = gates.chunk(4, 1)
    enter, forget, cell, leave = enter.sigmoid(), forget.sigmoid(), cell.tanh(), leave.sigmoid()
    cy = forget * cx + enter * cell
    return leave * cy.tanh(), cy, torch.cat([enter, forget, cell, leave], 1)


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Decompose `aten::_thnn_fused_lstm_cell_backward_impl`."""
    enter, forget, cell, leave = workspace.chunk(4, 1)
    tanh_cy = cy.tanh()
    grad_output = torch.zeros_like(cy) if grad_hy is None else grad_hy
    grad_cell = aten.tanh_backward(grad_output * leave, tanh_cy)
    if grad_cy is not None:
        grad_cell = grad_cy + grad_cell
    grad_gates = torch.cat(
        [
            aten.sigmoid_backward(grad_cell * cell, enter),
            aten.sigmoid_backward(grad_cell * cx, forget),
            aten.tanh_backward(grad_cell * enter, cell),
            aten.sigmoid_backward(grad_output * tanh_cy, leave),
        ],
        1,
    )
    return grad_gates, grad_cell * forget, grad_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Decompose `aten::_thnn_fused_gru_cell`; the second result is what the backward needs."""
    inputs = _with_bias(input_gates, input_bias).chunk(3, 1)
    hiddens = _with_bias(hidden_gates, hidden_bias).chunk(3, 1)
    reset = (hiddens[0] + inputs[0]).sigmoid()
    update = (hiddens[1] + inputs[1]).sigmoid()
    fresh = (inputs[2] + hiddens[2] * reset).tanh()
    hy = (hx - fresh) * update + fresh
    return hy, torch.cat([reset, update, fresh, hx, hiddens[2]], 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Decompose `aten::_thnn_fused_gru_cell_backward`."""
    reset, update, fresh, hx, hidden_new = workspace.chunk(5, 1)
    grad_update = aten.sigmoid_backward(grad_hy * (hx - fresh), update)
    grad_fresh = aten.tanh_backward(grad_hy - grad_hy * update, fresh)
    grad_reset = aten.sigmoid_backward(grad_fresh * hidden_new, reset)
    grad_input = torch.cat([grad_reset, grad_update, grad_fresh], 1)
    grad_hidden = torch.cat([grad_reset, grad_update, grad_fresh * reset], 1)
    biases = (grad_input.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_input, grad_hidden, grad_hy * update, *biases


CELLS = {
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: gru_cell,
    aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
}
