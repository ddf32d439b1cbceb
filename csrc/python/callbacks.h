// What the C++ core asks of Python: the configuration, the user's source line, the policy on
// refused dtypes, and eager operators as programs.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torchneuron {

void bindCallbacks(pybind11::module_& module);

// A Python error on its way through C++: torch's bindings restore it for the caller.
[[noreturn]] void throwPythonError(pybind11::error_already_set& error);

}  // namespace torchneuron
