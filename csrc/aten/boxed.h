// The alias kernel over the dispatcher's stack: for every op without an unboxed one, and for the
// operators of other libraries.
#pragma once

#include <torch/library.h>

namespace torchneuron {

// The boxed alias kernel of one operator: its kernel for `kernel` (CPU, QuantizedCPU,
// NestedTensorCPU) on aliases.
torch::CppFunction boxedAliasKernel(const c10::OperatorHandle& op, c10::DispatchKey kernel);
// For operators registered after us that have a CPU kernel only.
torch::CppFunction boxedFallback();
// For quantized and nested tensors: the kernel that the CPU has for them.
torch::CppFunction boxedQuantizedFallback();
torch::CppFunction boxedNestedFallback();

} // namespace torchneuron
