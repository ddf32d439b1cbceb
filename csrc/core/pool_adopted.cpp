// Foreign memory in a pool: its record lies in a table instead of before the data.
#include "core/allocator.h"
#include "core/host_memory.h"
#include "core/pool.h"
#include "core/pool_parts.h"

#include <c10/util/Exception.h>

#include <memory>
#include <unordered_map>

namespace torchneuron {
namespace {

using Owner = std::unique_ptr<void, c10::DeleterFnPtr>;

struct AdoptedRecord {
  Block block{};
  Owner owner{nullptr, nullptr};
};

using AdoptedTable = std::unordered_map<void*, std::unique_ptr<AdoptedRecord>>;

// Outlives static destruction, as the pools do. Guarded by adoptedMutex().
AdoptedTable& adoptedTable() {
  static auto* table = new AdoptedTable();
  return *table;
}

const Recorder& recorderOf(size_t nbytes) {
  return nbytes > kSmallLimit ? kLargeRecorder : kSmallRecorder;
}

// False where the address is adopted already.
bool remember(std::unique_ptr<AdoptedRecord> record) {
  std::lock_guard<std::mutex> guard(adoptedMutex());
  void* data = record->block.foreign;
  return adoptedTable().emplace(data, std::move(record)).second;
}

void forget(void* data) {
  std::unique_ptr<AdoptedRecord> record;  // frees the memory after the table is unlocked
  std::lock_guard<std::mutex> guard(adoptedMutex());
  const auto found = adoptedTable().find(data);
  record = std::move(found->second);
  adoptedTable().erase(found);
}

}  // namespace

std::mutex& adoptedMutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

Block* adoptedBlock(void* data) {
  std::lock_guard<std::mutex> guard(adoptedMutex());
  const auto found = adoptedTable().find(data);
  return found != adoptedTable().end() ? &found->second->block : nullptr;
}

bool Pool::tryCharge(size_t nbytes, bool is_retry) {
  std::lock_guard<SpinLock> guard(lock_);
  if (exceedsLimit(nbytes)) {
    ++(is_retry ? stats_.num_ooms : stats_.num_alloc_retries);
    return false;
  }
  chargeHostMemory(nbytes);
  const Recorder& recorder = recorderOf(nbytes);
  recorder.grown(stats_, nbytes);
  recorder.allocated(stats_, nbytes, nbytes);
  return true;
}

void Pool::charge(size_t nbytes) {
  if (!tryCharge(nbytes, /*is_retry=*/false)) {
    emptyCache();
    if (!tryCharge(nbytes, /*is_retry=*/true)) {
      throwOutOfMemory(Refusal::kLimit, nbytes);
    }
  }
}

void Pool::discharge(size_t nbytes) {
  std::lock_guard<SpinLock> guard(lock_);
  const Recorder& recorder = recorderOf(nbytes);
  recorder.freed(stats_, nbytes, nbytes);
  recorder.released(stats_, nbytes);
  returnHostMemory(nbytes);
}

void Pool::freeAdopted(Block* block) {
  discharge(block->size_bytes);
  {
    std::lock_guard<SpinLock> guard(lock_);
    adopted_.erase(block);
  }
  forget(block->foreign);
}

c10::DataPtr Pool::adopt(void* ptr, size_t nbytes, c10::DeleterFnPtr deleter, void* ctx) {
  const c10::Device device(c10::DeviceType::PrivateUse1, device_);
  Owner owner(ctx, deleter);
  if (ptr == nullptr || nbytes == 0) {
    return c10::DataPtr(nullptr, device);
  }
  TORCH_INTERNAL_ASSERT(inArena(ptr) < 0, "device memory cannot be adopted");
  auto record = std::make_unique<AdoptedRecord>();
  record->owner = std::move(owner);
  Block* block = &record->block;
  block->extent_bytes = nbytes;
  block->foreign = ptr;
  block->device = device_;
  block->size_class = kLargeClass;
  activate(block, nbytes, nbytes);
  block->state = BlockState::kAdopted;
  TORCH_INTERNAL_ASSERT(remember(std::move(record)), "the memory at ", ptr, " is adopted already");
  try {
    charge(nbytes);
  } catch (...) {
    forget(ptr);
    throw;
  }
  {
    std::lock_guard<SpinLock> guard(lock_);
    adopted_.insert(block);
  }
  return c10::DataPtr(ptr, ptr, &deleteDeviceMemory, device);
}

}  // namespace torchneuron
