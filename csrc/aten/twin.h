// Twins: CPU storages over neuron memory, through which CPU kernels see it.
#pragma once

#include "core/residency.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

namespace torchneuron {

// A CPU storage over the same memory. One is kept per block and lives as long as the block;
// storages whose memory is not a block's (from_blob, DLPack, empty) get a fresh one each time.
c10::Storage twinOf(c10::StorageImpl* storage, Access access);

// After a kernel: carries a resize of the twin over to the neuron storage.
void adoptTwinResize(c10::StorageImpl* storage, c10::StorageImpl* twin);

// Called when the extension is loaded: blocks being freed give back their twin.
void installTwinRelease();

// Turns a result that a CPU kernel made in neuron memory into a neuron tensor, in place. The
// memory is copied first where the kernel took it from elsewhere.
void retag(c10::TensorImpl* impl, c10::DeviceIndex device);
// The same for a result that views `storage`'s memory through a twin.
void retagView(c10::TensorImpl* impl, const c10::Storage& storage);

// A CPU tensor over the memory of `original`. A plain one carries neither autograd keys nor a
// version counter and must not outlive the kernel; a full one may be kept.
c10::intrusive_ptr<c10::TensorImpl> aliasOf(
    const at::TensorBase& original,
    Access access,
    bool full);

} // namespace torchneuron
