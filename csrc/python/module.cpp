// torchneuron._C: what the Python layers see of the C++ core. Its stub is src/torchneuron/_C.pyi.
#include "aten/kernels.h"
#include "aten/twin.h"
#include "core/allocator.h"
#include "core/cpu_allocator.h"
#include "core/device.h"
#include "core/generator.h"
#include "core/hooks.h"
#include "core/op_record.h"
#include "core/pinned.h"
#include "core/trace.h"
#include "programs/host_calls.h"
#include "programs/launch.h"
#include "python/callbacks.h"
#include "python/memory_bindings.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace torchneuron {
namespace {

// Everything that torch finds by lookup; the guard registers itself when the library is loaded.
void install() {
  c10::SetAllocator(c10::kPrivateUse1, neuronAllocator());
  installCpuAllocator();
  installPinnedAllocator();
  installTwinHooks();
  registerHooks();
  registerFirstKernels();
  setFirstUse(&registerKernels);
}

void bindDevice(py::module_& module) {
  module.def("is_configured", &isConfigured);
  module.def("configure", torch::wrap_pybind_function(configure));
  module.def("device_count", []() { return static_cast<int>(deviceCount()); });
  module.def("current_device", torch::wrap_pybind_function([]() {
               configure();
               return static_cast<int>(currentDevice());
             }));
  module.def("set_device", torch::wrap_pybind_function([](int index) {
               setCurrentDevice(static_cast<c10::DeviceIndex>(index));
             }),
             py::arg("index"));
  module.def("exchange_device", torch::wrap_pybind_function([](int index) {
               const int previous = currentDevice();
               setCurrentDevice(static_cast<c10::DeviceIndex>(index));
               return previous;
             }),
             py::arg("index"));
  module.def(
      "maybe_exchange_device",
      [](int index) {
        const int previous = currentDevice();
        uncheckedSetCurrentDevice(static_cast<c10::DeviceIndex>(index));
        return previous;
      },
      py::arg("index"));
  module.def("enter_thread", &enterThread);
}

using OutputSpec = std::tuple<std::vector<int64_t>, std::vector<int64_t>, c10::ScalarType>;

std::unique_ptr<Launch> makeLaunch(const std::array<py::object, 5>& runtime, int device,
                                   size_t num_inputs, std::vector<OutputSpec> specs,
                                   size_t nbytes) {
  std::vector<Output> outputs;
  for (auto& [sizes, strides, dtype] : specs) {
    const auto type = c10::scalarTypeToTypeMeta(dtype);
    const size_t output_bytes = c10::multiply_integers(sizes) * type.itemsize();
    outputs.push_back({std::move(sizes), std::move(strides), type, output_bytes});
  }
  return std::make_unique<Launch>(
      Runtime{runtime[0], runtime[1], runtime[2], runtime[3], runtime[4]},
      static_cast<c10::DeviceIndex>(device), num_inputs, std::move(outputs), nbytes);
}

// Compiled programs: their launch, and the kernels that they call.
void bindPrograms(py::module_& module) {
  py::class_<Launch>(module, "Launch")
      .def(py::init(&makeLaunch), py::arg("runtime"), py::arg("device"), py::arg("num_inputs"),
           py::arg("outputs"), py::arg("nbytes"))
      .def("__call__", torch::wrap_pybind_function(&Launch::run), py::arg("inputs"));
  module.def("host_calls", []() {
    std::vector<std::pair<std::string, py::capsule>> calls;
    for (const auto& [name, handler] : hostCalls()) {
      calls.emplace_back(name, py::capsule(handler));
    }
    return calls;
  });
}

void bindRandom(py::module_& module) {
  module.def("default_generator", torch::wrap_pybind_function([](int device) {
               const auto& generator = defaultGenerator(static_cast<c10::DeviceIndex>(device));
               return py::reinterpret_steal<py::object>(THPGenerator_Wrap(generator));
             }),
             py::arg("device"));
  module.def("manual_seed_all", torch::wrap_pybind_function(seedAllGenerators), py::arg("seed"));
}

py::object dtypeObject(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Undefined) {
    return py::none();
  }
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype)));
}

py::dict recordDict(const TraceRecord& record) {
  static constexpr const char* kKinds[] = {"executed", "transfer", "host_sync"};
  py::dict result;
  result["kind"] = kKinds[static_cast<int>(record.kind)];
  result["op"] = record.op;
  const auto dtype = dtypeObject(record.dtype);
  result["dtype"] = dtype.is_none() ? py::str("") : py::str(dtype).attr("replace")("torch.", "");
  result["direction"] = record.direction;
  result["file"] = record.where.file;
  result["line"] = record.where.line;
  result["count"] = record.count;
  result["bytes"] = record.bytes;
  return result;
}

std::map<std::string, uint64_t> counterValues() {
  std::map<std::string, uint64_t> values;
  auto& all = counters();
  for (int i = 0; i < 3; ++i) {
    const std::string name = kDirectionNames[i];
    values[name + ".count"] = all.transfers[i].count;
    values[name + ".bytes"] = all.transfers[i].bytes;
  }
  values["host_sync.count"] = all.host_syncs;
  return values;
}

void bindLedger(py::module_& module) {
  module.def("executed_ops", []() {
    py::dict result;
    for (const auto& [name, calls] : executedOps()) {
      result[py::str(name)] = calls;
    }
    return result;
  });
  module.def("clear_op_counts", []() {
    clearOpCounts();
    clearCounters();
  });
  module.def("counters", &counterValues);
  module.def("trace_start", &startTrace);
  module.def("trace_stop", []() {
    py::list result;
    for (const auto& record : stopTrace()) {
      result.append(recordDict(record));
    }
    return result;
  });
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  install();
  bindDevice(module);
  bindMemory(module);
  bindPrograms(module);
  bindRandom(module);
  bindLedger(module);
  bindCallbacks(module);
}

}  // namespace torchneuron
