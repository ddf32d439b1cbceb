#pragma once

#include <utility>
#include <vector>

namespace torchneuron {

// Name and XLA FFI handler (XLA_FFI_Handler*) of each computation that compiled programs leave to
// PyTorch's CPU kernels.
std::vector<std::pair<const char*, void*>> hostCalls();

}  // namespace torchneuron
