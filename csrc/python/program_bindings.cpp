// Tensors of the device as DLPack for a compiled program, and a program's outputs as tensors of
// the device: one call for all of a launch's tensors each way, no copy.
#include "python/program_bindings.h"

#include "core/allocator.h"
#include "core/pool.h"
#include "core/residency.h"
#include "programs/host_calls.h"

#include <ATen/DLConvertor.h>
#include <torch/csrc/Exceptions.h>

#include <memory>
#include <vector>

namespace py = pybind11;

namespace torchneuron {
namespace {

constexpr const char* kCapsule = "dltensor";
constexpr const char* kUsedCapsule = "used_dltensor";

// A row-major view of a tensor's memory that keeps the tensor alive.
struct Exported {
  at::Tensor tensor;
  DLManagedTensor managed;
};

void deleteExported(DLManagedTensor* managed) {
  delete static_cast<Exported*>(managed->manager_ctx);
}

void deleteCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsule) != 0) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
    managed->deleter(managed);
  }
}

py::object exportTensor(const at::Tensor& given) {
  auto exported = std::make_unique<Exported>();
  // Another TensorImpl over the same memory: one that is kept with an import must not keep the
  // parameter's Python object alive, which the import waits for to die.
  exported->tensor =
      at::Tensor(given.contiguous().unsafeGetTensorImpl()->shallow_copy_and_detach(0, false));
  const auto& tensor = exported->tensor;
  if (tensor.device().type() == c10::kPrivateUse1 && tensor.numel() > 0) {
    hostAccess(blockOf(tensor.storage().mutable_data()), Access::kRead);
  }
  auto& view = exported->managed.dl_tensor;
  view.data = tensor.data_ptr();
  view.device = {DLDeviceType::kDLCPU, 0};
  view.ndim = static_cast<int32_t>(tensor.dim());
  view.dtype = at::getDLDataType(tensor);
  view.shape = const_cast<int64_t*>(tensor.sizes().data());
  view.strides = nullptr;
  view.byte_offset = 0;
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = &deleteExported;
  PyObject* capsule = PyCapsule_New(&exported->managed, kCapsule, &deleteCapsule);
  if (capsule == nullptr) {
    throw py::error_already_set();
  }
  exported.release();  // the capsule's, and then whoever's takes the tensor out of it
  return py::reinterpret_steal<py::object>(capsule);
}

void releaseOutput(void* context) {
  auto* managed = static_cast<DLManagedTensor*>(context);
  if (managed->deleter != nullptr) {
    managed->deleter(managed);
  }
}

at::Tensor adoptOutput(const py::handle& capsule, c10::DeviceIndex device) {
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  if (managed == nullptr) {
    throw py::error_already_set();
  }
  PyCapsule_SetName(capsule.ptr(), kUsedCapsule);
  const auto& view = managed->dl_tensor;
  // Copied: an empty output is released as soon as it is adopted.
  const at::DimVector sizes(view.shape, view.shape + view.ndim);
  const auto dtype = c10::scalarTypeToTypeMeta(at::toScalarType(view.dtype));
  const size_t nbytes = c10::multiply_integers(sizes) * dtype.itemsize();
  auto* data = static_cast<char*>(view.data) + view.byte_offset;
  auto memory =
      devicePool(device).adopt(nbytes > 0 ? data : nullptr, nbytes, &releaseOutput, managed);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), nbytes, std::move(memory), neuronAllocator(),
                   /*resizable=*/true),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

std::vector<py::object> exportTensors(const std::vector<at::Tensor>& tensors) {
  std::vector<py::object> capsules;
  capsules.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    capsules.push_back(exportTensor(tensor));
  }
  return capsules;
}

std::vector<at::Tensor> adoptOutputs(const std::vector<py::object>& capsules, int device) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(capsules.size());
  for (const auto& capsule : capsules) {
    tensors.push_back(adoptOutput(capsule, static_cast<c10::DeviceIndex>(device)));
  }
  return tensors;
}

// Counts `nbytes` as used until the answer is dropped; the memory itself is the program's.
class Charge {
 public:
  Charge(int device, size_t nbytes) {
    if (nbytes > 0) {
      auto token = std::make_unique<char>();
      void* address = token.get();
      memory_ = devicePool(static_cast<c10::DeviceIndex>(device))
                    .adopt(
                        address, nbytes, [](void* ctx) { delete static_cast<char*>(ctx); },
                        token.release());
    }
  }
  void release() { memory_.clear(); }

 private:
  c10::DataPtr memory_;
};

}  // namespace

void bindPrograms(py::module_& module) {
  module.def("export_tensors", torch::wrap_pybind_function(exportTensors), py::arg("tensors"));
  module.def("adopt_outputs", torch::wrap_pybind_function(adoptOutputs), py::arg("capsules"),
             py::arg("device"));
  module.def("host_calls", []() {
    std::vector<std::pair<std::string, py::capsule>> calls;
    for (const auto& [name, handler] : hostCalls()) {
      calls.emplace_back(name, py::capsule(handler));
    }
    return calls;
  });
  py::class_<Charge>(module, "Charge")
      .def(py::init(
               [](int device, size_t nbytes) { return std::make_unique<Charge>(device, nbytes); }),
           py::arg("device"), py::arg("nbytes"))
      .def("release", &Charge::release);
}

}  // namespace torchneuron
