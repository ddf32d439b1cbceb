#pragma once

#include "core/block.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace torchneuron {

// Called when a block that has a twin is freed. True means that the twin lives on, owns the memory
// now and frees it later (through deleteDeviceMemory); false that the pool takes the memory back at
// once. A small block may keep its twin for its next use: small blocks never move or change size.
using TwinRelease = bool (*)(Block* block);
// Called when a block that kept its twin goes away.
using TwinDrop = void (*)(Block* block);
void setTwinHooks(TwinRelease release, TwinDrop drop);
void dropTwin(Block* block);

// The only deleter of device memory, adopted memory included; its argument is the data pointer.
// `ptr.get_deleter() == &deleteDeviceMemory` recognises device memory.
void deleteDeviceMemory(void* data);

// The allocator of PrivateUse1. In every DataPtr the context is the data pointer.
class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  // Allocates on the current device.
  c10::DataPtr allocate(size_t nbytes) override;
  // Zero bytes give a null DataPtr. Throws c10::OutOfMemoryError.
  c10::DataPtr allocateOn(size_t nbytes, c10::DeviceIndex device);
  // The same memory with `tag` as the DataPtr's device: outputs of CPU kernels carry CPU at first.
  c10::DataPtr allocateTagged(size_t nbytes, c10::DeviceIndex device, c10::Device tag);

  c10::DeleterFnPtr raw_deleter() const override { return &deleteDeviceMemory; }
  void copy_data(void* dest, const void* src, size_t count) const override;

  bool initialized() override;
  void emptyCache(c10::MempoolId_t mempool_id = {0, 0}) override;
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;
};

// The one instance; it outlives static destruction. Registering it is the caller's business.
NeuronAllocator* neuronAllocator();

}  // namespace torchneuron
