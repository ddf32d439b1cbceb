// The alias kernel over the dispatcher's stack: for every op without an unboxed one, and for the
// operators of other libraries.
#pragma once

#include <torch/library.h>

namespace torchneuron {

// The boxed alias kernel of one operator.
torch::CppFunction boxedAliasKernel(const c10::OperatorHandle& op);
// For operators registered after us that have a CPU kernel only.
torch::CppFunction boxedFallback();

} // namespace torchneuron
