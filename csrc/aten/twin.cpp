#include "aten/twin.h"

#include "core/allocator.h"
#include "core/block.h"
#include "core/cpu_allocator.h"

#include <ATen/core/Tensor.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/impl/COW.h>

#include <cstring>

namespace torchneuron {
namespace {

using c10::BackendComponent;
using c10::DispatchKey;
using c10::DispatchKeySet;

// Legal access to protected members: a member pointer named through a derived class.
struct Impl : c10::TensorImpl {
  static constexpr auto keySet = &Impl::key_set_;
  static constexpr auto device = &Impl::device_opt_;
};

constexpr DispatchKeySet kMathBits{
    DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor};
constexpr DispatchKeySet kCpu{DispatchKey::CPU};
constexpr DispatchKeySet kQuantizedCpu{DispatchKey::QuantizedCPU};

// Frees nothing: the neuron storage owns the memory.
c10::DataPtr borrowed(void* data) {
  return c10::DataPtr(data, data, [](void*) {}, c10::kCPU);
}

c10::intrusive_ptr<c10::StorageImpl> makeTwin(void* data, size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      nbytes,
      borrowed(data),
      cpuAllocator(),
      /*resizable=*/true);
}

bool ownsBlock(const c10::DataPtr& data) {
  return data.get_deleter() == &deleteDeviceMemory && data.get() != nullptr;
}

// The block is being freed. A twin that somebody still holds (a kernel that kept an alias)
// becomes the owner of the memory.
bool releaseTwin(Block* block) {
  const auto twin = c10::intrusive_ptr<c10::StorageImpl>::reclaim(
      block->twin.exchange(nullptr, std::memory_order_acq_rel));
  void* data = dataOf(block);
  if (C10_LIKELY(twin.use_count() == 1 || twin->data() != data)) {
    return false;
  }
  twin->set_data_ptr_noswap(c10::DataPtr(data, data, &deleteDeviceMemory, c10::kCPU));
  return true;
}

DispatchKeySet toNeuron(DispatchKeySet keys) {
  auto swapped = keys.remove_backend(BackendComponent::CPUBit) |
      DispatchKeySet(BackendComponent::PrivateUse1Bit);
  if (swapped.has(DispatchKey::AutocastCPU)) {
    swapped = swapped.remove(DispatchKey::AutocastCPU).add(DispatchKey::AutocastPrivateUse1);
  }
  return swapped;
}

void setDevice(c10::TensorImpl* impl, c10::DeviceIndex index) {
  impl->*Impl::keySet = toNeuron(impl->*Impl::keySet);
  impl->*Impl::device = c10::Device(c10::kPrivateUse1, index);
}

} // namespace

void installTwinRelease() { setTwinRelease(&releaseTwin); }

c10::Storage twinOf(c10::StorageImpl* storage, Access access) {
  const auto& data = storage->data_ptr();
  const auto nbytes = storage->nbytes();
  if (C10_UNLIKELY(!ownsBlock(data))) {
    if (access == Access::kWrite && c10::impl::cow::is_cow_data_ptr(data)) {
      c10::impl::cow::materialize_cow(storage);
      return twinOf(storage, access);
    }
    return makeTwin(data.get(), nbytes);
  }
  Block* block = blockOf(data.get());
  hostAccess(block, access);
  auto* twin = block->twin.load(std::memory_order_acquire);
  if (C10_LIKELY(twin != nullptr)) {
    if (C10_UNLIKELY(twin->data() != data.get() || !twin->resizable())) {
      // Resized by someone who kept it, or frozen (numpy does that): not ours to use any more.
      if (block->twin.compare_exchange_strong(twin, nullptr)) {
        c10::intrusive_ptr<c10::StorageImpl>::reclaim(twin);
      }
      return makeTwin(data.get(), nbytes);
    }
    if (C10_UNLIKELY(twin->nbytes() != nbytes)) {
      twin->set_nbytes(nbytes);
    }
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin));
  }
  auto fresh = makeTwin(data.get(), nbytes);
  auto* kept = c10::intrusive_ptr<c10::StorageImpl>(fresh).release();
  c10::StorageImpl* expected = nullptr;
  if (!block->twin.compare_exchange_strong(expected, kept, std::memory_order_acq_rel)) {
    // Another thread was first; ours serves this call only.
    c10::intrusive_ptr<c10::StorageImpl>::reclaim(kept);
  }
  return c10::Storage(std::move(fresh));
}

