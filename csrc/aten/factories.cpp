#include "aten/frame.h"
#include "aten/kernels.h"
#include "core/allocator.h"
#include "core/device.h"
#include "core/op_record.h"
#include "core/trace.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/arange_ops.h>

namespace torchneuron {
namespace {

void checkPlain(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided,
                              "cannot make a tensor of layout ", c10::layout_or_default(layout),
                              " here\n\nhint: make a dense one and convert it");
  TORCH_CHECK(
      !c10::pinned_memory_or_default(pin_memory),
      "Only dense CPU tensors can be pinned\n\nhint: drop pin_memory=True for device tensors");
}

void checkOptions(OpRecord& record, at::ScalarType dtype, std::optional<at::Layout> layout,
                  std::optional<bool> pin_memory) {
  checkPlain(layout, pin_memory);
  checkRefused(record, dtype);
  countExecuted(record, dtype);
}

c10::DeviceIndex indexOf(std::optional<at::Device> device) {
  return resolveIndex(device.value_or(at::Device(c10::kPrivateUse1)));
}

at::Tensor makeTensor(size_t nbytes, at::ScalarType dtype, c10::DeviceIndex device) {
  auto* allocator = neuronAllocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes, allocator->allocateOn(nbytes, device), allocator,
      /*resizable=*/true);
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor filledIfDeterministic(at::Tensor tensor) {
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

}  // namespace

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  static OpRecord& record = opRecord("aten::empty", "memory_format");
  const auto scalar_type = c10::dtype_or_default(dtype);
  const auto index = indexOf(device);
  checkOptions(record, scalar_type, layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const auto nbytes =
      at::detail::computeStorageNbytesContiguous(size, c10::elementSize(scalar_type));
  auto tensor = makeTensor(nbytes, scalar_type, index);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->generic_set_sizes_contiguous(size);
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous) {
    impl->empty_tensor_restride(*memory_format);
  }
  return filledIfDeterministic(std::move(tensor));
}

at::Tensor emptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory) {
  static OpRecord& record = opRecord("aten::empty_strided", "");
  const auto scalar_type = c10::dtype_or_default(dtype);
  const auto index = indexOf(device);
  checkOptions(record, scalar_type, layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const auto nbytes = at::detail::computeStorageNbytes(size, stride, c10::elementSize(scalar_type));
  auto tensor = makeTensor(nbytes, scalar_type, index);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return filledIfDeterministic(std::move(tensor));
}

// PyTorch would make an empty tensor and have a second kernel resize it; an EmbeddingBag counts off
// its bags this way at each step.
at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                  std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                  std::optional<at::Device> device, std::optional<bool> pin_memory) {
  using Op = at::_ops::arange_start_step;
  static OpRecord& record = opRecord(Op::name, Op::overload_name);
  checkPlain(layout, pin_memory);
  Frame frame(record);
  frame.place(device.value_or(at::Device(c10::kPrivateUse1)));
  frame.begin();
  auto result = Op::redispatch(kCpuKernel, start, end, step, dtype, layout, at::Device(c10::kCPU),
                               pin_memory);
  frame.finish();
  return frame.wrap(std::move(result));
}

}  // namespace torchneuron
