#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace torchneuron {

// c10::DeviceIndex is an int8.
constexpr int kMaxDevices = 127;
constexpr size_t kPageBytes = 4096;

// Arenas start and end on multiples of a granule, so one byte per granule tells whose memory an
// address is. 48 bits are what a user process gets on x86-64 and aarch64 unless it asks for more.
constexpr int kGranuleShift = 28;
constexpr size_t kGranuleBytes = size_t{1} << kGranuleShift;
constexpr size_t kNumGranules = size_t{1} << (48 - kGranuleShift);

// Device index + 1 of each granule, 0 for memory that is not ours.
extern std::atomic<uint8_t> arenaOfGranule[kNumGranules] __attribute__((visibility("hidden")));

// The device index whose arena holds `address`, or -1. Lock-free.
inline int inArena(const void* address) {
  const size_t granule = reinterpret_cast<uintptr_t>(address) >> kGranuleShift;
  if (granule >= kNumGranules) {
    return -1;
  }
  return static_cast<int>(arenaOfGranule[granule].load(std::memory_order_relaxed)) - 1;
}

// The address range reserved for one device. Its pages become real when they are touched.
// Not thread-safe: the pool that owns it holds its lock. Arenas live until the process ends.
class Arena {
 public:
  // Reserves `wanted_bytes`, or the largest half, quarter, ... of it down to 1 GiB that the system
  // grants; note() then says so. Throws c10::OutOfMemoryError where even that is refused.
  Arena(c10::DeviceIndex device, size_t wanted_bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A page-aligned range, or nullptr when no free range is long enough. `bytes` are whole pages.
  void* take(size_t bytes);
  // Takes a range back; its pages return to the system.
  void give(void* address, size_t bytes);

  size_t sizeBytes() const { return size_bytes_; }
  // Empty unless the system granted less address space than was asked for.
  const std::string& note() const { return note_; }

 private:
  void publish(c10::DeviceIndex device);

  char* start_ = nullptr;
  size_t size_bytes_ = 0;
  std::map<char*, size_t> free_;  // start -> bytes, no two of them adjacent
  std::string note_;
};

}  // namespace torchneuron
