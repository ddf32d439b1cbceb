// Checks of the pools: blocks, statistics, limits, adoption, threads, fork, address space.
#include "core/host_memory.h"
#include "core/pinned.h"
#include "memory_checks.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace torchneuron {
namespace {

void testBlocks() {
  auto* allocator = neuronAllocator();
  auto first = allocator->allocateOn(100, 0);
  CHECK(first.get() == first.get_context() && first.get_deleter() == &deleteDeviceMemory);
  CHECK(first.device() == c10::Device(c10::DeviceType::PrivateUse1, 0));
  Block* block = blockOf(first.get());
  CHECK(dataOf(block) == first.get() && block->device == 0);
  CHECK(block->size_bytes == 128 && block->requested_bytes == 100);
  CHECK(block->twin == nullptr && block->residency == Residency::kHost && block->flags == 0);
  CHECK(inArena(first.get()) == 0 && inArena(&block) == -1 && blockOf(&block) == nullptr);
  block->residency = Residency::kBoth;
  block->flags = 7;
  void* old = first.get();
  first.clear();
  auto again = allocator->allocateOn(120, 0);
  CHECK(again.get() == old && block->residency == Residency::kHost && block->flags == 0);
  CHECK(allocator->allocate(8).device().index() == 3);
  CHECK(existingPool(5) == nullptr);
  auto empty = allocator->allocateOn(0, 0);
  CHECK(empty.get() == nullptr && empty.device().index() == 0);
  void* raw = allocator->raw_allocate(3 * kMiB);
  CHECK(inArena(raw) == 3);
  allocator->raw_deallocate(raw);
  for (size_t size = 1; size <= 3 * kMiB; size += 1 + size / 9) {
    auto data = allocator->allocateOn(size, 0);
    std::memset(data.get(), 1, size);
    const size_t rounded = blockOf(data.get())->size_bytes;
    CHECK(reinterpret_cast<uintptr_t>(data.get()) % 64 == 0 && rounded >= size);
    CHECK(rounded - size <= 512 + size / 8);
  }
  checkCounters(0);
}

struct Live {
  c10::DataPtr data;
  size_t size;
  unsigned char fill;
};

void checkFill(const Live& live) {
  const auto* bytes = static_cast<const unsigned char*>(live.data.get());
  CHECK(bytes[0] == live.fill && bytes[live.size / 2] == live.fill);
  CHECK(bytes[live.size - 1] == live.fill);
}

void churn(c10::DeviceIndex device, unsigned seed, int steps, bool check_counters) {
  std::mt19937 random(seed);
  std::vector<Live> live;
  for (int step = 0; step < steps; ++step) {
    if (live.empty() || random() % 100 < 52) {
      const double shift = 22.0 * (random() % 1000) / 1000 + (random() % 40 == 0 ? 3 : 0);
      const auto size = static_cast<size_t>(std::exp2(shift)) + random() % 64;
      const auto fill = static_cast<unsigned char>(random());
      auto data = neuronAllocator()->allocateOn(size, device);
      auto* bytes = static_cast<unsigned char*>(data.get());
      bytes[0] = bytes[size / 2] = bytes[size - 1] = fill;
      live.push_back({std::move(data), size, fill});
    } else {
      std::swap(live[random() % live.size()], live.back());
      checkFill(live.back());
      live.pop_back();
    }
    if (random() % 500 == 0) {
      devicePool(device).emptyCache();
    }
    if (check_counters && step % 100 == 0) {
      checkCounters(device);
    }
  }
  for (const auto& entry : live) {
    checkFill(entry);
  }
}

void testChurn() {
  churn(1, 1, 20000, true);
  checkCounters(1);
  CHECK(stat("allocated_bytes.all.current", 1) == 0);
  CHECK(stat("requested_bytes.all.current", 1) == 0);
  CHECK(stat("inactive_split.all.current", 1) == 0);
  CHECK(stat("inactive_split_bytes.all.current", 1) == 0);
  CHECK(stat("allocated_bytes.all.allocated", 1) == stat("allocated_bytes.all.freed", 1));
  neuronAllocator()->emptyCache();
  CHECK(stat("reserved_bytes.all.current", 1) == 0 && stat("segment.all.current", 1) == 0);
  CHECK(stat("num_device_alloc", 1) == stat("num_device_free", 1));
  CHECK(hostMemoryTaken() == 0);
}

void testStatistics() {
  auto* allocator = neuronAllocator();
  auto kept = allocator->allocateOn(100, 0);
  {
    auto big = allocator->allocateOn(16 * kMiB, 0);
    CHECK(stat("allocated_bytes.all.current", 0) == 16 * kMiB + 128);
    CHECK(stat("allocated_bytes.large_pool.current", 0) == 16 * kMiB);
    CHECK(stat("reserved_bytes.large_pool.current", 0) == 16 * kMiB);
    CHECK(stat("requested_bytes.all.current", 0) == 16 * kMiB + 100);
    CHECK(stat("active_bytes.all.peak", 0) == 16 * kMiB + 128);
  }
  CHECK(stat("allocated_bytes.all.peak", 0) == 16 * kMiB + 128);
  allocator->resetPeakStats(0);
  CHECK(stat("allocated_bytes.all.peak", 0) == 128);
  allocator->resetAccumulatedStats(0);
  CHECK(stat("allocation.all.allocated", 0) == 0 && stat("allocation.all.freed", 0) == 0);
  const auto [free_bytes, total_bytes] = allocator->getMemoryInfo(0);
  CHECK(total_bytes == kHbmBytes && free_bytes == kHbmBytes - 18 * kMiB);
  CHECK(allocator->getMemoryInfo(7).first == kHbmBytes && existingPool(7) == nullptr);
  CHECK(stat("segment.all.current", 7) == 0);
}

void testLimit() {
  auto* allocator = neuronAllocator();
  const auto whole = allocator->allocateOn(kHbmBytes, 0);
  CHECK(stat("reserved_bytes.all.current", 0) == kHbmBytes);
  const auto text = outOfMemoryText([&] { allocator->allocateOn(16, 0); });
  CHECK(contains(text,
                 "neuron:0 out of memory: tried to allocate 16 bytes; core memory 1024.00 MiB "
                 "(instance test.xlarge, emulated), 0 bytes free, 1024.00 MiB allocated, "
                 "1024.00 MiB reserved by this process\n\nhint: "));
  CHECK(stat("num_ooms", 0) == 1 && stat("num_alloc_retries", 0) == 1);
  CHECK(!outOfMemoryText([&] { allocator->allocateOn(SIZE_MAX - 5, 1); }).empty());
  CHECK(!outOfMemoryText([&] { allocator->allocateOn(kHbmBytes + 1, 1); }).empty());

  std::vector<c10::DataPtr> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(allocator->allocateOn(128 * kMiB, 1));
  }
  blocks.resize(4);
  CHECK(stat("reserved_bytes.all.current", 1) == kHbmBytes);
  auto half = allocator->allocateOn(kHbmBytes / 2, 1);
  CHECK(stat("reserved_bytes.all.current", 1) == kHbmBytes);
  half.clear();
  blocks.clear();
  CHECK(allocator->allocateOn(kHbmBytes, 1).get() != nullptr);

