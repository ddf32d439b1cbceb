#include "core/arena.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <sys/mman.h>

namespace torchneuron {
namespace {

constexpr size_t kSmallestArena = size_t{1} << 30;

size_t alignUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// A range of `bytes` that starts on a granule, or nullptr.
char* reserveAligned(size_t bytes) {
  const size_t padded = bytes + kGranuleBytes;
  void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return nullptr;
  }
  char* begin = static_cast<char*>(raw);
  const size_t before =
      alignUp(reinterpret_cast<uintptr_t>(raw), kGranuleBytes) - reinterpret_cast<uintptr_t>(raw);
  if (before > 0) {
    munmap(begin, before);
  }
  munmap(begin + before + bytes, padded - before - bytes);
  return begin + before;
}

}  // namespace

std::atomic<uint8_t> arenaOfGranule[kNumGranules];

Arena::Arena(c10::DeviceIndex device, size_t wanted_bytes) {
  const size_t wanted = alignUp(std::max(wanted_bytes, kSmallestArena), kGranuleBytes);
  size_t bytes = wanted;
  start_ = reserveAligned(bytes);
  const int reason = errno;
  while (start_ == nullptr && bytes > kSmallestArena) {
    bytes = std::max(alignUp(bytes / 2, kGranuleBytes), kSmallestArena);
    start_ = reserveAligned(bytes);
  }
  const std::string name = "neuron:" + std::to_string(static_cast<int>(device));
  const auto format = c10::CachingAllocator::format_size;
  TORCH_CHECK_WITH(OutOfMemoryError, start_ != nullptr, name, " has no memory: the system refused ",
                   format(bytes), " of address space (", std::strerror(errno), ")\n\n",
                   "hint: raise the limit on virtual memory (ulimit -v), or allow overcommit "
                   "(vm.overcommit_memory)");
  if (bytes < wanted) {
    note_ = name + " has " + format(bytes) + " of address space instead of " + format(wanted) +
            " (" + std::strerror(reason) + "): larger programs run out of memory early";
  }
  size_bytes_ = bytes;
  free_.emplace(start_, bytes);
  publish(device);
}

void Arena::publish(c10::DeviceIndex device) {
  const size_t first = reinterpret_cast<uintptr_t>(start_) >> kGranuleShift;
  for (size_t i = 0; i < size_bytes_ / kGranuleBytes; ++i) {
    arenaOfGranule[first + i].store(static_cast<uint8_t>(device + 1), std::memory_order_relaxed);
  }
}

void* Arena::take(size_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, available] = *it;
    if (available < bytes) {
      continue;
    }
    it = free_.erase(it);
    if (available > bytes) {
      free_.emplace_hint(it, start + bytes, available - bytes);
    }
    return start;
  }
  return nullptr;
}

void Arena::give(void* address, size_t bytes) {
  madvise(address, bytes, MADV_DONTNEED);
  char* start = static_cast<char*>(address);
  auto next = free_.lower_bound(start);
  if (next != free_.end() && start + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace_hint(next, start, bytes);
}

}  // namespace torchneuron
