// What the sources of the pool share; nobody else includes this.
#pragma once

#include "core/block.h"
#include "core/pool.h"
#include "core/statistics.h"

#include <array>
#include <mutex>
#include <new>

namespace torchneuron {

constexpr size_t kSmallSegmentBytes = size_t{2} << 20;
constexpr size_t kSmallestExtent = 2 * kHeaderBytes;

// Lies at the start of its segment.
struct alignas(kHeaderBytes) SmallSegment {
  uint32_t num_live;
  uint32_t num_carved;
  uint32_t live_bytes;      // headers included
  uint32_t uncarved_bytes;  // at the segment's end

  SplitFigures split() const {
    if (num_live == 0) {
      return {0, 0};
    }
    const size_t num_uncarved = uncarved_bytes >= kSmallestExtent ? 1 : 0;
    return {num_carved - num_live + num_uncarved,
            kSmallSegmentBytes - sizeof(SmallSegment) - live_bytes};
  }
};

constexpr Recorder kSmallRecorder(/*is_large=*/false);
constexpr Recorder kLargeRecorder(/*is_large=*/true);

constexpr size_t roundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Multiples of 64 up to 1 KiB, then eight steps a doubling.
constexpr int sizeClassOf(size_t nbytes) {
  if (nbytes <= 1024) {
    return static_cast<int>((nbytes - 1) >> 6);
  }
  const int exponent = 63 - __builtin_clzll(nbytes - 1);
  const int step = static_cast<int>((nbytes - 1) >> (exponent - 3)) & 7;
  return 16 + (exponent - 10) * 8 + step;
}

constexpr std::array<uint32_t, kNumSizeClasses> makeClassBytes() {
  std::array<uint32_t, kNumSizeClasses> sizes{};
  for (int i = 0; i < kNumSizeClasses; ++i) {
    if (i < 16) {
      sizes[i] = static_cast<uint32_t>(i + 1) * 64;
    } else {
      const int exponent = 10 + (i - 16) / 8;
      const uint32_t steps = 8 + static_cast<uint32_t>((i - 16) % 8) + 1;
      sizes[i] = steps << (exponent - 3);
    }
  }
  return sizes;
}

constexpr std::array<uint32_t, kNumSizeClasses> kClassBytes = makeClassBytes();
static_assert(kClassBytes[kNumSizeClasses - 1] == kSmallLimit);
static_assert(sizeClassOf(kSmallLimit) == kNumSizeClasses - 1);

inline void activate(Block* block, size_t size_bytes, size_t requested_bytes) {
  block->size_bytes = size_bytes;
  block->requested_bytes = requested_bytes;
  block->state = BlockState::kActive;
  block->residency = Residency::kHost;
  block->flags = 0;
}

inline Block* makeBlock(char* at, size_t extent_bytes, c10::DeviceIndex device, int size_class) {
  auto* block = new (at) Block();
  block->extent_bytes = extent_bytes;
  block->device = device;
  block->state = BlockState::kFree;
  block->size_class = static_cast<uint8_t>(size_class);
  return block;
}

// Guards the table of adopted memory; taken after a pool's lock, never before.
std::mutex& adoptedMutex();

}  // namespace torchneuron