  std::vector<c10::DataPtr> small;
  small.push_back(allocator->allocateOn(500000, 2));
  small.push_back(allocator->allocateOn(500000, 2));
  small.pop_back();
  devicePool(2).setFraction(double{2 * kMiB} / kHbmBytes);
  for (int i = 0; i < 12; ++i) {
    small.push_back(allocator->allocateOn(70000, 2));
  }
  CHECK(stat("reserved_bytes.all.current", 2) == 2 * kMiB);
  const auto fraction = outOfMemoryText([&] { allocator->allocateOn(5 * kMiB, 2); });
  CHECK(contains(fraction, "2.00 MiB of it allowed by the memory fraction"));
  devicePool(2).setFraction(1.0);
  CHECK(allocator->allocateOn(5 * kMiB, 2).get() != nullptr);
  checkCounters(2);
}

void testHostLimit() {
  auto* allocator = neuronAllocator();
  CHECK(hostMemoryAvailable() > 0);
  setHostMemoryLimit(100 * kMiB);
  CHECK(hostMemoryAvailable() == 100 * kMiB);
  allocator->allocateOn(64 * kMiB, 0).clear();
  CHECK(hostMemoryTaken() == 64 * kMiB);
  auto other = allocator->allocateOn(64 * kMiB, 1);  // what device 0 cached goes back first
  CHECK(hostMemoryTaken() == 64 * kMiB && stat("reserved_bytes.all.current", 0) == 0);
  const auto text = outOfMemoryText([&] { allocator->allocateOn(64 * kMiB, 0); });
  CHECK(contains(text, "the host ran out of memory, not the emulated core"));
  CHECK(contains(text, "can still give 36.00 MiB") && contains(text, "\n\nhint: "));
  CHECK(stat("num_ooms", 0) == 1);
  CHECK(allocator->allocateOn(36 * kMiB, 0).get() != nullptr);
  setHostMemoryLimit(std::nullopt);
  CHECK(allocator->allocateOn(64 * kMiB, 0).get() != nullptr);
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

void testHostFiles() {
  char name[] = "/tmp/memory_core_XXXXXX";
  const std::filesystem::path root = mkdtemp(name);
  const auto available = [&] { return hostMemoryAvailableAt(root.string()); };
  const size_t gib = 1024 * kMiB;
  CHECK(available() > 1024 * gib);  // nothing is known
  // A machine of 10 GiB, 8 of them available, less a margin of 0.5.
  write(root / "proc/meminfo", "MemTotal: 10485760 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
  CHECK(available() == 7 * gib + gib / 2);
  // Version 2: the parent leaves 4 GiB, of which cache that can be dropped counts as free.
  write(root / "proc/self/cgroup", "0::/job/step\n");
  write(root / "sys/fs/cgroup/job/step/memory.max", "max\n");
  write(root / "sys/fs/cgroup/job/memory.max", std::to_string(6 * gib));
  write(root / "sys/fs/cgroup/job/memory.current", std::to_string(3 * gib));
  write(root / "sys/fs/cgroup/job/memory.stat", "file 5\ninactive_file " + std::to_string(gib));
  CHECK(available() == 3 * gib + gib / 2);
  // Version 1 beside it; the path is the host's and does not exist in this container.
  write(root / "proc/self/cgroup", "4:cpu:/\n3:hugetlb,memory:/docker/x\n0::/job/step\n");
  write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * gib));
  write(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(gib));
  CHECK(available() == gib / 2);
  write(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(3 * gib));
  CHECK(available() == 0);
  std::filesystem::remove_all(root);
}

