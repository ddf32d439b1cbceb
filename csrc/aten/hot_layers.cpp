// Layers, losses, their gradients, and random fills.
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/Operators.h>

namespace torchneuron {

void registerHotLayers(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<
      ops::_adaptive_avg_pool2d, ops::_adaptive_avg_pool2d_backward, ops::_log_softmax,
      ops::_log_softmax_backward_data, ops::_native_batch_norm_legit,
      ops::_native_batch_norm_legit_no_stats, ops::_prelu_kernel, ops::_prelu_kernel_backward,
      ops::_safe_softmax, ops::_scaled_dot_product_flash_attention_for_cpu,
      ops::_scaled_dot_product_flash_attention_for_cpu_backward, ops::_softmax,
      ops::_softmax_backward_data, ops::_weight_norm_interface,
      ops::_weight_norm_interface_backward, ops::avg_pool2d, ops::avg_pool2d_backward,
      ops::batch_norm_backward, ops::bernoulli, ops::bernoulli__Tensor, ops::bernoulli__float,
      ops::binary_cross_entropy, ops::binary_cross_entropy_backward,
      ops::binary_cross_entropy_with_logits, ops::constant_pad_nd, ops::convolution,
      ops::convolution_backward, ops::elu, ops::elu_, ops::elu_backward, ops::embedding,
      ops::embedding_dense_backward, ops::exponential_, ops::gelu, ops::gelu_, ops::gelu_backward,
      ops::grid_sampler_2d, ops::grid_sampler_2d_backward, ops::hardswish, ops::hardswish_,
      ops::hardswish_backward, ops::hardtanh, ops::hardtanh_, ops::hardtanh_backward,
      ops::leaky_relu, ops::leaky_relu_, ops::leaky_relu_backward, ops::log_sigmoid_backward,
      ops::log_sigmoid_forward, ops::max_pool2d_with_indices, ops::max_pool2d_with_indices_backward,
      ops::mse_loss, ops::mse_loss_backward, ops::native_batch_norm,
      ops::native_batch_norm_backward, ops::native_group_norm, ops::native_group_norm_backward,
      ops::native_layer_norm, ops::native_layer_norm_backward, ops::nll_loss2d_backward,
      ops::nll_loss2d_forward, ops::nll_loss_backward, ops::nll_loss_forward, ops::normal_,
      ops::random_, ops::random__from, ops::random__to, ops::relu, ops::relu_,
      ops::sigmoid_backward, ops::silu, ops::silu_, ops::silu_backward, ops::softplus,
      ops::softplus_backward, ops::tanh_backward, ops::threshold, ops::threshold_,
      ops::threshold_backward, ops::unfold_backward, ops::uniform_, ops::unsafe_split_Tensor,
      ops::upsample_bilinear2d, ops::upsample_bilinear2d_backward, ops::upsample_nearest2d,
      ops::upsample_nearest2d_backward>(registrar);
}

}  // namespace torchneuron
