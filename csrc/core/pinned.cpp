#include "core/pinned.h"

#include "core/fork.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>

namespace torchneuron {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestBlock = 512;

// Eight steps a doubling: close enough for reuse, at most an eighth is wasted.
size_t roundedSize(size_t nbytes) {
  if (nbytes <= kSmallestBlock) {
    return kSmallestBlock;
  }
  const int exponent = 63 - __builtin_clzll(nbytes - 1);
  const size_t step = size_t{1} << (exponent - 3);
  return (nbytes + step - 1) & ~(step - 1);
}

size_t bucketOf(size_t size) {
  return 63 - static_cast<size_t>(__builtin_clzll(size));
}

void deletePinned(void* data);

class PinnedAllocator final : public at::HostAllocator {
 public:
  PinnedAllocator() = default;

  c10::DataPtr allocate(size_t nbytes) override;
  void free(void* data);
  bool holds(const void* address);

  c10::DeleterFnPtr raw_deleter() const override { return &deletePinned; }
  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }

  // Copies are synchronous: a block is idle once it is freed.
  bool record_event(void* ptr, void* /*ctx*/, c10::Stream /*stream*/) override {
    return holds(ptr);
  }
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  using Clock = std::chrono::steady_clock;

  void* allocateFromSystem(size_t size);
  void emptyCacheLocked();

  std::mutex mutex_;
  std::map<uintptr_t, size_t> live_;  // start -> rounded bytes
  std::unordered_map<size_t, std::vector<void*>> cached_;
  at::HostStats stats_;
};

int64_t microsecondsSince(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

c10::DataPtr PinnedAllocator::allocate(size_t nbytes) {
  if (nbytes == 0) {
    return c10::DataPtr(nullptr, nullptr, &deletePinned, c10::DeviceType::CPU);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, nbytes <= SIZE_MAX / 2, "cannot pin ", nbytes, " bytes");
  const size_t size = roundedSize(nbytes);
  std::lock_guard<std::mutex> guard(mutex_);
  auto& free_blocks = cached_[size];
  void* data = nullptr;
  if (!free_blocks.empty()) {
    data = free_blocks.back();
    free_blocks.pop_back();
  } else {
    data = allocateFromSystem(size);
  }
  live_.emplace(reinterpret_cast<uintptr_t>(data), size);
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(size);
  return c10::DataPtr(data, data, &deletePinned, c10::DeviceType::CPU);
}

void* PinnedAllocator::allocateFromSystem(size_t size) {
  const auto start = Clock::now();
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, size) != 0) {
    emptyCacheLocked();
    const int failure = posix_memalign(&data, kAlignment, size);
    TORCH_CHECK_WITH(
        OutOfMemoryError, failure == 0, "the host has no ",
        c10::CachingAllocator::format_size(size), " left for pinned memory, ",
        c10::CachingAllocator::format_size(static_cast<size_t>(stats_.active_bytes.current)),
        " are in use\n\nhint: free pinned tensors, or use pin_memory=False");
  }
  stats_.allocations.increase(1);
  stats_.allocated_bytes.increase(size);
  ++stats_.num_host_alloc;
  ++stats_.bucket_allocation[bucketOf(size)];
  stats_.host_alloc_time.increase(microsecondsSince(start));
  return data;
}

void PinnedAllocator::free(void* data) {
  std::lock_guard<std::mutex> guard(mutex_);
  const auto found = live_.find(reinterpret_cast<uintptr_t>(data));
  TORCH_INTERNAL_ASSERT(found != live_.end(), "this is not pinned memory");
  const size_t size = found->second;
  live_.erase(found);
  cached_[size].push_back(data);
  stats_.active_requests.decrease(1);
  stats_.active_bytes.decrease(size);
}

bool PinnedAllocator::holds(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> guard(mutex_);
  auto next = live_.upper_bound(wanted);
  if (next == live_.begin()) {
    return false;
  }
  --next;
  return wanted < next->first + next->second;
}

void PinnedAllocator::empty_cache() {
  std::lock_guard<std::mutex> guard(mutex_);
  emptyCacheLocked();
}

void PinnedAllocator::emptyCacheLocked() {
  for (auto& [size, blocks] : cached_) {
    for (void* data : blocks) {
      const auto start = Clock::now();
      std::free(data);
      stats_.allocations.decrease(1);
      stats_.allocated_bytes.decrease(size);
      ++stats_.num_host_free;
      stats_.host_free_time.increase(microsecondsSince(start));
    }
    blocks.clear();
  }
}

at::HostStats PinnedAllocator::get_stats() {
  std::lock_guard<std::mutex> guard(mutex_);
  return stats_;
}

void PinnedAllocator::reset_accumulated_stats() {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations,
                     &stats_.allocated_bytes}) {
    stat->reset_accumulated();
  }
  stats_.host_alloc_time.reset_accumulated();
  stats_.host_free_time.reset_accumulated();
  stats_.num_host_alloc = 0;
  stats_.num_host_free = 0;
}

void PinnedAllocator::reset_peak_stats() {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations,
                     &stats_.allocated_bytes}) {
    stat->reset_peak();
  }
  stats_.host_alloc_time.reset_peak();
  stats_.host_free_time.reset_peak();
}

PinnedAllocator& instance() {
  static auto* allocator = new PinnedAllocator();
  return *allocator;
}

[[maybe_unused]] const bool g_held = holdAcrossForks<&instance>();

void deletePinned(void* data) {
  if (data != nullptr) {
    instance().free(data);
  }
}

}  // namespace

at::HostAllocator* pinnedAllocator() {
  return &instance();
}

void installPinnedAllocator() {
  at::setHostAllocator(c10::DeviceType::PrivateUse1, pinnedAllocator());
}

bool isPinned(const void* address) {
  return instance().holds(address);
}

}  // namespace torchneuron