int num_foreign_frees = 0;

void freeForeign(void* context) {
  ++num_foreign_frees;
  std::free(context);
}

void testAdopt() {
  Pool& pool = devicePool(0);
  void* memory = std::malloc(3 * kMiB);
  auto data = pool.adopt(memory, 3 * kMiB, &freeForeign, memory);
  CHECK(data.get() == memory && data.get_context() == memory);
  CHECK(data.get_deleter() == &deleteDeviceMemory && inArena(memory) == -1);
  Block* block = blockOf(memory);
  CHECK(block != nullptr && dataOf(block) == memory && block->size_bytes == 3 * kMiB);
  CHECK(stat("allocated_bytes.all.current", 0) == 3 * kMiB);
  CHECK(stat("reserved_bytes.large_pool.current", 0) == 3 * kMiB);
  checkCounters(0);
  data.clear();
  CHECK(num_foreign_frees == 1 && blockOf(memory) == nullptr);
  CHECK(stat("allocated_bytes.all.current", 0) == 0 && hostMemoryTaken() == 0);
  neuronAllocator()->allocateOn(600 * kMiB, 0).clear();
  void* address = std::malloc(64);
  auto large = pool.adopt(address, 900 * kMiB, &freeForeign, address);  // empties the cache
  void* excess = std::malloc(64);
  CHECK(!outOfMemoryText([&] { pool.adopt(excess, 200 * kMiB, &freeForeign, excess); }).empty());
  CHECK(num_foreign_frees == 2 && blockOf(excess) == nullptr);
  CHECK(stat("num_ooms", 0) == 1);
}

