// Every registration with PyTorch's dispatcher. Names only; the kernels are elsewhere.
#include "aten/boxed.h"
#include "aten/kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <torch/library.h>

#include <string_view>

namespace torchneuron {
namespace {

// Ops without a CPU kernel of their own that are worth one crossing as a whole: composites that
// would otherwise cross once per step.
bool isWholeComposite(std::string_view name) {
  for (const char* family : {"aten::_foreach_", "aten::_fused_"}) {
    if (name.rfind(family, 0) == 0) {
      return true;
    }
  }
  return false;
}

// Everything of aten that has a kernel for `cpu_key` and none for `neuron_key` yet.
void registerRemaining(
    torch::Library& library,
    c10::DispatchKey cpu_key,
    c10::DispatchKey neuron_key) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findOp(name);
    if (!op.has_value() || !op->hasSchema() || op->hasKernelForDispatchKey(neuron_key)) {
      continue;
    }
    if (op->hasKernelForDispatchKey(cpu_key) ||
        (isWholeComposite(name.name) && cpu_key == c10::DispatchKey::CPU &&
         op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))) {
      library.impl(toString(name).c_str(), boxedAliasKernel(*op, cpu_key));
    }
  }
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(emptyStrided));

  m.impl("view", TORCH_FN(view));
  m.impl("as_strided", TORCH_FN(asStrided));
  m.impl("_reshape_alias", TORCH_FN(reshapeAlias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("view_as_real", TORCH_FN(viewAsReal));
  m.impl("view_as_complex", TORCH_FN(viewAsComplex));
  m.impl("set_", TORCH_FN(setToEmpty));
  m.impl("set_.source_Tensor", TORCH_FN(setToTensor));
  m.impl("set_.source_Storage", TORCH_FN(setToStorage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(setToStorageRange));
  m.impl("resize_", TORCH_FN(resize));

  m.impl("copy_", TORCH_FN(copy));
  m.impl("_copy_from", TORCH_FN(copyFrom));
  m.impl("_copy_from_and_resize", TORCH_FN(copyFromAndResize));
  m.impl("_local_scalar_dense", TORCH_FN(localScalar));
  m.impl("record_stream", TORCH_FN(recordStream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(hasCompatibleImpl));

  // They would make a compressed sparse tensor of neuron members that fails at its first use.
  for (const char* name :
       {"sparse_compressed_tensor.comp_plain_value_size",
        "sparse_compressed_tensor.comp_plain_value",
        "_sparse_compressed_tensor_unsafe"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuseLayout>());
  }

  registerComputedKernels(m);
  registerRecurrentKernels(m);
  registerHotPointwise(m);
  registerHotReductions(m);
  registerHotLayers(m);
  registerHotLists(m);
  registerRemaining(m, c10::DispatchKey::CPU, c10::DispatchKey::PrivateUse1);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(boxedFallback()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(boxedQuantizedFallback()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuseLayout>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuseLayout>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(boxedNestedFallback()); }
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  // Their results are the tensor's own bookkeeping, which lives on the CPU on every device.
  m.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
  m.impl("_nested_tensor_strides", TORCH_FN(at::native::_nested_tensor_strides));
  m.impl("_nested_tensor_storage_offsets", TORCH_FN(at::native::_nested_tensor_storage_offsets));
  registerRemaining(
      m, c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::NestedTensorPrivateUse1);
}
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  registerRemaining(m, c10::DispatchKey::QuantizedCPU, c10::DispatchKey::QuantizedPrivateUse1);
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) { registerAutocast(m); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

} // namespace torchneuron

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torchneuron::chooseAttention)
} // namespace at::native
