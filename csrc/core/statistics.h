#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace torchneuron {

using c10::CachingDeviceAllocator::DeviceStats;

struct BlockSnapshot {
  uintptr_t address;  // of the data; of the segment for its first block
  size_t size;        // up to the next block, headers included
  size_t requested_size;
  bool active;  // state "active_allocated", else "inactive"
};

// One entry of torch.cuda's memory snapshot. `stream` is always 0 there.
struct SegmentSnapshot {
  c10::DeviceIndex device = 0;
  uintptr_t address = 0;
  size_t total_size = 0;
  size_t allocated_size = 0;
  size_t active_size = 0;
  size_t requested_size = 0;
  bool is_large = false;  // segment_type "large", else "small"
  std::vector<BlockSnapshot> blocks = {};
};

// The segments of all devices, adopted memory included.
std::vector<SegmentSnapshot> memorySnapshot();

// The statistics of one device under the names of torch.cuda.memory_stats.
std::map<std::string, int64_t> flatStatistics(const DeviceStats& stats);

// Free blocks of segments that cannot be released because they hold live blocks as well.
struct SplitFigures {
  size_t num_blocks;
  size_t bytes;  // headers included
};

// The parts of DeviceStats that change with a block, for the whole device and for one of its
// halves. Active equals allocated here (there are no streams to wait for), so the two active
// entries are filled in when the statistics are read.
class Recorder {
 public:
  explicit constexpr Recorder(bool is_large) : half_(is_large ? kLarge : kSmall) {}

  void allocated(DeviceStats& stats, size_t size_bytes, size_t requested_bytes) const {
    increase(stats.allocation, 1);
    increase(stats.allocated_bytes, size_bytes);
    increase(stats.requested_bytes, requested_bytes);
  }
  void freed(DeviceStats& stats, size_t size_bytes, size_t requested_bytes) const {
    decrease(stats.allocation, 1);
    decrease(stats.allocated_bytes, size_bytes);
    decrease(stats.requested_bytes, requested_bytes);
  }
  void grown(DeviceStats& stats, size_t bytes) const {
    increase(stats.segment, 1);
    increase(stats.reserved_bytes, bytes);
    ++stats.num_device_alloc;
  }
  void released(DeviceStats& stats, size_t bytes) const {
    decrease(stats.segment, 1);
    decrease(stats.reserved_bytes, bytes);
    ++stats.num_device_free;
  }
  // The free blocks beside live ones changed from one figure to another.
  void split(DeviceStats& stats, const SplitFigures& before, const SplitFigures& after) const {
    change(stats.inactive_split, before.num_blocks, after.num_blocks);
    change(stats.inactive_split_bytes, before.bytes, after.bytes);
  }

 private:
  using StatArray = c10::CachingAllocator::StatArray;
  static constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  static constexpr size_t kSmall = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
  static constexpr size_t kLarge = static_cast<size_t>(c10::CachingAllocator::StatType::LARGE_POOL);

  void increase(StatArray& stat, size_t amount) const {
    stat[kAll].increase(amount);
    stat[half_].increase(amount);
  }
  void decrease(StatArray& stat, size_t amount) const {
    stat[kAll].decrease(amount);
    stat[half_].decrease(amount);
  }
  void change(StatArray& stat, size_t old_amount, size_t amount) const {
    if (amount > old_amount) {
      increase(stat, amount - old_amount);
    } else if (amount < old_amount) {
      decrease(stat, old_amount - amount);
    }
  }

  size_t half_;
};

}  // namespace torchneuron