void testCharge() {
  Pool& pool = devicePool(0);
  pool.charge(3 * kMiB);
  CHECK(stat("allocated_bytes.all.current", 0) == 3 * kMiB);
  CHECK(stat("reserved_bytes.large_pool.current", 0) == 3 * kMiB);
  pool.discharge(3 * kMiB);
  CHECK(stat("allocated_bytes.all.current", 0) == 0 && hostMemoryTaken() == 0);
  neuronAllocator()->allocateOn(600 * kMiB, 0).clear();
  pool.charge(900 * kMiB);  // empties the cache
  CHECK(!outOfMemoryText([&] { pool.charge(200 * kMiB); }).empty());
  CHECK(stat("num_ooms", 0) == 1 && stat("allocated_bytes.all.current", 0) == 900 * kMiB);
}

void testThreads() {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<c10::DataPtr> shared;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      churn(static_cast<c10::DeviceIndex>(i % 2), i, 5000, false);
      for (int step = 0; step < 5000; ++step) {
        auto data = neuronAllocator()->allocateOn(64 + step, 0);
        std::lock_guard<std::mutex> guard(mutex);
        shared.push_back(std::move(data));
        if (shared.size() > 20) {
          std::swap(shared.front(), shared.back());
          shared.pop_back();  // most of the time another thread's
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  shared.clear();
  CHECK(stat("allocated_bytes.all.current", 0) == 0);
  checkCounters(0);
  checkCounters(1);
}

void testFork() {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      while (!done) {
        churn(0, i, 200, false);
        pinnedAllocator()->allocate(1000);
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      churn(0, 9, 200, false);
      churn(4, 9, 200, false);
      pinnedAllocator()->allocate(1000);
      devicePool(0).emptyCache();
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  done = true;
  for (auto& thread : threads) {
    thread.join();
  }
}

void testAddressSpace() {
  neuronAllocator()->allocateOn(64, 0);
  CHECK(arenaNote(0).empty());
  const pid_t child = fork();
  if (child == 0) {
    size_t pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    CHECK(std::fscanf(file, "%zu", &pages) == 1);
    const rlim_t bytes = pages * 4096 + (rlim_t{3} << 29);  // 1.5 GiB more
    const rlimit limit{bytes, bytes};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    auto data = neuronAllocator()->allocateOn(600 * kMiB, 1);
    CHECK(inArena(data.get()) == 1);
    CHECK(contains(arenaNote(1), "neuron:1 has 1024.00 MiB of address space instead of 2.00 GiB"));
    const auto none = outOfMemoryText([] { neuronAllocator()->allocateOn(64, 2); });
    CHECK(contains(none, "neuron:2 has no memory: the system refused"));
    auto more = neuronAllocator()->allocateOn(300 * kMiB, 1);
    const auto text = outOfMemoryText([] { neuronAllocator()->allocateOn(124 * kMiB, 1); });
    CHECK(contains(text, "the address range of this device has no free piece of that size"));
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

const Checks kPoolChecks{
    {"blocks", &testBlocks},
    {"churn", &testChurn},
    {"statistics", &testStatistics},
    {"limit", &testLimit},
    {"host_limit", &testHostLimit},
    {"host_files", &testHostFiles},
    {"adopt", &testAdopt},
    {"charge", &testCharge},
    {"threads", &testThreads},
    {"fork", &testFork},
    {"address_space", &testAddressSpace},
};

}  // namespace torchneuron
