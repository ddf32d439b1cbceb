#include "core/pool.h"

#include "core/host_memory.h"
#include "core/pool_parts.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <mutex>
#include <sstream>
#include <thread>

namespace torchneuron {
namespace {

using c10::CachingAllocator::StatArray;

std::string bytesText(size_t bytes) {
  return c10::CachingAllocator::format_size(bytes);
}

// With the exact number too where `other`, to be compared with it, would read the same.
std::string bytesText(size_t bytes, size_t other) {
  const auto text = bytesText(bytes);
  return text == bytesText(other) ? text + " (" + std::to_string(bytes) + " bytes)" : text;
}

template <typename F>
void forEachStatArray(DeviceStats& stats, F apply) {
  for (StatArray* array :
       {&stats.allocation, &stats.segment, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (auto& stat : *array) {
      apply(stat);
    }
  }
}

void appendBlock(SegmentSnapshot& segment, Block* block) {
  const bool is_active = block->state != BlockState::kFree;
  const size_t size = is_active ? block->size_bytes : block->extent_bytes - kHeaderBytes;
  const size_t requested = is_active ? block->requested_bytes : 0;
  segment.blocks.push_back(
      {reinterpret_cast<uintptr_t>(dataOf(block)), size, requested, is_active});
  if (is_active) {
    segment.allocated_size += size;
    segment.requested_size += requested;
  }
}

SegmentSnapshot smallSnapshot(SmallSegment* segment, c10::DeviceIndex device) {
  SegmentSnapshot snapshot{device, reinterpret_cast<uintptr_t>(segment), kSmallSegmentBytes};
  char* start = reinterpret_cast<char*>(segment);
  char* at = start + sizeof(SmallSegment);
  char* end = start + kSmallSegmentBytes - segment->uncarved_bytes;
  while (at < end) {
    auto* block = reinterpret_cast<Block*>(at);
    appendBlock(snapshot, block);
    at += block->extent_bytes;
  }
  if (segment->uncarved_bytes >= kSmallestExtent) {
    snapshot.blocks.push_back({reinterpret_cast<uintptr_t>(end) + kHeaderBytes,
                               segment->uncarved_bytes - kHeaderBytes, 0, false});
  }
  return snapshot;
}

SegmentSnapshot largeSnapshot(Block* first, c10::DeviceIndex device) {
  SegmentSnapshot snapshot{device, reinterpret_cast<uintptr_t>(dataOf(first))};
  snapshot.is_large = true;
  for (Block* block = first; block != nullptr; block = block->next) {
    snapshot.total_size += block->extent_bytes;
    appendBlock(snapshot, block);
  }
  snapshot.total_size -= kHeaderBytes;  // the first header lies in front of the segment
  return snapshot;
}

// Viewers expect blocks that cover their segment: headers count as part of the block before them.
void tile(SegmentSnapshot& segment) {
  auto& blocks = segment.blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uintptr_t end =
        i + 1 < blocks.size() ? blocks[i + 1].address : segment.address + segment.total_size;
    blocks[i].address = i == 0 ? segment.address : blocks[i].address;
    blocks[i].size = end - blocks[i].address;
  }
}

SegmentSnapshot adoptedSnapshot(Block* block) {
  SegmentSnapshot snapshot{block->device, reinterpret_cast<uintptr_t>(dataOf(block)),
                           block->size_bytes};
  snapshot.is_large = block->size_bytes > kSmallLimit;
  appendBlock(snapshot, block);
  return snapshot;
}

}  // namespace

void SpinLock::wait() {
  constexpr int kSpins = 64;
  constexpr int kYields = 256;
  for (int attempt = 0; taken_.exchange(true, std::memory_order_acquire); ++attempt) {
    for (int i = 0; i < kSpins && taken_.load(std::memory_order_relaxed); ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    if (attempt < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

Pool::Pool(c10::DeviceIndex device, size_t hbm_bytes, std::string instance)
    : device_(device),
      hbm_bytes_(hbm_bytes),
      limit_bytes_(hbm_bytes),
      instance_(std::move(instance)),
      arena_(device, 2 * hbm_bytes) {
  stats_.max_split_size = -1;
}

void* Pool::allocate(size_t nbytes) {
  if (nbytes <= kSmallLimit) {
    std::lock_guard<SpinLock> guard(lock_);
    if (Block* block = takeSmall(sizeClassOf(nbytes), nbytes)) {
      return dataOf(block);
    }
  }
  return dataOf(allocateSlow(nbytes));
}

void Pool::free(Block* block) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(block->state != BlockState::kFree, "freed twice");
  if (C10_UNLIKELY(block->state == BlockState::kAdopted)) {
    freeAdopted(block);
    return;
  }
  std::lock_guard<SpinLock> guard(lock_);
  if (block->size_class == kLargeClass) {
    freeLarge(block);
  } else {
    freeSmall(block);
  }
}

Block* Pool::take(size_t nbytes) {
  return nbytes <= kSmallLimit ? takeSmall(sizeClassOf(nbytes), nbytes) : takeLarge(nbytes);
}

Pool::Refusal Pool::growFor(size_t nbytes) {
  return nbytes <= kSmallLimit ? growSmall() : growLarge(nbytes);
}

Block* Pool::allocateSlow(size_t nbytes) {
  for (bool is_retry = false;; is_retry = true) {
    Refusal refusal = Refusal::kNone;
    {
      std::lock_guard<SpinLock> guard(lock_);
      if (Block* block = take(nbytes)) {
        return block;
      }
      refusal = growFor(nbytes);
      if (refusal == Refusal::kNone) {
        return take(nbytes);
      }
      if (is_retry && nbytes <= kSmallLimit) {
        for (int larger = sizeClassOf(nbytes) + 1; larger < kNumSizeClasses; ++larger) {
          if (Block* block = takeSmall(larger, nbytes)) {
            return block;
          }
        }
      }
      ++(is_retry ? stats_.num_ooms : stats_.num_alloc_retries);
    }
    if (is_retry) {
      throwOutOfMemory(refusal, nbytes);
    }
    if (refusal == Refusal::kHost) {
      emptyAllCaches();
    } else {
      emptyCache();
    }
  }
}

bool Pool::exceedsLimit(size_t bytes) const {
  return static_cast<size_t>(stats_.reserved_bytes[0].current) + bytes > limit_bytes_;
}

Pool::Refusal Pool::grow(size_t segment_bytes, size_t lead_bytes, const Recorder& recorder,
                         char** start) {
  if (exceedsLimit(segment_bytes)) {
    return Refusal::kLimit;
  }
  if (!takeHostMemory(segment_bytes)) {
    return Refusal::kHost;
  }
  *start = static_cast<char*>(arena_.take(segment_bytes + lead_bytes));
  if (*start == nullptr) {
    returnHostMemory(segment_bytes);
    return Refusal::kAddressSpace;
  }
  recorder.grown(stats_, segment_bytes);
  return Refusal::kNone;
}

void Pool::release(void* start, size_t segment_bytes, size_t lead_bytes, const Recorder& recorder) {
  arena_.give(start, segment_bytes + lead_bytes);
  returnHostMemory(segment_bytes);
  recorder.released(stats_, segment_bytes);
}

void Pool::emptyCache() {
  std::lock_guard<SpinLock> guard(lock_);
  emptySmall();
  emptyLarge();
}

void Pool::throwOutOfMemory(Refusal refusal, size_t nbytes) {
  const auto [allocated, reserved] = totals();
  const size_t limit = limitBytes();
  const size_t free = limit > reserved ? limit - reserved : 0;
  std::ostringstream text;
  text << "neuron:" << static_cast<int>(device_) << " out of memory: tried to allocate "
       << (refusal == Refusal::kLimit ? bytesText(nbytes, free) : bytesText(nbytes));
  const char* hint = nullptr;
  if (refusal == Refusal::kLimit) {
    text << "; core memory " << bytesText(hbm_bytes_) << " (instance " << instance_
         << ", emulated), ";
    if (limit < hbm_bytes_) {
      text << bytesText(limit) << " of it allowed by the memory fraction, ";
    }
    text << bytesText(free, nbytes) << " free, " << bytesText(allocated) << " allocated, "
         << bytesText(reserved) << " reserved by this process";
    hint =
        "free tensors and call torch.neuron.empty_cache(), use a smaller batch or activation "
        "checkpointing, or emulate cores with more memory (TORCHNEURON_INSTANCE)";
  } else if (refusal == Refusal::kHost) {
    text << ", but the host ran out of memory, not the emulated core: this machine (or its "
            "cgroup) can still give "
         << bytesText(hostMemoryAvailable()) << ", and all neuron devices of this process reserve "
         << bytesText(hostMemoryTaken()) << " of it (" << bytesText(reserved) << " on this device, "
         << bytesText(allocated) << " allocated)";
    hint =
        "free tensors and call torch.neuron.empty_cache(), run fewer processes on this machine, "
        "use a smaller model or batch, or a machine with more memory";
  } else {
    text << ", but the address range of this device has no free piece of that size: "
         << bytesText(arena_.sizeBytes()) << " in all, " << bytesText(reserved) << " reserved";
    if (!arena_.note().empty()) {
      text << " (" << arena_.note() << ")";
    }
    hint = "call torch.neuron.empty_cache(), or raise the limit on virtual memory (ulimit -v)";
  }
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(nbytes), allocated, reserved,
                                     c10::Device(c10::DeviceType::PrivateUse1, device_));
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, text.str(), "\n\nhint: ", hint);
}

void Pool::setFraction(double fraction) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "the memory fraction is ", fraction,
                    ", it must lie between 0 and 1\n\nhint: 1.0 allows all of a core's memory");
  std::lock_guard<SpinLock> guard(lock_);
  limit_bytes_ = static_cast<size_t>(static_cast<double>(hbm_bytes_) * fraction);
}

