#include "core/op_record.h"

#include "core/fork.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace torchneuron {
namespace {

static_assert(static_cast<int>(c10::ScalarType::NumOptions) <= 64, "dtype masks are 64 bits");

// Ops that take some operand from the CPU on every accelerator of PyTorch: lengths, the bookkeeping
// of nested tensors. Not a namespace variable: kernels are registered while libraries load, in no
// order.
bool mixesDevices(std::string_view base) {
  static constexpr std::string_view kOps[] = {
      "aten::_ctc_loss",
      "aten::_ctc_loss_backward",
      "aten::_pack_padded_sequence",
      "aten::_pack_padded_sequence_backward",
      "aten::copy_",
      "aten::_copy_from",
      "aten::_copy_from_and_resize",
  };
  return base.starts_with("aten::_nested_") ||
         std::find(std::begin(kOps), std::end(kOps), base) != std::end(kOps);
}

// Batch sizes are read on the host, which steps through a packed sequence by them.
uint8_t hostResults(std::string_view base) {
  return base == "aten::_pack_padded_sequence" ? 0b10 : 0;
}

std::string_view baseName(std::string_view full_name) {
  const auto dot = full_name.find('.');
  return dot == std::string_view::npos ? full_name : full_name.substr(0, dot);
}

uint64_t maskOf(const std::vector<c10::ScalarType>& dtypes) {
  uint64_t mask = 0;
  for (const auto dtype : dtypes) {
    mask |= uint64_t{1} << static_cast<unsigned>(dtype);
  }
  return mask;
}

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<OpRecord>> records;
  std::unordered_map<std::string, uint64_t> refused;  // by base name, and "*"
  std::atomic<RefusalHandler> handler{nullptr};

  uint64_t refusedMask(std::string_view key) const {
    const auto found = refused.find(std::string(key));
    return found == refused.end() ? 0 : found->second;
  }
};

Registry& registry() {
  static auto* instance = new Registry;  // leaked: kernels may run during exit
  return *instance;
}

std::mutex& registryMutex() {
  return registry().mutex;
}

[[maybe_unused]] const bool g_held = holdAcrossForks<&registryMutex>();

}  // namespace

OpRecord::OpRecord(std::string full_name)
    : name(std::move(full_name)),
      mixes_devices(mixesDevices(baseName(name))),
      foreign(name.rfind("aten::", 0) != 0),
      host_results(hostResults(baseName(name))) {}

OpRecord& opRecord(const char* name, const char* overload) {
  std::string full_name = name;
  if (*overload != '\0') {
    full_name.append(".").append(overload);
  }
  auto& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto& slot = all.records[full_name];
  if (!slot) {
    slot = std::make_unique<OpRecord>(full_name);
    slot->refused_dtypes = all.refusedMask(baseName(full_name));
  }
  return *slot;
}

void setRefused(const RefusedRows& rows, RefusalHandler handler) {
  auto& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.refused.clear();
  for (const auto& [op, dtypes] : rows) {
    all.refused[op] |= maskOf(dtypes);
  }
  all.handler = handler;
  refusedEverywhere = all.refusedMask("*");
  for (auto& [name, record] : all.records) {
    record->refused_dtypes = all.refusedMask(baseName(name));
  }
}

void refuseSlow(const OpRecord& op, c10::ScalarType dtype) {
  if (const auto handler = registry().handler.load()) {
    handler(op, dtype);
  }
}

std::vector<std::pair<std::string, uint64_t>> executedOps() {
  auto& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (const auto& [name, record] : all.records) {
    if (const auto calls = record->calls.load(std::memory_order_relaxed)) {
      counts.emplace_back(name, calls);
    }
  }
  return counts;
}

void clearOpCounts() {
  auto& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& [name, record] : all.records) {
    record->calls = 0;
  }
}

}  // namespace torchneuron
