// Ops that PyTorch gives accelerators under names of their own, computed as the CPU computes
// their counterparts.
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace torchneuron {
namespace {

at::Tensor convolutionOverrideable(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups) {
  return at::convolution_symint(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolutionBackwardOverrideable(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    std::array<bool, 3> output_mask) {
  std::optional<std::vector<c10::SymInt>> bias_sizes;
  if (output_mask[2]) {
    bias_sizes = {grad_output.sym_size(1)};
  }
  const auto sizes = bias_sizes.has_value()
      ? at::OptionalSymIntArrayRef(*bias_sizes)
      : at::OptionalSymIntArrayRef(std::nullopt);
  return at::convolution_backward_symint(
      grad_output, input, weight, sizes, stride, padding, dilation, transposed, output_padding,
      groups, output_mask);
}

// The CPU's dropout multiplies by noise / (1 - p), rounded in the tensor's dtype. The same here,
// bit for bit, in both directions; the mask is what autograd keeps.
at::Tensor scaledNoise(const at::Tensor& mask, at::ScalarType dtype, double keep) {
  return mask.to(dtype).div_(keep);
}

std::tuple<at::Tensor, at::Tensor> nativeDropout(
    const at::Tensor& input,
    double p,
    std::optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(at::kBool))};
  }
  const auto noise =
      at::empty_like(input).bernoulli_(1 - p, cpuGenerator(std::nullopt, kernelDevice));
  auto mask = noise.to(at::kBool);
  return {input * scaledNoise(mask, input.scalar_type(), 1 - p), std::move(mask)};
}

at::Tensor nativeDropoutBackward(
    const at::Tensor& grad_output,
    const at::Tensor& mask,
    double scale) {
  if (scale == 0) {
    return at::zeros_like(grad_output);
  }
  return grad_output * scaledNoise(mask, grad_output.scalar_type(), 1 / scale);
}

int64_t fusedSdpChoice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  return at::_fused_sdp_choice(
      query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

} // namespace

int64_t chooseAttention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  // The fused kernel has no gradient for the mask, and an alias cannot tell that one is wanted.
  if (mask.has_value() && mask->requires_grad()) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  return ComputedKernel<at::_ops::_fused_sdp_choice, &fusedSdpChoice>::call(
      query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

void registerComputedKernels(torch::Library& library) {
  namespace ops = at::_ops;
  library.impl(
      "convolution_overrideable",
      TORCH_FN((ComputedKernel<ops::convolution_overrideable, &convolutionOverrideable>::call)));
  library.impl(
      "convolution_backward_overrideable",
      TORCH_FN((ComputedKernel<
                ops::convolution_backward_overrideable,
                &convolutionBackwardOverrideable>::call)));
  library.impl(
      "native_dropout", TORCH_FN((ComputedKernel<ops::native_dropout, &nativeDropout>::call)));
  library.impl(
      "native_dropout_backward",
      TORCH_FN((ComputedKernel<ops::native_dropout_backward, &nativeDropoutBackward>::call)));
  library.impl("_fused_sdp_choice", TORCH_FN(chooseAttention));
}

} // namespace torchneuron
