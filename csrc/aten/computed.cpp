// Ops that PyTorch gives accelerators under names of their own, computed as the CPU computes
// their counterparts.
#include "aten/bridge.h"
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_overrideable_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>

namespace torchneuron {
namespace {

at::Tensor convolutionOverrideable(const at::Tensor& input, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias,
                                   c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                   c10::SymIntArrayRef dilation, bool transposed,
                                   c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed,
                                output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolutionBackwardOverrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
    bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> output_mask) {
  std::optional<std::vector<c10::SymInt>> bias_sizes;
  if (output_mask[2]) {
    bias_sizes = {grad_output.sym_size(1)};
  }
  const auto sizes = bias_sizes.has_value() ? at::OptionalSymIntArrayRef(*bias_sizes)
                                            : at::OptionalSymIntArrayRef(std::nullopt);
  return at::convolution_backward_symint(grad_output, input, weight, sizes, stride, padding,
                                         dilation, transposed, output_padding, groups, output_mask);
}

// As the CPU's kernel, drawing from the device's generator.
std::tuple<at::Tensor, at::Tensor> nativeDropout(const at::Tensor& input, double p,
                                                 std::optional<bool> train) {
  if (input.numel() == 0) {
    return {input.clone(), at::empty_like(input)};
  }
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const double keep = 1 - p;
  auto mask = at::empty_like(input, input.options().dtype(at::kBool))
                  .bernoulli_(keep, cpuGenerator(std::nullopt, kernelDevice));
  return {input.mul(mask).mul_(keep == 0 ? 0. : 1 / keep), mask};
}

// Accelerators count integers too, which libraries rely on; the CPU's kernel takes floats only.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min,
                 const at::Scalar& max) {
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return at::histc(self, bins, min, max);
  }
  return at::histc(self.to(at::kDouble), bins, min, max).to(self.scalar_type());
}

// A CPU tensor of the same metadata without memory, for a decision that reads metadata only. The
// tensors may be fake ones, traced with sizes that are symbols.
at::Tensor shellOf(const at::Tensor& tensor) {
  static const auto* nothing = new c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                                c10::DataPtr(nullptr, c10::kCPU), nullptr, false);
  auto shell = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(*nothing), kCpuKernel, tensor.dtype());
  shell.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sym_sizes(), tensor.sym_strides(),
                                                     std::nullopt);
  return shell;
}

}  // namespace

int64_t chooseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                        std::optional<double> scale, bool enable_gqa) {
  // The fused kernel has no gradient for the mask, and an alias cannot tell that one is wanted.
  if (mask.has_value() && mask->requires_grad()) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  const auto mask_shell =
      mask.has_value() ? std::optional<at::Tensor>(shellOf(*mask)) : std::nullopt;
  return at::_ops::_fused_sdp_choice::redispatch(kCpuKernel, shellOf(query), shellOf(key),
                                                 shellOf(value), mask_shell, dropout, is_causal,
                                                 scale, enable_gqa);
}

// PyTorch takes a fused kernel on accelerators, which scales by another route than the CPU's
// unfused one and differs in the last bit; here the CPU's route is taken.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  // What is traced comes first: its sizes may be symbols.
  const bool traced = partsAreWatched() || input.key_set().has(c10::DispatchKey::Python);
  const bool fused = train && p > 0 && p < 1;
  if (traced || !fused || input.numel() == 0) {
    return at::native::dropout(input, p, train);
  }
  auto noise = at::empty_like(input);
  noise.bernoulli_(1 - p);
  noise.div_(1 - p);
  return input * noise;
}

void registerComputedKernels(Registrar& registrar) {
  namespace ops = at::_ops;
  registerComputedKernel<ops::convolution_overrideable, &convolutionOverrideable>(registrar);
  registerComputedKernel<ops::convolution_backward_overrideable, &convolutionBackwardOverrideable>(
      registrar);
  registerComputedKernel<ops::native_dropout, &nativeDropout>(registrar);
  registerComputedKernel<ops::histc, &histc>(registrar);
  registrar.impl<&chooseAttention>("aten::_fused_sdp_choice");
}

}  // namespace torchneuron
