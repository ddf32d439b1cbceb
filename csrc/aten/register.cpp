// Every registration with PyTorch's dispatcher. Names only; the kernels are elsewhere.
#include "aten/boxed.h"
#include "aten/kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
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

// Everything of aten that has a CPU kernel and no neuron one yet.
void registerRemaining(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findOp(name);
    if (!op.has_value() || !op->hasSchema() ||
        op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        (isWholeComposite(name.name) &&
         op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))) {
      library.impl(toString(name).c_str(), boxedAliasKernel(*op));
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

  registerComputedKernels(m);
  registerRecurrentKernels(m);
  registerHotPointwise(m);
  registerHotReductions(m);
  registerHotLayers(m);
  registerHotLists(m);
  registerRemaining(m);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(boxedFallback()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(boxedFallback()); }
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuseLayout>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuseLayout>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuseLayout>());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) { registerAutocast(m); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

} // namespace torchneuron

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torchneuron::chooseAttention)
} // namespace at::native
