// Autocast follows CUDA's lists: what runs in the lower precision, what in float32, what takes
// a float32 output option, and what promotes to the widest input.
#include "aten/kernels.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

namespace torchneuron {
namespace {

// The macros of ATen/autocast_mode.h find the library under this name.
void registerLists(torch::Library& m) {
  using namespace at;
  using namespace at::autocast;
#define NEURON_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NEURON_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NEURON_FP32_OPTION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NEURON_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER)
  AT_FORALL_FP32(NEURON_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_OPTION)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
#undef NEURON_LOWER
#undef NEURON_FP32
#undef NEURON_FP32_OPTION
#undef NEURON_PROMOTE
}

at::Tensor refuseBinaryCrossEntropy(const at::Tensor& /*self*/, const at::Tensor& /*target*/,
                                    const std::optional<at::Tensor>& /*weight*/,
                                    int64_t /*reduction*/) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: "
      "their input is already a probability, and its logarithm overflows in half precision\n\n"
      "hint: use binary_cross_entropy_with_logits, or leave the autocast region for the loss");
}

}  // namespace

void registerAutocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  // Leaked: a library's registrations end with it. PyTorch's macros for the lists want one.
  static auto* lists = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  registerLists(*lists);
  lists->impl("binary_cross_entropy", TORCH_FN(refuseBinaryCrossEntropy));
  Registrar(kKey).fallback(c10::KernelFunction::makeFallthrough());
}

}  // namespace torchneuron
