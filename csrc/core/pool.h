#pragma once

#include "core/arena.h"
#include "core/block.h"
#include "core/statistics.h"

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace torchneuron {

constexpr size_t kSmallLimit = size_t{1} << 20;  // larger requests go to the large half
constexpr int kNumSizeClasses = 96;

// A few instructions where nobody contends; a waiter gives its time slice away, then sleeps.
class SpinLock {
 public:
  void lock() {
    if (taken_.exchange(true, std::memory_order_acquire)) {
      wait();
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void wait();

  std::atomic<bool> taken_{false};
};

// The memory of one device: a small half (size classes, last in first out, never merged) and a
// large half (best fit, split and merged), over segments of one arena. Thread-safe.
class Pool {
 public:
  Pool(c10::DeviceIndex device, size_t hbm_bytes, std::string instance);

  // Device memory of at least `nbytes` (more than zero), 64-byte aligned, contents undefined.
  // Throws c10::OutOfMemoryError when the device's memory or the host's is exhausted.
  void* allocate(size_t nbytes);
  // Takes back a block of this pool, adopted ones included.
  void free(Block* block);
  // Takes over memory that somebody else allocated: it counts in the statistics and toward the
  // limit, and `deleter(ctx)` frees it. The record is found by blockOf(ptr). The memory is freed
  // when this throws c10::OutOfMemoryError. An address can be adopted once at a time.
  c10::DataPtr adopt(void* ptr, size_t nbytes, c10::DeleterFnPtr deleter, void* ctx);
  // Counts memory that somebody else has for a while, as an adopted block would; adopt's error.
  void charge(size_t nbytes);
  void discharge(size_t nbytes);

  // Returns the segments that hold no live block to the system.
  void emptyCache();
  // Lets the pool reserve at most this part (0 to 1) of the device's memory.
  void setFraction(double fraction);

  DeviceStats stats();
  void resetPeakStats();
  void resetAccumulatedStats();
  // Allocated and reserved bytes.
  std::pair<size_t, size_t> totals();
  const std::string& arenaNote() const { return arena_.note(); }
  void appendSnapshot(std::vector<SegmentSnapshot>& segments);

  // For fork: a child must not inherit a lock that another thread holds.
  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

 private:
  enum class Refusal { kNone, kLimit, kHost, kAddressSpace };
  // Best fit: by extent, then by address.
  struct LessExtent {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const {
      return a->extent_bytes != b->extent_bytes ? a->extent_bytes < b->extent_bytes : a < b;
    }
    bool operator()(const Block* block, size_t extent_bytes) const {
      return block->extent_bytes < extent_bytes;
    }
  };

  // These hold the lock already.
  Block* take(size_t nbytes);
  Refusal growFor(size_t nbytes);
  Refusal grow(size_t segment_bytes, size_t lead_bytes, const Recorder& recorder, char** start);
  void release(void* start, size_t segment_bytes, size_t lead_bytes, const Recorder& recorder);
  Block* takeSmall(int size_class, size_t nbytes);
  Block* carve(int size_class);
  void closeSegment();
  Refusal growSmall();
  void freeSmall(Block* block);
  void emptySmall();
  Block* takeLarge(size_t nbytes);
  Refusal growLarge(size_t nbytes);
  void freeLarge(Block* block);
  void insertFree(Block* block);
  void eraseFree(Block* block);
  void emptyLarge();
  bool exceedsLimit(size_t bytes) const;

  // These take the lock.
  Block* allocateSlow(size_t nbytes);
  void freeAdopted(Block* block);
  size_t limitBytes();
  bool tryCharge(size_t nbytes, bool is_retry);
  [[noreturn]] void throwOutOfMemory(Refusal refusal, size_t nbytes);

  // What a small allocation touches comes first.
  SpinLock lock_;
  c10::DeviceIndex device_;
  SmallSegment* open_ = nullptr;  // the newest small segment, whose end is not carved yet
  std::array<Block*, kNumSizeClasses> free_small_{};
  DeviceStats stats_;

  std::set<SmallSegment*> small_segments_;
  std::set<Block*, LessExtent> free_large_;
  std::set<Block*> large_segments_;  // by first block
  std::set<Block*> adopted_;
  size_t hbm_bytes_;
  size_t limit_bytes_;
  std::string instance_;
  Arena arena_;
};

// Says how many devices there are and what each has. Once, before any pool is used.
void configurePools(int count, size_t hbm_bytes, std::string instance);

extern std::atomic<Pool*> pools[kMaxDevices] __attribute__((visibility("hidden")));

// Makes the pool at the device's first use. Throws c10::Error for a device that does not exist.
Pool& makePool(c10::DeviceIndex device);

inline Pool& devicePool(c10::DeviceIndex device) {
  if (__builtin_expect(device >= 0 && device < kMaxDevices, 1)) {
    if (Pool* pool = pools[device].load(std::memory_order_acquire)) {
      return *pool;
    }
  }
  return makePool(device);
}

// The pool of a device that was used already, else nullptr.
Pool* existingPool(c10::DeviceIndex device);

// Bytes of memory of each device as configured; 0 before that.
size_t configuredHbmBytes();

// Empties the caches of all devices.
void emptyAllCaches();

// What the system refused when the device's address range was reserved; empty where nothing was.
std::string arenaNote(c10::DeviceIndex device);

}  // namespace torchneuron
