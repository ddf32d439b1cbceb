#include "core/statistics.h"

#include "core/pool.h"

#include <array>
#include <utility>

namespace torchneuron {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

void putStat(std::map<std::string, int64_t>& flat, const std::string& name, const Stat& stat) {
  flat[name + ".current"] = stat.current;
  flat[name + ".peak"] = stat.peak;
  flat[name + ".allocated"] = stat.allocated;
  flat[name + ".freed"] = stat.freed;
}

}  // namespace

std::vector<SegmentSnapshot> memorySnapshot() {
  std::vector<SegmentSnapshot> segments;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (Pool* pool = existingPool(static_cast<c10::DeviceIndex>(device))) {
      pool->appendSnapshot(segments);
    }
  }
  return segments;
}

std::map<std::string, int64_t> flatStatistics(const DeviceStats& stats) {
  const std::array<std::pair<const char*, const StatArray*>, 9> arrays{{
      {"allocation", &stats.allocation},
      {"segment", &stats.segment},
      {"active", &stats.active},
      {"inactive_split", &stats.inactive_split},
      {"allocated_bytes", &stats.allocated_bytes},
      {"reserved_bytes", &stats.reserved_bytes},
      {"active_bytes", &stats.active_bytes},
      {"inactive_split_bytes", &stats.inactive_split_bytes},
      {"requested_bytes", &stats.requested_bytes},
  }};
  constexpr std::array<const char*, 3> kParts{"all", "small_pool", "large_pool"};
  std::map<std::string, int64_t> flat;
  for (const auto& [name, array] : arrays) {
    for (size_t i = 0; i < kParts.size(); ++i) {
      putStat(flat, std::string(name) + "." + kParts[i], (*array)[i]);
    }
  }
  putStat(flat, "oversize_allocations", stats.oversize_allocations);
  putStat(flat, "oversize_segments", stats.oversize_segments);
  flat["num_alloc_retries"] = stats.num_alloc_retries;
  flat["num_ooms"] = stats.num_ooms;
  flat["num_sync_all_streams"] = stats.num_sync_all_streams;
  flat["num_device_alloc"] = stats.num_device_alloc;
  flat["num_device_free"] = stats.num_device_free;
  flat["max_split_size"] = stats.max_split_size;
  return flat;
}

}  // namespace torchneuron
