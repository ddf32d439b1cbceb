// Runs a whole composite on the CPU side of autograd: the inputs cross as differentiable aliases,
// the results cross back. For the few ops whose CPU form PyTorch chooses by device type above
// the kernels, so that an alias kernel comes too late.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchneuron {

// Whether something above the kernels wants to see an op's parts: tracing, transforms.
bool partsAreWatched();

// The neuron device that all these tensors are plain members of, or -1 where the composite must
// see the tensors themselves: transforms, tracing, autocast, forward-mode gradients.
c10::DeviceIndex bridgeDevice(at::ArrayRef<at::Tensor> tensors);

// A CPU tensor over the same memory; its gradient flows back to `tensor`.
at::Tensor crossToHost(const at::Tensor& tensor);
// The values of a CPU result on the device; its gradient flows back to `tensor`.
at::Tensor crossToDevice(const at::Tensor& tensor, c10::DeviceIndex device);

}  // namespace torchneuron
