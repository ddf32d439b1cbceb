// Every registration with PyTorch's dispatcher. Names and refusals; the kernels are elsewhere.
#include "aten/boxed.h"
#include "aten/kernels.h"
#include "aten/lowered.h"
#include "aten/registrar.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_quantized_native.h>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <string_view>

namespace torchneuron {
namespace {

// Registrations end with their handles, and ours last as long as the process.
void keep(c10::RegistrationHandleRAII handle) {
  static auto* handles = new std::deque<c10::RegistrationHandleRAII>;
  handles->push_back(std::move(handle));
}

bool isDevice(const c10::Argument& argument) {
  const auto& type = argument.type();
  const auto kind = type->kind() == c10::TypeKind::OptionalType
                        ? type->expectRef<c10::OptionalType>().getElementType()->kind()
                        : type->kind();
  return kind == c10::TypeKind::DeviceObjType;
}

// Composites that must see the neuron tensor itself: they make what is no view for autograd but
// shares memory, or speak of devices, storages or autograd.
constexpr std::string_view kNotWhole[] = {
    "aten::_unsafe_view",
    "aten::_lazy_clone",
    "aten::_fw_primal",
    "aten::_make_dual",
    "aten::_new_zeros_with_same_feature_meta",
    "aten::copy",
    "aten::detach_",
    "aten::lift",
    "aten::resize_as_",
    "aten::set",
};

// A composite that runs as one CPU kernel: one crossing instead of one per step, and the CPU's
// code where PyTorch's decides by device (dispatch stubs, lists of known devices). Its gradient
// is a formula of its own, so nothing is lost above it.
bool runsWhole(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
      op.hasTag(at::Tag::inplace_view) || op.hasTag(at::Tag::generated) ||
      op.hasTag(at::Tag::nondeterministic_seeded) ||  // they draw from a default generator
      std::find(std::begin(kNotWhole), std::end(kNotWhole), schema.name()) != std::end(kNotWhole)) {
    return false;
  }
  bool takes_tensor = false;
  for (const auto& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    if (isDevice(argument) || (alias != nullptr && !alias->isWrite())) {
      return false;  // a factory, or a view
    }
    takes_tensor |= argument.type()->isSubtypeOf(c10::TensorType::get()) ||
                    argument.type()->isSubtypeOf(c10::ListType::ofTensors());
  }
  return takes_tensor;
}

bool isComposite(const c10::OperatorHandle& op) {
  for (const auto key : {c10::DispatchKey::CompositeExplicitAutograd,
                         c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
                         c10::DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) {
      return true;
    }
  }
  return false;
}

// Our key for the tensors that `cpu_key` is for on the CPU.
struct Counterpart {
  Registrar* ours;
  c10::DispatchKey cpu_key;
  bool has_fallback;
};

// The fallback takes what only has a CPU kernel: a registration each would cost more than they
// cost. It cannot take what PyTorch would decompose on neuron.
bool wantsBoxed(const c10::OperatorHandle& op, const Counterpart& key) {
  if (key.ours->has(op)) {
    return false;
  }
  if (op.hasKernelForDispatchKey(key.cpu_key)) {
    return !key.has_fallback || isComposite(op);
  }
  return key.cpu_key == c10::DispatchKey::CPU && runsWhole(op);
}

// The boxed alias kernel for everything that is left and wants one.
void registerRemaining(std::initializer_list<Counterpart> counterparts) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = name.name.starts_with("aten::") ? dispatcher.findOp(name) : std::nullopt;
    if (!op.has_value() || !op->hasSchema()) {
      continue;
    }
    for (const auto& key : counterparts) {
      if (wantsBoxed(*op, key)) {
        key.ours->impl(name, boxedAliasKernel(*op, key.cpu_key));
      }
    }
  }
}

// Copies that would lose a quantizer.
void refuseQuantizedCopy(const c10::OperatorHandle& /*op*/, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "cannot copy a quantized tensor to, from or within the neuron device\n\n"
      "hint: copy tensor.dequantize(), and quantize the copy");
}

void registerFactories(Registrar& registrar) {
  registrar.impl<&empty>("aten::empty", "memory_format");
  registrar.impl<&emptyStrided>("aten::empty_strided");
}

void registerViews(Registrar& registrar) {
  registrar.impl<&view>("aten::view");
  registrar.impl<&asStrided>("aten::as_strided");
  registrar.impl<&reshapeAlias>("aten::_reshape_alias");
  registrar.impl<&unfold>("aten::unfold");
  registrar.impl<&viewAsReal>("aten::view_as_real");
  registrar.impl<&viewAsComplex>("aten::view_as_complex");
  registrar.impl<&setToEmpty>("aten::set_");
  registrar.impl<&setToTensor>("aten::set_", "source_Tensor");
  registrar.impl<&setToStorage>("aten::set_", "source_Storage");
  registrar.impl<&setToStorageRange>("aten::set_", "source_Storage_storage_offset");
  registrar.impl<&resize>("aten::resize_");
}