void adoptTwinResize(c10::StorageImpl* storage, c10::StorageImpl* twin) {
  const auto* data = storage->data_ptr().get();
  if (C10_LIKELY(twin->data() == data)) {
    if (C10_UNLIKELY(twin->nbytes() != storage->nbytes())) {
      storage->set_nbytes(twin->nbytes());
    }
    return;
  }
  const auto device = storage->device();
  auto moved = twin->set_data_ptr(borrowed(nullptr));
  const auto nbytes = twin->nbytes();
  twin->set_nbytes(0);
  if (!ownsBlock(moved)) {
    // Made outside the pool (by a worker thread of the kernel).
    auto copied = neuronAllocator()->allocateOn(nbytes, device.index());
    std::memcpy(copied.get(), moved.get(), nbytes);
    moved = std::move(copied);
  }
  moved.unsafe_set_device(device);
  storage->set_data_ptr_noswap(std::move(moved));
  storage->set_nbytes(nbytes);
}

void retag(c10::TensorImpl* impl, c10::DeviceIndex device) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl->layout() == c10::kStrided && !impl->key_set().has(DispatchKey::NestedTensor),
      "the result has layout ",
      impl->layout(),
      ", and the neuron device keeps strided tensors only\n\n"
      "hint: use a dense operation (sparse=False for embeddings), or compute this on the CPU");
  const auto& storage = impl->unsafe_storage();
  auto* storage_impl = storage.unsafeGetStorageImpl();
  if (storage_impl->device_type() != c10::kPrivateUse1) {
    const auto& data = storage_impl->data_ptr();
    const c10::Device target(c10::kPrivateUse1, device);
    if (C10_LIKELY(ownsBlock(data) || data.get() == nullptr)) {
      storage_impl->mutable_data_ptr().unsafe_set_device(target);
    } else {
      auto copied = neuronAllocator()->allocateOn(storage_impl->nbytes(), device);
      std::memcpy(copied.get(), data.get(), storage_impl->nbytes());
      impl->set_storage_keep_dtype(c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          storage_impl->nbytes(),
          std::move(copied),
          neuronAllocator(),
          /*resizable=*/true)));
      storage_impl = impl->unsafe_storage().unsafeGetStorageImpl();
    }
    storage_impl->set_allocator(neuronAllocator());
  }
  setDevice(impl, device);
}

void retagView(c10::TensorImpl* impl, const c10::Storage& storage) {
  impl->set_storage_keep_dtype(storage);
  setDevice(impl, storage.device().index());
}

c10::intrusive_ptr<c10::TensorImpl> aliasOf(
    const at::TensorBase& original,
    Access access,
    bool full) {
  const auto* source = original.unsafeGetTensorImpl();
  auto twin = twinOf(source->unsafe_storage().unsafeGetStorageImpl(), access);
  const auto keys = source->key_set();
  c10::intrusive_ptr<c10::TensorImpl> alias;
  if (C10_UNLIKELY(original.is_quantized())) {
    const auto& quantizer = at::get_qtensorimpl(original)->quantizer();
    alias = c10::make_intrusive<at::QTensorImpl>(
        std::move(twin), kQuantizedCpu, source->dtype(), quantizer);
  } else if (full) {
    alias = c10::make_intrusive<c10::TensorImpl>(
        std::move(twin), kCpu | (keys & kMathBits), source->dtype());
  } else {
    // The view constructor adds neither autograd keys nor a version counter.
    alias = c10::make_intrusive<c10::TensorImpl>(
        c10::TensorImpl::VIEW, std::move(twin), kCpu | (keys & kMathBits), source->dtype());
  }
  alias->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  if (C10_UNLIKELY(source->is_wrapped_number())) {
    alias->set_wrapped_number(true);
  }
  return alias;
}

} // namespace torchneuron
