// One launch of a compiled program: the inputs' memory to the program, its outputs to the pool.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

namespace torchneuron {

// What a launch calls of the runtime.
struct Runtime {
  pybind11::object import_buffer;  // DLPack capsule -> buffer, over its memory or a copy
  pybind11::object execute;        // list of buffers -> results
  pybind11::object take;           // results, `handlers` -> list of arrays
  pybind11::object handlers;       // what `take` wants
  pybind11::object address;        // array -> where its memory is; the array owns it
};

// An output as the caller gets it: a dense tensor, whose dimensions may lie in any order.
struct Output {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  caffe2::TypeMeta dtype;
  size_t nbytes;
};

class Launch {
 public:
  // `nbytes` are counted as used while the program runs.
  Launch(Runtime runtime, c10::DeviceIndex device, size_t num_inputs, std::vector<Output> outputs,
         size_t nbytes)
      : runtime_(std::move(runtime)),
        device_(device),
        outputs_(std::move(outputs)),
        nbytes_(nbytes),
        imports_(num_inputs) {}

  // The inputs' shapes and dtypes are the program's; what is not row-major is copied. Throws
  // c10::OutOfMemoryError before the start where the program exceeds the core's memory.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  // Imports of one input by address. They own no memory: only the address says whose they are,
  // so they serve whatever tensor is there, and the tensors of a launch outlive it.
  using Imports = std::vector<std::pair<const void*, pybind11::object>>;

  pybind11::object bufferOf(const at::Tensor& input, Imports& imports);
  at::Tensor tensorOf(PyObject* array, const Output& output);

  Runtime runtime_;
  c10::DeviceIndex device_;
  std::vector<Output> outputs_;
  size_t nbytes_;
  std::vector<Imports> imports_;
};

}  // namespace torchneuron
