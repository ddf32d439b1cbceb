// The ledger's raw material: always-on counters, and details with source lines while tracing.
#pragma once

#include "core/op_record.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace torchneuron {

struct SourceLine {
  std::string file;
  int line = 0;
};

enum class TraceKind : uint8_t { kExecuted, kTransfer, kHostSync };

struct TraceRecord {
  TraceKind kind;
  std::string op;
  c10::ScalarType dtype;
  std::string direction;  // of a transfer
  SourceLine where;
  uint64_t count = 0;
  uint64_t bytes = 0;
};

enum class Direction : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };
inline constexpr const char* kDirectionNames[] = {"host_to_device", "device_to_host",
                                                  "device_to_device"};

struct Counter {
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> bytes{0};
};
struct Counters {
  Counter transfers[3];
  std::atomic<uint64_t> host_syncs{0};
};
Counters& counters();

// Set by the Python layer: the first user frame of the calling thread.
using FrameFinder = SourceLine (*)();
void setFrameFinder(FrameFinder finder);

inline std::atomic<bool> tracing{false};
void startTrace();
std::vector<TraceRecord> stopTrace();
void traceSlow(TraceKind kind, const std::string& op, c10::ScalarType dtype, const char* direction,
               uint64_t bytes);

inline void countExecuted(OpRecord& op, c10::ScalarType dtype) {
  op.calls.fetch_add(1, std::memory_order_relaxed);
  if (C10_UNLIKELY(tracing.load(std::memory_order_relaxed))) {
    traceSlow(TraceKind::kExecuted, op.name, dtype, "", 0);
  }
}
void countTransfer(Direction direction, c10::ScalarType dtype, uint64_t bytes);
void countHostSync(const char* op, c10::ScalarType dtype);
void clearCounters();

}  // namespace torchneuron
