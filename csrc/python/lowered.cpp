// The Python function that runs an eager operator as a program, behind aten/lowered.h.
#include "aten/lowered.h"

#include "python/callbacks.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace py = pybind11;

namespace torchneuron {
namespace {

py::object& runCallback() {
  static auto* callback = new py::object;  // leaked: called until the process ends
  return *callback;
}

std::optional<torch::jit::Stack> runLowered(const OpRecord& op, const c10::FunctionSchema& schema,
                                            at::ArrayRef<c10::IValue> arguments) {
  py::gil_scoped_acquire lock;
  try {
    py::list given;
    for (const auto& argument : arguments) {
      given.append(torch::jit::toPyObject(argument));
    }
    const py::object made = runCallback()(op.name, given);
    if (made.is_none()) {
      return std::nullopt;
    }
    torch::jit::Stack results;
    size_t place = 0;
    for (const auto& each : py::reinterpret_borrow<py::list>(made)) {
      results.push_back(torch::jit::toIValue(each, schema.returns()[place++].type()));
    }
    return results;
  } catch (py::error_already_set& error) {
    throwPythonError(error);
  }
}

}  // namespace

void bindLowered(py::module_& module) {
  module.def(
      "set_lowered",
      [](py::object run) {
        runCallback() = std::move(run);
        setLoweredRunner(&runLowered);
      },
      py::arg("run"));
}

}  // namespace torchneuron
