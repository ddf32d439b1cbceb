// Where a block's truth is, for runtimes whose memory the host cannot address.
//
// Kernels here compute on host memory. Before one touches a block it says so, with the access
// its schema states; a runtime with memory of its own installs a hook and moves data then. On
// the host runtime every block stays kHost and the check is one branch.
#pragma once

#include "core/block.h"

namespace torchneuron {

enum class Access : uint8_t { kRead, kWrite };

// Makes the host copy of `block` true, and marks the device copy stale if `access` is kWrite.
using HostAccessHook = void (*)(Block* block, Access access);
void setHostAccessHook(HostAccessHook hook);
void hostAccessSlow(Block* block, Access access);

inline void hostAccess(Block* block, Access access) {
  if (C10_UNLIKELY(block->residency != Residency::kHost)) {
    hostAccessSlow(block, access);
  }
}

}  // namespace torchneuron