void registerCopies(Registrar& registrar) {
  registrar.impl<&copy>("aten::copy_");
  registrar.impl<&clone>("aten::clone");
  registrar.impl<&copyFrom>("aten::_copy_from");
  registrar.impl<&copyFromAndResize>("aten::_copy_from_and_resize");
  registrar.impl<&localScalar>("aten::_local_scalar_dense");
  registrar.impl<&recordStream>("aten::record_stream");
  registrar.impl<&hasCompatibleImpl>("aten::_has_compatible_shallow_copy_type");
}

// Their results are the nested tensor's own bookkeeping, which lives on the CPU on every device.
void registerNestedBookkeeping(Registrar& registrar) {
  registrar.impl<&at::native::_nested_tensor_size>("aten::_nested_tensor_size");
  registrar.impl<&at::native::_nested_tensor_strides>("aten::_nested_tensor_strides");
  registrar.impl<&at::native::_nested_tensor_storage_offsets>(
      "aten::_nested_tensor_storage_offsets");
}

// They make their result on the device that their arguments name, and copy memory with `copy_`: an
// alias would keep it where it is.
void registerMovesOfNested(Registrar& registrar) {
  registrar.impl<&at::native::_to_copy_nested>("aten::_to_copy");
  registrar.impl<&at::native::empty_like_nested>("aten::empty_like");
  registrar.impl<&at::native::copy_nested_>("aten::copy_");
}

}  // namespace

void Registrar::impl(c10::OperatorName name, c10::KernelFunction kernel) {
  keep(c10::Dispatcher::singleton().registerImpl(std::move(name), key_, std::move(kernel),
                                                 std::nullopt, nullptr, "torchneuron"));
}

void Registrar::fallback(c10::KernelFunction kernel) {
  keep(c10::Dispatcher::singleton().registerFallback(key_, std::move(kernel), "torchneuron"));
}

void registerFirstKernels() {
  Registrar dense(c10::DispatchKey::PrivateUse1);
  registerFactories(dense);
  dense.fallback(boxedFallback<c10::DispatchKey::CPU>());
  Registrar coo(c10::DispatchKey::SparsePrivateUse1);
  Registrar compressed(c10::DispatchKey::SparseCsrPrivateUse1);
  registerSparseFactories(coo, compressed);
}

void registerKernels() {
  Registrar dense(c10::DispatchKey::PrivateUse1);
  registerViews(dense);
  registerCopies(dense);
  registerComputedKernels(dense);
  registerRecurrentKernels(dense);
  registerRecurrentLayers(dense);
  if (loweredRunner() == nullptr) {  // which takes operators boxed
    registerHotPointwise(dense);
    registerHotReductions(dense);
    registerHotLayers(dense);
    registerHotToSparse(dense);
    dense.impl<&arange>("aten::arange", "start_step");
  }

  // With a kernel of its own below autograd a composite loses its formula, unless it has one here.
  Registrar autograd(c10::DispatchKey::AutogradPrivateUse1);
  registerRecurrentLayers(autograd);
  autograd.impl<&dropout>("aten::dropout");

  Registrar nested(c10::DispatchKey::NestedTensorPrivateUse1);
  registerNestedBookkeeping(nested);
  registerMovesOfNested(nested);

  Registrar quantized(c10::DispatchKey::QuantizedPrivateUse1);
  quantized.impl<&at::native::empty_quantized>("aten::empty_quantized");
  quantized.impl("aten::_copy_from", "",
                 c10::KernelFunction::makeFromBoxedFunction<&refuseQuantizedCopy>());

  Registrar coo(c10::DispatchKey::SparsePrivateUse1);
  registerCoo(coo);
  registerHotCoo(coo);
  coo.fallback(boxedFallback<c10::DispatchKey::SparseCPU>());
  Registrar compressed(c10::DispatchKey::SparseCsrPrivateUse1);
  registerCompressed(compressed);
  registerHotCompressed(compressed);
  compressed.fallback(boxedFallback<c10::DispatchKey::SparseCsrCPU>());

  registerRemaining({{&dense, c10::DispatchKey::CPU, true},
                     {&nested, c10::DispatchKey::NestedTensorCPU, false},
                     {&quantized, c10::DispatchKey::QuantizedCPU, false},
                     {&coo, c10::DispatchKey::SparseCPU, true},
                     {&compressed, c10::DispatchKey::SparseCsrCPU, true}});
  registerAutocast();
}

}  // namespace torchneuron

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torchneuron::chooseAttention)
}  // namespace at::native
