// One record per operator overload: what the ledger counts and what the target refuses.
#pragma once

#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace torchneuron {

struct OpRecord {
  explicit OpRecord(std::string full_name);

  std::string name;  // "aten::add.Tensor", "aten::relu"
  std::atomic<uint64_t> calls{0};
  // Bit per ScalarType that the active target refuses for this op in its first tensor, which
  // decides what it computes in: the others may be indices.
  std::atomic<uint64_t> refused_dtypes{0};
  // An operand may stay on the CPU beside neuron operands, as it may beside CUDA ones.
  bool mixes_devices = false;
  // Of another namespace than aten: its kernel may keep what it is given, or be Python.
  bool foreign = false;
  // Bit per result that lives on the CPU by definition, whatever device computed it.
  uint8_t host_results = 0;
};

// Finds or makes the record; records live as long as the process.
OpRecord& opRecord(const char* name, const char* overload);

// (op name without overload, or "*" for every tensor of every op; dtypes)
using RefusedRows = std::vector<std::pair<std::string, std::vector<c10::ScalarType>>>;
// Is told of a refused dtype before the op computes; may throw.
using RefusalHandler = void (*)(const OpRecord& op, c10::ScalarType dtype);
void setRefused(const RefusedRows& rows, RefusalHandler handler);

void refuseSlow(const OpRecord& op, c10::ScalarType dtype);
inline std::atomic<uint64_t> refusedEverywhere{0};

inline void checkRefused(const OpRecord& op, uint64_t mask, c10::ScalarType dtype) {
  if (C10_UNLIKELY((mask >> static_cast<unsigned>(dtype)) & 1)) {
    refuseSlow(op, dtype);
  }
}
// For each tensor that goes in or comes out.
inline void checkRefused(const OpRecord& op, c10::ScalarType dtype) {
  checkRefused(op, refusedEverywhere.load(std::memory_order_relaxed), dtype);
}
inline void checkFirstRefused(const OpRecord& op, c10::ScalarType dtype) {
  checkRefused(op, op.refused_dtypes.load(std::memory_order_relaxed), dtype);
}

// Is told of sparse tensors that go in or come out; null where nobody asks. May throw.
using SparseRefusalHandler = void (*)(const OpRecord& op, c10::Layout layout);
inline std::atomic<SparseRefusalHandler> sparseRefusal{nullptr};

inline void checkSparse(const OpRecord& op, c10::Layout layout) {
  if (const auto handler = sparseRefusal.load(std::memory_order_relaxed);
      C10_UNLIKELY(handler != nullptr)) {
    handler(op, layout);
  }
}

std::vector<std::pair<std::string, uint64_t>> executedOps();
void clearOpCounts();

}  // namespace torchneuron
