// Twins and aliases: CPU storages and CPU tensors over neuron memory, through which CPU kernels
// see it.
#pragma once

#include "core/residency.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

namespace torchneuron {

// A CPU tensor over the memory of a neuron tensor, for the time of one kernel.
struct Alias {
  c10::intrusive_ptr<c10::TensorImpl> impl;
  Block* home = nullptr;  // where to put it back for the next kernel; null: nowhere
};

inline c10::TensorImpl* exchangeAlias(Block* block, c10::TensorImpl* alias) {
  return std::atomic_ref(block->alias).exchange(alias, std::memory_order_acq_rel);
}

// A plain alias carries neither autograd keys nor a version counter and must not outlive the
// kernel; a full one may be kept.
Alias aliasOf(const at::TensorBase& original, Access access, bool full);
// Gives an alias back that nobody kept and no kernel turned to other memory.
inline void putBack(Alias&& alias) {
  if (alias.home != nullptr && alias.impl.use_count() == 1 &&
      alias.impl->unsafe_storage().unsafeGetStorageImpl() ==
          alias.home->twin.load(std::memory_order_acquire)) {
    c10::intrusive_ptr<c10::TensorImpl>::reclaim(exchangeAlias(alias.home, alias.impl.release()));
  }
}

// After a kernel: carries a resize of the twin over to the neuron storage. True where the storage
// has other memory now.
bool adoptTwinResize(c10::StorageImpl* storage, c10::StorageImpl* twin);

// Called when the extension is loaded: blocks being freed give back their twin.
void installTwinHooks();

// Makes a CPU tensor one of the device by name alone: its memory must be there.
void setDevice(c10::TensorImpl* impl, c10::DeviceIndex device);
// Turns a result that a CPU kernel made in neuron memory into a neuron tensor, in place. The
// memory is copied first where the kernel took it from elsewhere.
void retag(c10::TensorImpl* impl, c10::DeviceIndex device);
// The same for a result that views the memory of `original` through a twin.
void retagView(c10::TensorImpl* impl, const at::TensorBase& original);

}  // namespace torchneuron
