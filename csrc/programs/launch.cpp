#include "programs/launch.h"

#include "core/allocator.h"
#include "core/pool.h"
#include "core/residency.h"

#include <ATen/dlpack.h>

#include <memory>

namespace py = pybind11;

// Of ATen/DLConvertor.h, which includes all of ATen.
namespace at {
TORCH_API ScalarType toScalarType(const DLDataType& dtype);
TORCH_API DLDataType getDLDataType(const Tensor& tensor);
}  // namespace at

namespace torchneuron {
namespace {

constexpr const char* kCapsule = "dltensor";
constexpr const char* kUsedCapsule = "used_dltensor";
// XLA takes memory as it is only from here on, and copies the rest.
constexpr uintptr_t kAlignment = 64;
// The addresses that one input takes turns at: the pool gives a step the blocks of the last one.
constexpr size_t kMaxImports = 8;

// A row-major view of memory that it does not own.
struct View {
  at::DimVector sizes;
  DLManagedTensor managed{};
};

void deleteView(DLManagedTensor* managed) {
  delete static_cast<View*>(managed->manager_ctx);
}

void deleteCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsule) != 0) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
    managed->deleter(managed);
  }
}

py::object capsuleOf(const at::Tensor& tensor, const void* data) {
  auto view = std::make_unique<View>();
  view->sizes = at::DimVector(tensor.sizes());
  auto& described = view->managed.dl_tensor;
  described.data = const_cast<void*>(data);
  described.device = {DLDeviceType::kDLCPU, 0};
  described.ndim = static_cast<int32_t>(tensor.dim());
  described.dtype = at::getDLDataType(tensor);
  described.shape = view->sizes.data();
  view->managed.manager_ctx = view.get();
  view->managed.deleter = &deleteView;
  PyObject* capsule = PyCapsule_New(&view->managed, kCapsule, &deleteCapsule);
  if (capsule == nullptr) {
    throw py::error_already_set();
  }
  view.release();  // the capsule's, and then whoever's takes the tensor out of it
  return py::reinterpret_steal<py::object>(capsule);
}

// Asked first: a call of PyTorch that does nothing still takes longer than all the rest here.
at::Tensor plain(const at::Tensor& given) {
  if (!given.is_conj() && !given.is_neg() && given.is_contiguous()) {
    return given;
  }
  return given.resolve_conj().resolve_neg().contiguous();
}

void releaseOutput(void* context) {
  auto* managed = static_cast<DLManagedTensor*>(context);
  if (managed->deleter != nullptr) {
    managed->deleter(managed);
  }
}

at::Tensor adopt(const py::handle& capsule, c10::DeviceIndex device) {
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

// Counts `nbytes` as used until the answer is dropped; the memory itself is the program's.
c10::DataPtr charge(c10::DeviceIndex device, size_t nbytes) {
  if (nbytes == 0) {
    return {};
  }
  auto token = std::make_unique<char>();
  void* address = token.get();
  return devicePool(device).adopt(
      address, nbytes, [](void* ctx) { delete static_cast<char*>(ctx); }, token.release());
}

}  // namespace

py::object Launch::bufferOf(const at::Tensor& input, Imports& imports) {
  if (input.device().type() == c10::kPrivateUse1 && input.numel() > 0) {
    hostAccess(blockOf(input.storage().mutable_data()), Access::kRead);
  }
  const void* data = input.const_data_ptr();
  for (const auto& [address, buffer] : imports) {
    if (address == data) {
      return buffer;
    }
  }
  auto buffer = runtime_.import_buffer(capsuleOf(input, data));
  if (data != nullptr && reinterpret_cast<uintptr_t>(data) % kAlignment == 0) {
    if (imports.size() == kMaxImports) {
      imports.erase(imports.begin());
    }
    imports.emplace_back(data, buffer);
  }
  return buffer;
}

std::vector<at::Tensor> Launch::run(c10::DeviceIndex device,
                                    const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(inputs.size() == imports_.size(), "a program of ", imports_.size(), " inputs got ",
              inputs.size());
  std::vector<at::Tensor> held;  // alive until the program has run
  held.reserve(inputs.size());
  py::list buffers(inputs.size());
  for (const auto place : c10::irange(inputs.size())) {
    held.push_back(plain(inputs[place]));
    buffers[place] = bufferOf(held.back(), imports_[place]);
  }
  auto charged = charge(device, nbytes_);
  const py::list arrays = runtime_.execute(buffers);
  charged.clear();  // the outputs are counted one by one from here on
  std::vector<at::Tensor> outputs;
  outputs.reserve(arrays.size());
  for (const auto& array : arrays) {
    outputs.push_back(adopt(runtime_.export_array(array, py::none()), device));
  }
  return outputs;
}

}  // namespace torchneuron
