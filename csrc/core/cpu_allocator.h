#pragma once

#include <c10/core/Allocator.h>

namespace torchneuron {

// The CPU allocator that torch had, except inside a neuron kernel (kernelDevice >= 0): there CPU
// memory comes from that device's pool, so that what a CPU kernel returns is device memory already.
class CpuAllocatorWrapper final : public c10::Allocator {
 public:
  explicit CpuAllocatorWrapper(c10::Allocator* stock) : stock_(stock) {}

  c10::DataPtr allocate(size_t nbytes) override;
  bool is_simple_data_ptr(const c10::DataPtr& data_ptr) const override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, size_t count) const override;

 private:
  c10::Allocator* stock_;
};

// Puts the wrapper in front of torch's CPU allocator. Idempotent; not thread-safe, like
// c10::SetAllocator: call it while the extension loads.
void installCpuAllocator();

// What installCpuAllocator() installed; CPU storages over device memory name it as their allocator.
c10::Allocator* cpuAllocator();

}  // namespace torchneuron
