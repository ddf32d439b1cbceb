#include "programs/launch.h"

#include "core/allocator.h"
#include "core/pool.h"
#include "core/residency.h"

#include <ATen/dlpack.h>

#include <cstring>
#include <memory>

namespace py = pybind11;

// Of ATen/DLConvertor.h, which includes all of ATen.
namespace at {
TORCH_API DLDataType getDLDataType(const Tensor& tensor);
}  // namespace at

namespace torchneuron {
namespace {

constexpr const char* kCapsule = "dltensor";
// XLA takes memory as it is only from here on, and copies the rest.
constexpr uintptr_t kAlignment = 64;
// The addresses that one input takes turns at: the pool gives a step the blocks of the last one.
constexpr size_t kMaxImports = 8;
// Up to here an output is copied into a block of the pool, which costs less than to adopt it.
constexpr size_t kMaxCopiedBytes = 16384;

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

void releaseArray(void* context) {
  if (Py_IsInitialized() != 0) {
    const py::gil_scoped_acquire gil;
    Py_DECREF(static_cast<PyObject*>(context));
  }
}

py::object owned(PyObject* made) {
  if (made == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(made);
}

// Counts bytes of the device as used for as long as it lives; the memory is the program's.
class Charge {
 public:
  Charge(Pool& pool, size_t nbytes) : pool_(pool), nbytes_(nbytes) {
    if (nbytes_ > 0) {
      pool_.charge(nbytes_);
    }
  }
  ~Charge() {
    if (nbytes_ > 0) {
      pool_.discharge(nbytes_);
    }
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  Pool& pool_;
  size_t nbytes_;
};

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

at::Tensor Launch::tensorOf(PyObject* array, const Output& output) {
  c10::DataPtr memory;
  if (output.nbytes > 0) {
    const auto address = owned(PyObject_CallOneArg(runtime_.address.ptr(), array));
    void* data = PyLong_AsVoidPtr(address.ptr());
    if (output.nbytes <= kMaxCopiedBytes) {
      memory = neuronAllocator()->allocateOn(output.nbytes, device_);
      std::memcpy(memory.get(), data, output.nbytes);
    } else {
      memory = devicePool(device_).adopt(data, output.nbytes, &releaseArray, Py_NewRef(array));
    }
  } else {
    memory = neuronAllocator()->allocateOn(0, device_);
  }
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), output.nbytes, std::move(memory),
                   neuronAllocator(), /*resizable=*/true),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), output.dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(output.sizes, output.strides);
  return tensor;
}

std::vector<at::Tensor> Launch::run(const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(inputs.size() == imports_.size(), "a program of ", imports_.size(), " inputs got ",
              inputs.size());
  std::vector<at::Tensor> held;  // alive until the program has run
  held.reserve(inputs.size());
  py::list buffers(inputs.size());
  for (const auto place : c10::irange(inputs.size())) {
    held.push_back(plain(inputs[place]));
    buffers[place] = bufferOf(held.back(), imports_[place]);
  }
  py::object arrays;
  {
    const Charge charge(devicePool(device_), nbytes_);  // outputs are counted one by one below
    const auto results = owned(PyObject_CallOneArg(runtime_.execute.ptr(), buffers.ptr()));
    arrays = owned(PyObject_CallFunctionObjArgs(runtime_.take.ptr(), results.ptr(),
                                                runtime_.handlers.ptr(), nullptr));
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (const auto place : c10::irange(outputs_.size())) {
    auto array = py::reinterpret_borrow<py::object>(PyList_GetItem(arrays.ptr(), place));
    outputs.push_back(tensorOf(array.ptr(), outputs_[place]));
  }
  return outputs;
}

}  // namespace torchneuron
