#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torchneuron {

// The allocator behind pin_memory: ordinary host memory, 64-byte aligned, with a registry of what
// is pinned. Freed blocks are kept by size. The instance outlives static destruction.
at::HostAllocator* pinnedAllocator();

// Makes it the host allocator of PrivateUse1. Not thread-safe: call it while the extension loads.
void installPinnedAllocator();

// Whether `address` lies inside a live pinned allocation, at its start or not.
bool isPinned(const void* address);

}  // namespace torchneuron
