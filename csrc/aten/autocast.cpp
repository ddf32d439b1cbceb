// Autocast follows CUDA's lists: what runs in the lower precision, what in float32, what takes
// a float32 output option, and what promotes to the widest input.
#include "aten/kernels.h"
#include "aten/registrar.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

namespace torchneuron {
namespace {

template <at::autocast::CastPolicy policy, class Op>
void castArguments(Registrar& registrar) {
  using Signature = typename Op::schema;
  using Wrapped = at::autocast::WrapFunction<policy, c10::DeviceType::PrivateUse1, Signature,
                                             Signature, &Op::call>;
  // At run time: operators that share a signature then share the code that unpacks a stack.
  registrar.impl({Op::name, Op::overload_name},
                 c10::KernelFunction::makeFromUnboxedRuntimeFunction(&Wrapped::type::call));
}

void registerLists(Registrar& registrar) {
#define NEURON_CAST(POLICY, OP, ...)                                                         \
  castArguments<at::autocast::CastPolicy::POLICY, at::_ops::OP##__VA_OPT__(_##__VA_ARGS__)>( \
      registrar);
#define NEURON_LOWER(...) NEURON_CAST(lower_precision_fp, __VA_ARGS__)
#define NEURON_FP32(...) NEURON_CAST(fp32, __VA_ARGS__)
#define NEURON_FP32_OPTION(...) NEURON_CAST(fp32_set_opt_dtype, __VA_ARGS__)
#define NEURON_PROMOTE(...) NEURON_CAST(promote, __VA_ARGS__)
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER)
  AT_FORALL_FP32(NEURON_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_OPTION)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
#undef NEURON_CAST
#undef NEURON_LOWER
#undef NEURON_FP32
#undef NEURON_FP32_OPTION
#undef NEURON_PROMOTE
}

// Three overloads of norm, which take one argument more than they are given.
void registerNorms(torch::Library& m) {  // the macro finds it under this name
  using namespace at;
  using namespace at::autocast;
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
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
  // Leaked: a library's registrations end with it.
  registerNorms(*new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__));
  Registrar registrar(kKey);
  registerLists(registrar);
  registrar.impl<&refuseBinaryCrossEntropy>("aten::binary_cross_entropy");
  registrar.fallback(c10::KernelFunction::makeFallthrough());
}

}  // namespace torchneuron
