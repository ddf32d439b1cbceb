// Operations on storages of neuron memory.
#pragma once

#include <c10/core/StorageImpl.h>

namespace torchneuron {

// Grows or shrinks to `nbytes`, keeping the common prefix.
void resizeStorage(c10::StorageImpl* storage, size_t nbytes);

}  // namespace torchneuron
