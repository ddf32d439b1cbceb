// What the C++ core asks of Python: the configuration, the user's source line, and the policy
// on refused dtypes.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torchneuron {

void bindCallbacks(pybind11::module_& module);

}  // namespace torchneuron
