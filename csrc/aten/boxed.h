// The alias kernel over the dispatcher's stack: for every op without an unboxed one, and for the
// operators of other libraries.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torchneuron {

// The boxed alias kernel of one operator: its kernel for `kernel` (CPU, QuantizedCPU,
// NestedTensorCPU) on aliases.
c10::KernelFunction boxedAliasKernel(const c10::OperatorHandle& op, c10::DispatchKey kernel);
// For operators that have a kernel for `kernel` (CPU, SparseCPU, SparseCsrCPU) and none of ours,
// those of other libraries among them.
template <c10::DispatchKey kernel>
c10::KernelFunction boxedFallback();

}  // namespace torchneuron
