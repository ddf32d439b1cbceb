// One launch of a compiled program: the inputs' memory to the program, its outputs to the pool.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

namespace torchneuron {

// The three functions of the runtime that a launch calls.
struct Runtime {
  pybind11::object import_buffer;  // DLPack capsule -> buffer, over its memory or a copy
  pybind11::object execute;        // list of buffers -> list of arrays
  pybind11::object export_array;   // array, None -> DLPack capsule
};

class Launch {
 public:
  // `nbytes` are counted as used while the program runs.
  Launch(Runtime runtime, size_t num_inputs, size_t nbytes)
      : runtime_(std::move(runtime)), nbytes_(nbytes), imports_(num_inputs) {}

  // The inputs' shapes and dtypes are the program's; what is not row-major is copied. Throws
  // c10::OutOfMemoryError before the start where the program exceeds the core's memory.
  std::vector<at::Tensor> run(c10::DeviceIndex device, const std::vector<at::Tensor>& inputs);

 private:
  // Imports of one input by address. They own no memory: only the address says whose they are,
  // so they serve whatever tensor is there, and the tensors of a launch outlive it.
  using Imports = std::vector<std::pair<const void*, pybind11::object>>;

  pybind11::object bufferOf(const at::Tensor& input, Imports& imports);

  Runtime runtime_;
  size_t nbytes_;
  std::vector<Imports> imports_;
};

}  // namespace torchneuron
