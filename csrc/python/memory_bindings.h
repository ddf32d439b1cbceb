#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torchneuron {

void bindMemory(pybind11::module_& module);

}  // namespace torchneuron
