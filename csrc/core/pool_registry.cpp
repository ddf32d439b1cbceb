// The pools of a process: made at a device's first use, never destroyed (memory is freed after
// static destruction too), consistent in a forked child.
#include "core/pool.h"
#include "core/pool_parts.h"

#include <c10/util/Exception.h>

#include <pthread.h>

namespace torchneuron {
namespace {

struct Configuration {
  int count;
  size_t hbm_bytes;
  std::string instance;
};

std::atomic<const Configuration*> g_configuration{nullptr};

std::mutex& creationMutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

// No pool is made while the creation lock is held, so all three handlers see the same pools.
template <typename F>
void forEachPool(F apply) {
  for (auto& entry : pools) {
    if (Pool* pool = entry.load(std::memory_order_acquire)) {
      apply(*pool);
    }
  }
}

void lockAll() {
  creationMutex().lock();
  forEachPool([](Pool& pool) { pool.lock(); });
  adoptedMutex().lock();
}

void unlockAll() {
  adoptedMutex().unlock();
  forEachPool([](Pool& pool) { pool.unlock(); });
  creationMutex().unlock();
}

}  // namespace

std::atomic<Pool*> pools[kMaxDevices];

void configurePools(int count, size_t hbm_bytes, std::string instance) {
  TORCH_INTERNAL_ASSERT(count >= 0 && count <= kMaxDevices, "bad device count ", count);
  const Configuration* unset = nullptr;
  auto* configuration = new Configuration{count, hbm_bytes, std::move(instance)};
  TORCH_INTERNAL_ASSERT(g_configuration.compare_exchange_strong(unset, configuration),
                        "the pools are configured already");
  lockAll();  // makes the locks, so that a fork cannot catch another thread half way through it
  unlockAll();
  pthread_atfork(&lockAll, &unlockAll, &unlockAll);
}

Pool& makePool(c10::DeviceIndex device) {
  const Configuration* configuration = g_configuration.load();
  TORCH_CHECK(configuration != nullptr && device >= 0 && device < configuration->count,
              "device neuron:", static_cast<int>(device), " does not exist, there are ",
              configuration != nullptr ? configuration->count : 0);
  std::unique_lock<std::mutex> guard(creationMutex());
  Pool* pool = pools[device].load(std::memory_order_relaxed);
  if (pool == nullptr) {
    pool = new Pool(device, configuration->hbm_bytes, configuration->instance);
    pools[device].store(pool, std::memory_order_release);
    guard.unlock();  // who shows the warning may allocate
    if (!pool->arenaNote().empty()) {
      TORCH_WARN(pool->arenaNote(), "\n\nhint: raise the limit on virtual memory (ulimit -v)");
    }
  }
  return *pool;
}

Pool* existingPool(c10::DeviceIndex device) {
  return device >= 0 && device < kMaxDevices ? pools[device].load(std::memory_order_acquire)
                                             : nullptr;
}

size_t configuredHbmBytes() {
  const Configuration* configuration = g_configuration.load();
  return configuration != nullptr ? configuration->hbm_bytes : 0;
}

void emptyAllCaches() {
  forEachPool([](Pool& pool) { pool.emptyCache(); });
}

std::string arenaNote(c10::DeviceIndex device) {
  Pool* pool = existingPool(device);
  return pool != nullptr ? pool->arenaNote() : std::string();
}

}  // namespace torchneuron
