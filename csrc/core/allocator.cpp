#include "core/allocator.h"

#include "core/device.h"
#include "core/pool.h"

namespace torchneuron {
namespace {

std::atomic<TwinRelease> g_twin_release{nullptr};
std::atomic<TwinDrop> g_twin_drop{nullptr};

c10::Device neuronDevice(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::PrivateUse1, index);
}

// Called while a profiler records memory; `bytes` is negative for memory that was freed.
void report(Pool& pool, void* data, c10::DeviceIndex device, int64_t bytes) {
  const auto [allocated, reserved] = pool.totals();
  c10::reportMemoryUsageToProfiler(data, bytes, allocated, reserved, neuronDevice(device));
}

}  // namespace

void setTwinHooks(TwinRelease release, TwinDrop drop) {
  g_twin_release = release;
  g_twin_drop = drop;
}

void dropTwin(Block* block) {
  if (block->twin.load(std::memory_order_acquire) != nullptr) {
    g_twin_drop.load(std::memory_order_relaxed)(block);
  }
}

void deleteDeviceMemory(void* data) {
  Block* block = blockOf(data);
  if (block->twin.load(std::memory_order_acquire) != nullptr &&
      g_twin_release.load(std::memory_order_relaxed)(block)) {
    return;
  }
  const c10::DeviceIndex device = block->device;
  const auto bytes = static_cast<int64_t>(block->size_bytes);
  Pool& pool = devicePool(device);
  pool.free(block);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report(pool, data, device, -bytes);
  }
}

c10::DataPtr NeuronAllocator::allocate(size_t nbytes) {
  configure();
  return allocateOn(nbytes, currentDevice());
}

c10::DataPtr NeuronAllocator::allocateOn(size_t nbytes, c10::DeviceIndex device) {
  return allocateTagged(nbytes, device, neuronDevice(device));
}

c10::DataPtr NeuronAllocator::allocateTagged(size_t nbytes, c10::DeviceIndex device,
                                             c10::Device tag) {
  if (C10_UNLIKELY(nbytes == 0)) {
    return c10::DataPtr(nullptr, tag);
  }
  Pool& pool = devicePool(device);
  void* data = pool.allocate(nbytes);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report(pool, data, device, static_cast<int64_t>(blockOf(data)->size_bytes));
  }
  return c10::DataPtr(data, data, &deleteDeviceMemory, tag);
}

void NeuronAllocator::copy_data(void* dest, const void* src, size_t count) const {
  default_copy_data(dest, src, count);
}

bool NeuronAllocator::initialized() {
  return isConfigured();
}

void NeuronAllocator::emptyCache(c10::MempoolId_t /*mempool_id*/) {
  emptyAllCaches();
}

void NeuronAllocator::recordStream(const c10::DataPtr& /*ptr*/, c10::Stream /*stream*/) {
  // Work is synchronous: memory is idle once it is freed.
}

DeviceStats NeuronAllocator::getDeviceStats(c10::DeviceIndex device) {
  checkDevice(device);
  Pool* pool = existingPool(device);
  return pool != nullptr ? pool->stats() : DeviceStats();
}

void NeuronAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  checkDevice(device);
  if (Pool* pool = existingPool(device)) {
    pool->resetAccumulatedStats();
  }
}

void NeuronAllocator::resetPeakStats(c10::DeviceIndex device) {
  checkDevice(device);
  if (Pool* pool = existingPool(device)) {
    pool->resetPeakStats();
  }
}

std::pair<size_t, size_t> NeuronAllocator::getMemoryInfo(c10::DeviceIndex device) {
  checkDevice(device);
  Pool* pool = existingPool(device);
  const size_t reserved = pool != nullptr ? pool->totals().second : 0;
  return {configuredHbmBytes() - reserved, configuredHbmBytes()};
}

NeuronAllocator* neuronAllocator() {
  static auto* allocator = new NeuronAllocator();
  return allocator;
}

namespace {
// Made while the library loads: a fork can then not catch another thread half way through it.
[[maybe_unused]] const NeuronAllocator* const g_made = neuronAllocator();
}  // namespace

}  // namespace torchneuron
