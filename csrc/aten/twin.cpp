#include "aten/twin.h"

#include "core/allocator.h"
#include "core/block.h"
#include "core/cpu_allocator.h"

#include <ATen/NestedTensorImpl.h>
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
  static constexpr auto dataType = &Impl::data_type_;
};

constexpr DispatchKeySet kMathBits{DispatchKey::Conjugate, DispatchKey::Negative,
                                   DispatchKey::ZeroTensor};
constexpr DispatchKeySet kCpu{DispatchKey::CPU};
constexpr DispatchKeySet kQuantizedCpu{DispatchKey::QuantizedCPU};
constexpr DispatchKeySet kNestedCpu{DispatchKey::NestedTensorCPU};

// Frees nothing: the neuron storage owns the memory.
c10::DataPtr borrowed(void* data) {
  return c10::DataPtr(data, data, [](void*) {}, c10::kCPU);
}

c10::intrusive_ptr<c10::StorageImpl> makeTwin(void* data, size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                               borrowed(data), cpuAllocator(),
                                               /*resizable=*/true);
}

bool ownsBlock(const c10::DataPtr& data) {
  return data.get_deleter() == &deleteDeviceMemory && data.get() != nullptr;
}

bool isSmall(const Block* block) {
  return block->state == BlockState::kActive && block->size_class != kLargeClass;
}

void dropAlias(Block* block) {
  c10::intrusive_ptr<c10::TensorImpl>::reclaim(exchangeAlias(block, nullptr));
}

c10::intrusive_ptr<c10::StorageImpl> takeTwin(Block* block) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim(
      block->twin.exchange(nullptr, std::memory_order_acq_rel));
}

// A small block that goes away.
void dropTwinOf(Block* block) {
  dropAlias(block);
  takeTwin(block);
}

// The block is being freed. A twin that nobody else holds stays for the next use of a small
// block; one that somebody holds (a kernel that kept an alias) becomes the memory's owner.
bool releaseTwin(Block* block) {
  auto* twin = block->twin.load(std::memory_order_acquire);
  void* data = dataOf(block);
  const bool small = isSmall(block);
  const auto own_references = 1 + (small && block->alias != nullptr ? 1 : 0);
  const bool shared =
      c10::raw::intrusive_ptr::use_count(twin) > static_cast<size_t>(own_references);
  const bool intact = twin->data() == data && twin->resizable();
  if (C10_LIKELY(!shared && intact && small)) {
    return false;
  }
  if (small) {
    dropAlias(block);
  }
  const auto taken = takeTwin(block);
  if (!shared || taken->data() != data) {
    return false;
  }
  taken->set_data_ptr_noswap(c10::DataPtr(data, data, &deleteDeviceMemory, c10::kCPU));
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

// One twin is kept per block and lives as long as the block; storages whose memory is not a
// block's (from_blob, DLPack, empty) get a fresh one each time.
c10::Storage twinOf(c10::StorageImpl* storage, Access access);

c10::Storage makeKeptTwin(Block* block, void* data, size_t nbytes) {
  auto fresh = makeTwin(data, nbytes);
  auto* kept = c10::intrusive_ptr<c10::StorageImpl>(fresh).release();
  c10::StorageImpl* expected = nullptr;
  if (!block->twin.compare_exchange_strong(expected, kept, std::memory_order_acq_rel)) {
    // Another thread was first; ours serves this call only.
    c10::intrusive_ptr<c10::StorageImpl>::reclaim(kept);
  }
  return c10::Storage(std::move(fresh));
}

// Storages that are no block's: foreign memory, empty, or copy-on-write.
c10::Storage twinOfForeign(c10::StorageImpl* storage, Access access) {
  const auto& data = storage->data_ptr();
  if (access == Access::kWrite && c10::impl::cow::is_cow_data_ptr(data)) {
    c10::impl::cow::materialize_cow(storage);
    return twinOf(storage, access);
  }
  return makeTwin(data.get(), storage->nbytes());
}

c10::Storage twinOf(c10::StorageImpl* storage, Access access) {
  const auto& data = storage->data_ptr();
  const auto nbytes = storage->nbytes();
  if (C10_UNLIKELY(!ownsBlock(data))) {
    return twinOfForeign(storage, access);
  }
  Block* block = blockOf(data.get());
  hostAccess(block, access);
  auto* twin = block->twin.load(std::memory_order_acquire);
  if (C10_UNLIKELY(twin == nullptr)) {
    return makeKeptTwin(block, data.get(), nbytes);
  }
  if (C10_UNLIKELY(twin->data() != data.get() || !twin->resizable())) {
    // Resized by someone who kept it, or frozen (numpy does that): not ours to use any more.
    if (isSmall(block)) {
      dropAlias(block);
    }
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

// Makes `alias` describe what `source` describes.
void mirror(const c10::TensorImpl* source, c10::TensorImpl* alias) {
  if (alias->sizes() != source->sizes() || alias->strides() != source->strides() ||
      alias->storage_offset() != source->storage_offset()) {
    alias->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  }
}

// The alias that the last kernel on this block left behind, if it can serve again.
c10::intrusive_ptr<c10::TensorImpl> takeKept(Block* block, const c10::TensorImpl* source,
                                             Access access) {
  auto kept = c10::intrusive_ptr<c10::TensorImpl>::reclaim(exchangeAlias(block, nullptr));
  if (!kept.defined() || kept->is_wrapped_number() || source->is_wrapped_number()) {
    return {};
  }
  auto* twin = kept->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(twin != block->twin.load(std::memory_order_acquire) ||
                   twin->data() != dataOf(block) || !twin->resizable())) {
    return {};
  }
  hostAccess(block, access);
  const auto nbytes = source->unsafe_storage().nbytes();
  if (C10_UNLIKELY(twin->nbytes() != nbytes)) {
    twin->set_nbytes(nbytes);
  }
  return kept;
}

}  // namespace

void installTwinHooks() {
  setTwinHooks(&releaseTwin, &dropTwinOf);
}

bool adoptTwinResize(c10::StorageImpl* storage, c10::StorageImpl* twin) {
  const auto* data = storage->data_ptr().get();
  if (C10_LIKELY(twin->data() == data)) {
    if (C10_UNLIKELY(twin->nbytes() != storage->nbytes())) {
      storage->set_nbytes(twin->nbytes());
    }
    return false;
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
  return true;
}

void setDevice(c10::TensorImpl* impl, c10::DeviceIndex device) {
  impl->*Impl::keySet = toNeuron(impl->*Impl::keySet);
  impl->*Impl::device = c10::Device(c10::kPrivateUse1, device);
}

void retag(c10::TensorImpl* impl, c10::DeviceIndex device) {
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
          c10::StorageImpl::use_byte_size_t(), storage_impl->nbytes(), std::move(copied),
          neuronAllocator(),
          /*resizable=*/true)));
      storage_impl = impl->unsafe_storage().unsafeGetStorageImpl();
    }
    storage_impl->set_allocator(neuronAllocator());
  }
  setDevice(impl, device);
}

