// The fused cells that PyTorch calls for LSTM and GRU on accelerators. They follow the CPU's
// unfused cells step by step, so that the numbers agree.
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>

namespace torchneuron {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor withBias(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates.clone();
}

at::Tensor zerosIfMissing(const OptionalTensor& grad, const at::Tensor& like) {
  return grad.has_value() && grad->defined() ? *grad : at::zeros_like(like);
}

// hy, cy, and the four activated gates for backward
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstmCell(const at::Tensor& input_gates,
                                                        const at::Tensor& hidden_gates,
                                                        const at::Tensor& cx,
                                                        const OptionalTensor& input_bias,
                                                        const OptionalTensor& hidden_bias) {
  const auto gates = withBias(hidden_gates, hidden_bias).add_(withBias(input_gates, input_bias));
  const auto chunks = gates.unsafe_chunk(4, 1);
  chunks[0].sigmoid_();
  chunks[1].sigmoid_();
  chunks[2].tanh_();
  chunks[3].sigmoid_();
  auto cy = (chunks[1] * cx).add_(chunks[0] * chunks[2]);
  auto hy = chunks[3] * cy.tanh();
  return {std::move(hy), std::move(cy), gates};
}

// gradients of the gates, of cx, and of the bias
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstmCellBackward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  const auto chunks = workspace.unsafe_chunk(4, 1);
  const auto tanh_cy = cy.tanh();
  const auto grad_output = zerosIfMissing(grad_hy, cy);
  const auto grad_cell =
      zerosIfMissing(grad_cy, cy) + at::tanh_backward(grad_output * chunks[3], tanh_cy);
  auto grad_gates = at::cat({at::sigmoid_backward(grad_cell * chunks[2], chunks[0]),
                             at::sigmoid_backward(grad_cell * cx, chunks[1]),
                             at::tanh_backward(grad_cell * chunks[0], chunks[2]),
                             at::sigmoid_backward(grad_output * tanh_cy, chunks[3])},
                            1);
  auto grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {std::move(grad_gates), grad_cell * chunks[1], std::move(grad_bias)};
}

// hy, and for backward: reset, update and new gate, hx, and the hidden part of the new gate
std::tuple<at::Tensor, at::Tensor> gruCell(const at::Tensor& input_gates,
                                           const at::Tensor& hidden_gates, const at::Tensor& hx,
                                           const OptionalTensor& input_bias,
                                           const OptionalTensor& hidden_bias) {
  const auto input = withBias(input_gates, input_bias);
  const auto hidden = withBias(hidden_gates, hidden_bias);
  const auto inputs = input.unsafe_chunk(3, 1);
  const auto hiddens = hidden.unsafe_chunk(3, 1);
  const auto reset = (hiddens[0] + inputs[0]).sigmoid_();
  const auto update = (hiddens[1] + inputs[1]).sigmoid_();
  const auto fresh = (inputs[2] + hiddens[2] * reset).tanh_();
  auto hy = (hx - fresh).mul_(update).add_(fresh);
  return {std::move(hy), at::cat({reset, update, fresh, hx, hiddens[2]}, 1)};
}

// gradients of input gates, hidden gates, hx, input bias and hidden bias
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gruCellBackward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const auto saved = workspace.unsafe_chunk(5, 1);
  const auto& [reset, update, fresh, hx, hidden_new] =
      std::tie(saved[0], saved[1], saved[2], saved[3], saved[4]);
  const auto grad_update = at::sigmoid_backward(grad_hy * (hx - fresh), update);
  const auto grad_fresh = at::tanh_backward(grad_hy - grad_hy * update, fresh);
  const auto grad_reset = at::sigmoid_backward(grad_fresh * hidden_new, reset);
  auto grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  auto grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  auto input_bias = has_bias ? grad_input.sum(0) : at::Tensor();
  auto hidden_bias = has_bias ? grad_hidden.sum(0) : at::Tensor();
  return {std::move(grad_input), std::move(grad_hidden), grad_hy * update, std::move(input_bias),
          std::move(hidden_bias)};
}

}  // namespace

void registerRecurrentKernels(Registrar& registrar) {
  namespace ops = at::_ops;
  registerComputedKernel<ops::_thnn_fused_lstm_cell, &lstmCell>(registrar);
  registerComputedKernel<ops::_thnn_fused_lstm_cell_backward_impl, &lstmCellBackward>(registrar);
  registerComputedKernel<ops::_thnn_fused_gru_cell, &gruCell>(registrar);
  registerComputedKernel<ops::_thnn_fused_gru_cell_backward, &gruCellBackward>(registrar);
}

}  // namespace torchneuron
