// The kernels that are written by hand, because they make memory, make views, cross devices, or
// because PyTorch has no CPU kernel to alias for them.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchneuron {

class Registrar;

// factories.cpp
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format);
at::Tensor emptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory);
at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                  std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                  std::optional<at::Device> device, std::optional<bool> pin_memory);

// views.cpp: metadata only, on the neuron tensor itself
at::Tensor view(const at::Tensor& self, at::IntArrayRef size);
at::Tensor asStrided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<int64_t> storage_offset);
at::Tensor reshapeAlias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride);
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step);
at::Tensor viewAsReal(const at::Tensor& self);
at::Tensor viewAsComplex(const at::Tensor& self);
at::Tensor& setToEmpty(at::Tensor& self);
at::Tensor& setToTensor(at::Tensor& self, const at::Tensor& source);
at::Tensor& setToStorage(at::Tensor& self, at::Storage source);
at::Tensor& setToStorageRange(at::Tensor& self, at::Storage source, int64_t storage_offset,
                              at::IntArrayRef size, at::IntArrayRef stride);
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> memory_format);

// copy.cpp
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking);
at::Tensor clone(const at::Tensor& self, std::optional<at::MemoryFormat> memory_format);
at::Tensor copyFrom(const at::Tensor& self, const at::Tensor& destination, bool non_blocking);
at::Tensor copyFromAndResize(const at::Tensor& self, const at::Tensor& destination);
at::Scalar localScalar(const at::Tensor& self);
void recordStream(at::Tensor& self, c10::Stream stream);
bool hasCompatibleImpl(const at::Tensor& self, const at::Tensor& from);

// computed.cpp, recurrent.cpp: ops whose CPU form has another name or none
void registerComputedKernels(Registrar& registrar);
void registerRecurrentKernels(Registrar& registrar);
// recurrent_layers.cpp: whole layers, for both the autograd key and the backend key
void registerRecurrentLayers(Registrar& registrar);
int64_t chooseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                        std::optional<double> scale, bool enable_gqa);

// computed.cpp, for the autograd key
at::Tensor dropout(const at::Tensor& input, double p, bool train);

// hot_*.cpp: the ops that training and inference call most, unboxed
void registerHotPointwise(Registrar& registrar);
void registerHotReductions(Registrar& registrar);
void registerHotLayers(Registrar& registrar);
void registerHotToSparse(Registrar& registrar);
void registerHotCoo(Registrar& registrar);
void registerHotCompressed(Registrar& registrar);

// sparse_register.cpp: what must see the sparse neuron tensor itself
void registerSparseFactories(Registrar& coo, Registrar& compressed);
void registerCoo(Registrar& registrar);
void registerCompressed(Registrar& registrar);

// autocast.cpp: CUDA's lists
void registerAutocast();

// register.cpp: what a program's first act on the device needs, when the extension is loaded, and
// all the rest, when the device is first used
void registerFirstKernels();
void registerKernels();

}  // namespace torchneuron
