#include "core/cpu_allocator.h"

#include "core/allocator.h"
#include "core/context.h"

namespace torchneuron {
namespace {

CpuAllocatorWrapper* g_wrapper = nullptr;
c10::DeleterFnPtr g_stock_deleter = nullptr;

// raw_deallocate gets memory of either kind.
void deleteCpuMemory(void* data) {
  if (inArena(data) >= 0) {
    deleteDeviceMemory(data);
  } else {
    g_stock_deleter(data);
  }
}

}  // namespace

c10::DataPtr CpuAllocatorWrapper::allocate(size_t nbytes) {
  if (C10_LIKELY(kernelDevice < 0)) {
    return stock_->allocate(nbytes);
  }
  return neuronAllocator()->allocateTagged(nbytes, kernelDevice, c10::DeviceType::CPU);
}

bool CpuAllocatorWrapper::is_simple_data_ptr(const c10::DataPtr& data_ptr) const {
  return stock_->is_simple_data_ptr(data_ptr);
}

c10::DeleterFnPtr CpuAllocatorWrapper::raw_deleter() const {
  return g_stock_deleter != nullptr ? &deleteCpuMemory : nullptr;
}

void CpuAllocatorWrapper::copy_data(void* dest, const void* src, size_t count) const {
  stock_->copy_data(dest, src, count);
}

void installCpuAllocator() {
  if (g_wrapper != nullptr) {
    return;
  }
  auto* stock = c10::GetAllocator(c10::DeviceType::CPU);
  g_stock_deleter = stock->raw_deleter();
  g_wrapper = new CpuAllocatorWrapper(stock);
  c10::SetAllocator(c10::DeviceType::CPU, g_wrapper, /*priority=*/1);
}

c10::Allocator* cpuAllocator() {
  return g_wrapper;
}

}  // namespace torchneuron
