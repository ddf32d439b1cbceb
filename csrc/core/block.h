#pragma once

#include "core/arena.h"

#include <c10/core/Device.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace c10 {
struct StorageImpl;
struct TensorImpl;
}  // namespace c10

namespace torchneuron {

constexpr size_t kHeaderBytes = 64;

// Where the newest value of a block is.
enum class Residency : uint8_t { kHost, kDevice, kBoth };

enum class BlockState : uint8_t {
  kFree,
  kActive,
  kAdopted,  // foreign memory: the record lies in a side table, not before the data
};

struct SmallSegment;

// The record of one piece of device memory; it lies kHeaderBytes before the data.
struct alignas(kHeaderBytes) Block {
  // The CPU StorageImpl over this memory (aten/twin.cpp makes and drops it). A small block keeps
  // its twin while it is free.
  std::atomic<c10::StorageImpl*> twin;
  size_t size_bytes;       // rounded, as the statistics count it
  size_t requested_bytes;  // as the caller asked for it
  size_t extent_bytes;     // from this header to the next one
  union {
    Block* next_free;  // kFree, small: free list of its size class
    void* foreign;     // kAdopted: the data
  };
  union {
    Block* previous;        // large: physical neighbour, null at a segment's start
    SmallSegment* segment;  // small: the segment it was carved from
  };
  union {
    Block* next;  // large: physical neighbour, null at a segment's end
    // Small: a CPU tensor over this memory that no kernel is using, kept like the twin.
    // Read and written through std::atomic_ref.
    c10::TensorImpl* alias;
  };
  c10::DeviceIndex device;
  BlockState state;
  Residency residency;  // kHost at allocation
  uint8_t flags;        // 0 at allocation
  uint8_t size_class;   // small: index of the size class; large: kLargeClass
};

constexpr uint8_t kLargeClass = 255;

static_assert(sizeof(Block) == kHeaderBytes);

// The record of adopted memory that starts at `data`, or nullptr.
Block* adoptedBlock(void* data);

// The record of the device memory that starts at `data` (the start, not an interior address).
// nullptr where the memory is not ours.
inline Block* blockOf(void* data) {
  if (__builtin_expect(inArena(data) >= 0, 1)) {
    return reinterpret_cast<Block*>(static_cast<char*>(data) - kHeaderBytes);
  }
  return adoptedBlock(data);
}

inline void* dataOf(Block* block) {
  if (__builtin_expect(block->state == BlockState::kAdopted, 0)) {
    return block->foreign;
  }
  return reinterpret_cast<char*>(block) + kHeaderBytes;
}

}  // namespace torchneuron
