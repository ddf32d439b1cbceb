// Checks of the allocators over the pools: twins, CPU, pinned memory, profiler, exit, speed.
#include "core/context.h"
#include "core/cpu_allocator.h"
#include "core/host_memory.h"
#include "core/pinned.h"
#include "memory_checks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace torchneuron {
namespace {

bool hand_over = true;
int dropped = 0;

bool releaseTwin(Block* block) {
  if (hand_over) {
    block->twin.store(nullptr);
  }
  return hand_over;
}

void dropTwinOf(Block* block) {
  block->twin.store(nullptr);
  ++dropped;
}

void testTwin() {
  setTwinHooks(&releaseTwin, &dropTwinOf);
  auto* twin = reinterpret_cast<c10::StorageImpl*>(uintptr_t{64});
  auto data = neuronAllocator()->allocateOn(5 * kMiB, 0);
  void* start = data.get();
  blockOf(start)->twin = twin;
  data.clear();
  CHECK(stat("allocation.all.current", 0) == 1);
  deleteDeviceMemory(start);
  CHECK(stat("allocation.all.current", 0) == 0);
  hand_over = false;
  data = neuronAllocator()->allocateOn(64, 0);
  blockOf(data.get())->twin = twin;
  data.clear();
  CHECK(stat("allocation.all.current", 0) == 0);
  data = neuronAllocator()->allocateOn(64, 0);
  CHECK(blockOf(data.get())->twin == twin);  // kept for the next use
  data.clear();
  emptyAllCaches();
  CHECK(dropped == 1);
}

void testCpuAllocator() {
  installCpuAllocator();
  installCpuAllocator();
  auto* cpu = c10::GetAllocator(c10::DeviceType::CPU);
  CHECK(cpu == cpuAllocator());
  auto outside = cpu->allocate(100);
  CHECK(inArena(outside.get()) == -1);
  void* stock_memory = cpu->raw_allocate(1000);
  kernelDevice = 2;
  auto inside = cpu->allocate(100);
  CHECK(inArena(inside.get()) == 2 && inside.device().is_cpu());
  CHECK(inside.get_deleter() == &deleteDeviceMemory && cpu->is_simple_data_ptr(inside));
  void* device_memory = cpu->raw_allocate(1000);
  CHECK(inArena(device_memory) == 2);
  auto cloned = cpu->clone(inside.get(), 100);
  std::thread([&] {
    CHECK(inArena(cpu->allocate(100).get()) == -1);
    inside.clear();
  }).join();
  kernelDevice = -1;
  cpu->raw_deallocate(stock_memory);
  cpu->raw_deallocate(device_memory);
  cloned.clear();
  CHECK(stat("allocation.all.current", 2) == 0);
}

void testPinned() {
  installPinnedAllocator();
  CHECK(at::getHostAllocator(c10::DeviceType::PrivateUse1) == pinnedAllocator());
  auto data = pinnedAllocator()->allocate(10000);
  const auto* bytes = static_cast<const char*>(data.get());
  CHECK(isPinned(bytes) && isPinned(bytes + 9999) && !isPinned(bytes - 1));
  CHECK(!isPinned(bytes + 20000) && data.device().is_cpu());
  CHECK(reinterpret_cast<uintptr_t>(bytes) % 64 == 0);
  CHECK(pinnedAllocator()->get_stats().active_requests.current == 1);
  data.clear();
  CHECK(!isPinned(bytes));
  auto again = pinnedAllocator()->allocate(9990);
  CHECK(again.get() == bytes && pinnedAllocator()->get_stats().num_host_alloc == 1);
  again.clear();
  pinnedAllocator()->empty_cache();
  CHECK(pinnedAllocator()->get_stats().allocated_bytes.current == 0);
  CHECK(pinnedAllocator()->allocate(0).get() == nullptr);
}

struct Reports : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*ptr*/, int64_t bytes, size_t allocated, size_t /*reserved*/,
                         c10::Device device) override {
    sum += bytes;
    last_allocated = allocated;
    is_ours = device == c10::Device(c10::DeviceType::PrivateUse1, 0);
  }
  void reportOutOfMemory(int64_t /*bytes*/, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    ++num_ooms;
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t sum = 0;
  size_t last_allocated = 0;
  int num_ooms = 0;
  bool is_ours = false;
};

void testProfiler() {
  auto reports = std::make_shared<Reports>();
  c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reports);
  auto data = neuronAllocator()->allocateOn(100, 0);
  CHECK(reports->sum == 128 && reports->last_allocated == 128 && reports->is_ours);
  data.clear();
  CHECK(reports->sum == 0 && reports->last_allocated == 0);
  CHECK(!outOfMemoryText([] { neuronAllocator()->allocateOn(2 * kHbmBytes, 0); }).empty());
  CHECK(reports->num_ooms == 1);
}

struct FreedAtExit {
  c10::DataPtr data;
};
FreedAtExit freed_at_exit;

void testExit() {
  freed_at_exit.data = neuronAllocator()->allocateOn(kMiB, 0);
}

double nanosecondsPerStep(int steps, const std::function<void(int)>& run) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run(steps);
    const std::chrono::duration<double, std::nano> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count() / steps);
  }
  return best;
}

void testSpeed() {
  auto* allocator = neuronAllocator();
  const auto report = [](const char* what, double nanoseconds) {
    std::printf("%-40s %7.1f ns\n", what, nanoseconds);
  };
  for (const size_t size : {size_t{64}, size_t{4096}, 3 * kMiB}) {
    const auto name = "allocate + free " + std::to_string(size);
    report(name.c_str(), nanosecondsPerStep(200000, [&](int steps) {
             for (int i = 0; i < steps; ++i) {
               allocator->allocateOn(size, 0);
             }
           }));
  }
  installCpuAllocator();
  auto* wrapper = cpuAllocator();
  c10::Allocator* stock = c10::GetDefaultCPUAllocator();
  for (auto* allocator_of_cpu : {stock, wrapper}) {
    report(allocator_of_cpu == stock ? "CPU 64, stock" : "CPU 64, wrapped",
           nanosecondsPerStep(200000, [&](int steps) {
             for (int i = 0; i < steps; ++i) {
               allocator_of_cpu->allocate(64);
             }
           }));
  }
  report("hostMemoryAvailable", nanosecondsPerStep(500, [](int steps) {
           for (int i = 0; i < steps; ++i) {
             hostMemoryAvailable();
           }
         }));
}

}  // namespace

const Checks kAllocatorChecks{
    {"twin", &testTwin},     {"cpu_allocator", &testCpuAllocator},
    {"pinned", &testPinned}, {"profiler", &testProfiler},
    {"exit", &testExit},     {"speed", &testSpeed},
};

}  // namespace torchneuron