void retagView(c10::TensorImpl* impl, const at::TensorBase& original) {
  impl->set_storage_keep_dtype(original.storage());
  setDevice(impl, original.device().index());
  if (original.is_inference()) {
    return;
  }
  // The alias that the view was made from was below autograd; the view is not.
  const auto autograd = impl->key_set().has(DispatchKey::NestedTensor)
                            ? DispatchKeySet(DispatchKey::AutogradNestedTensor)
                            : DispatchKeySet(DispatchKey::AutogradPrivateUse1);
  impl->*Impl::keySet = impl->key_set() | autograd | DispatchKeySet(DispatchKey::ADInplaceOrView);
  // Where the op is a view for autograd too, autograd makes it share the base's.
  impl->set_version_counter(c10::VariableVersion(0));
}

namespace {

// A kept alias of the block, made to describe `source`; undefined where there is none.
Alias reuseAlias(const c10::TensorImpl* source, DispatchKeySet keys, Access access) {
  const auto& data = source->unsafe_storage().data_ptr();
  Alias alias;
  if (C10_UNLIKELY(!ownsBlock(data))) {
    return alias;
  }
  Block* block = blockOf(data.get());
  if (C10_LIKELY(isSmall(block))) {
    alias.home = block;
    alias.impl = takeKept(block, source, access);
  }
  if (C10_LIKELY(alias.impl.defined())) {
    alias.impl.get()->*Impl::keySet = keys;
    alias.impl.get()->*Impl::dataType = source->dtype();
    mirror(source, alias.impl.get());
  }
  return alias;
}

Alias nestedAlias(const c10::TensorImpl* source, Access access) {
  const auto* nested = static_cast<const at::native::NestedTensorImpl*>(source);
  return {c10::make_intrusive<at::native::NestedTensorImpl>(
      twinOf(source->unsafe_storage().unsafeGetStorageImpl(), access), kNestedCpu, source->dtype(),
      nested->get_nested_sizes(), nested->get_nested_strides(), nested->get_storage_offsets())};
}

Alias quantizedAlias(const c10::TensorImpl* source, Access access) {
  const auto* quantized = static_cast<const at::QTensorImpl*>(source);
  Alias alias{c10::make_intrusive<at::QTensorImpl>(
      twinOf(source->unsafe_storage().unsafeGetStorageImpl(), access), kQuantizedCpu,
      source->dtype(), const_cast<at::QTensorImpl*>(quantized)->quantizer())};
  mirror(source, alias.impl.get());
  return alias;
}

}  // namespace

Alias aliasOf(const at::TensorBase& original, Access access, bool full) {
  const auto* source = original.unsafeGetTensorImpl();
  if (C10_UNLIKELY(source->key_set().has(DispatchKey::NestedTensor))) {
    return nestedAlias(source, access);
  }
  if (C10_UNLIKELY(original.is_quantized())) {
    return quantizedAlias(source, access);
  }
  const auto keys = kCpu | (source->key_set() & kMathBits);
  Alias alias;
  if (C10_LIKELY(!full)) {
    alias = reuseAlias(source, keys, access);
    if (C10_LIKELY(alias.impl.defined())) {
      return alias;
    }
  }
  auto twin = twinOf(source->unsafe_storage().unsafeGetStorageImpl(), access);
  if (full) {
    alias.impl = c10::make_intrusive<c10::TensorImpl>(std::move(twin), keys, source->dtype());
    if (!original.is_inference() && !alias.impl->is_inference()) {
      // A write through either is seen by what saved the other for backward.
      alias.impl->set_version_counter(original.unsafeGetTensorImpl()->version_counter());
    }
  } else {
    // The view constructor adds neither autograd keys nor a version counter.
    alias.impl = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(twin), keys,
                                                      source->dtype());
  }
  mirror(source, alias.impl.get());
  if (C10_UNLIKELY(source->is_wrapped_number())) {
    alias.impl->set_wrapped_number(true);
  }
  return alias;
}

}  // namespace torchneuron
