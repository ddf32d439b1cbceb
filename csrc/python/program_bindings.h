#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torchneuron {

// What launching a compiled program needs: inputs out, outputs in, memory charged.
void bindPrograms(pybind11::module_& module);

}  // namespace torchneuron
