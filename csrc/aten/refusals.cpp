#include "aten/kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace torchneuron {

void refuseLayout(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "'", op.operator_name(),
      "' on sparse neuron tensors: the neuron device keeps strided tensors only\n\n"
      "hint: use the dense form (sparse=False for embeddings), or keep this tensor on the CPU");
}

void refuseQuantizedCopy(const c10::OperatorHandle& /*op*/, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "cannot copy a quantized tensor to, from or within the neuron device\n\n"
      "hint: copy tensor.dequantize(), and quantize the copy");
}

}  // namespace torchneuron
