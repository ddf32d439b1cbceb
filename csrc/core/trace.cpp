#include "core/trace.h"

#include "core/fork.h"

#include <map>
#include <mutex>
#include <tuple>

namespace torchneuron {
namespace {

using Key = std::tuple<TraceKind, std::string, c10::ScalarType, std::string, std::string, int>;

struct Trace {
  std::mutex mutex;
  std::map<Key, std::pair<uint64_t, uint64_t>> records;  // count, bytes
  FrameFinder finder = nullptr;
};

Trace& trace() {
  static auto* instance = new Trace;  // leaked: kernels may run during exit
  return *instance;
}

std::mutex& traceMutex() {
  return trace().mutex;
}

[[maybe_unused]] const bool g_held = holdAcrossForks<&traceMutex>();

}  // namespace

Counters& counters() {
  static auto* instance = new Counters;
  return *instance;
}

void setFrameFinder(FrameFinder finder) {
  trace().finder = finder;
}

void startTrace() {
  auto& state = trace();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.records.clear();
  tracing = true;
}

std::vector<TraceRecord> stopTrace() {
  auto& state = trace();
  tracing = false;
  std::lock_guard<std::mutex> lock(state.mutex);
  std::vector<TraceRecord> result;
  for (const auto& [key, total] : state.records) {
    const auto& [kind, op, dtype, direction, file, line] = key;
    result.push_back({kind, op, dtype, direction, {file, line}, total.first, total.second});
  }
  state.records.clear();
  return result;
}

void traceSlow(TraceKind kind, const std::string& op, c10::ScalarType dtype, const char* direction,
               uint64_t bytes) {
  auto& state = trace();
  // Finding the frame takes the interpreter lock, so it must come before our own.
  const auto where = state.finder == nullptr ? SourceLine{} : state.finder();
  std::lock_guard<std::mutex> lock(state.mutex);
  auto& total = state.records[Key(kind, op, dtype, direction, where.file, where.line)];
  total.first += 1;
  total.second += bytes;
}

void countTransfer(Direction direction, c10::ScalarType dtype, uint64_t bytes) {
  auto& counter = counters().transfers[static_cast<int>(direction)];
  counter.count.fetch_add(1, std::memory_order_relaxed);
  counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (C10_UNLIKELY(tracing.load(std::memory_order_relaxed))) {
    traceSlow(TraceKind::kTransfer, "aten::copy_", dtype,
              kDirectionNames[static_cast<int>(direction)], bytes);
  }
}

void countHostSync(const char* op, c10::ScalarType dtype) {
  counters().host_syncs.fetch_add(1, std::memory_order_relaxed);
  if (C10_UNLIKELY(tracing.load(std::memory_order_relaxed))) {
    traceSlow(TraceKind::kHostSync, op, dtype, "", 0);
  }
}

void clearCounters() {
  for (auto& counter : counters().transfers) {
    counter.count = 0;
    counter.bytes = 0;
  }
  counters().host_syncs = 0;
}

}  // namespace torchneuron
