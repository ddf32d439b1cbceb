#include "aten/kernels.h"
#include "core/allocator.h"
#include "core/storage.h"

#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

namespace torchneuron {
namespace {

void setSizes(c10::TensorImpl* impl, at::IntArrayRef size, std::optional<at::IntArrayRef> stride) {
  if (impl->sizes() == size && (!stride.has_value() || impl->strides() == *stride)) {
    return;
  }
  const auto itemsize = impl->itemsize();
  size_t nbytes = 0;
  if (stride.has_value()) {
    impl->set_sizes_and_strides(size, *stride);
    nbytes = at::detail::computeStorageNbytes(size, *stride, itemsize, impl->storage_offset());
  } else {
    impl->generic_set_sizes_contiguous(size);
    nbytes = at::detail::computeStorageNbytesContiguous(size, itemsize, impl->storage_offset());
  }
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (impl->numel() > 0 && nbytes > storage->nbytes()) {
    resizeStorage(storage, nbytes);
  }
}

}  // namespace

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor asStrided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

at::Tensor reshapeAlias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor viewAsReal(const at::Tensor& self) {
  return at::native::view_as_real(self);
}

at::Tensor viewAsComplex(const at::Tensor& self) {
  return at::native::view_as_complex(self);
}

at::Tensor& setToEmpty(at::Tensor& self) {
  auto* allocator = neuronAllocator();
  c10::Storage none(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, allocator->allocateOn(0, self.device().index()),
      allocator,
      /*resizable=*/true));
  return setToStorageRange(self, std::move(none), 0, {0}, {});
}

at::Tensor& setToTensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

at::Tensor& setToStorage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

at::Tensor& setToStorageRange(at::Tensor& self, at::Storage source, int64_t storage_offset,
                              at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(storage_offset);
  setSizes(impl, size, stride.data() == nullptr ? std::nullopt : std::optional(stride));
  return self;
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  at::detail::check_size_nonnegative(size);
  const auto old_nbytes = impl->unsafe_storage().nbytes();
  setSizes(impl, size, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(old_nbytes));
  }
  return self;
}

}  // namespace torchneuron
