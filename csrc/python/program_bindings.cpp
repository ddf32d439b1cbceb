// Compiled programs: their launch, and the kernels that they call.
#include "python/program_bindings.h"

#include "programs/host_calls.h"
#include "programs/launch.h"

#include <torch/csrc/Exceptions.h>

namespace py = pybind11;

namespace torchneuron {

void bindPrograms(py::module_& module) {
  py::class_<Launch>(module, "Launch")
      .def(py::init([](py::object import_buffer, py::object execute, py::object export_array,
                       size_t num_inputs, size_t nbytes) {
             return std::make_unique<Launch>(
                 Runtime{std::move(import_buffer), std::move(execute), std::move(export_array)},
                 num_inputs, nbytes);
           }),
           py::arg("import_buffer"), py::arg("execute"), py::arg("export_array"),
           py::arg("num_inputs"), py::arg("nbytes"))
      .def("__call__",
           torch::wrap_pybind_function(
               [](Launch& self, int device, const std::vector<at::Tensor>& inputs) {
                 return self.run(static_cast<c10::DeviceIndex>(device), inputs);
               }),
           py::arg("device"), py::arg("inputs"));
  module.def("host_calls", []() {
    std::vector<std::pair<std::string, py::capsule>> calls;
    for (const auto& [name, handler] : hostCalls()) {
      calls.emplace_back(name, py::capsule(handler));
    }
    return calls;
  });
}

}  // namespace torchneuron