size_t Pool::limitBytes() {
  std::lock_guard<SpinLock> guard(lock_);
  return limit_bytes_;
}

DeviceStats Pool::stats() {
  std::lock_guard<SpinLock> guard(lock_);
  DeviceStats stats = stats_;
  stats.active = stats.allocation;
  stats.active_bytes = stats.allocated_bytes;
  return stats;
}

std::pair<size_t, size_t> Pool::totals() {
  std::lock_guard<SpinLock> guard(lock_);
  return {static_cast<size_t>(stats_.allocated_bytes[0].current),
          static_cast<size_t>(stats_.reserved_bytes[0].current)};
}

void Pool::resetPeakStats() {
  std::lock_guard<SpinLock> guard(lock_);
  forEachStatArray(stats_, [](auto& stat) { stat.reset_peak(); });
}

void Pool::resetAccumulatedStats() {
  std::lock_guard<SpinLock> guard(lock_);
  forEachStatArray(stats_, [](auto& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
}

void Pool::appendSnapshot(std::vector<SegmentSnapshot>& segments) {
  std::lock_guard<SpinLock> guard(lock_);
  const size_t first = segments.size();
  for (SmallSegment* segment : small_segments_) {
    segments.push_back(smallSnapshot(segment, device_));
  }
  for (Block* block : large_segments_) {
    segments.push_back(largeSnapshot(block, device_));
  }
  for (Block* block : adopted_) {
    segments.push_back(adoptedSnapshot(block));
  }
  for (size_t i = first; i < segments.size(); ++i) {
    segments[i].active_size = segments[i].allocated_size;
    tile(segments[i]);
  }
}

}  // namespace torchneuron
