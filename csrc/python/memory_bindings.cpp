#include "python/memory_bindings.h"

#include "core/allocator.h"
#include "core/device.h"
#include "core/host_memory.h"
#include "core/pool.h"
#include "core/residency.h"
#include "core/statistics.h"

#include <torch/csrc/Exceptions.h>

namespace py = pybind11;

namespace torchneuron {
namespace {

py::dict blockDict(const BlockSnapshot& block) {
  py::dict result;
  result["address"] = block.address;
  result["size"] = block.size;
  result["requested_size"] = block.requested_size;
  result["state"] = block.active ? "active_allocated" : "inactive";
  result["frames"] = py::list();
  return result;
}

py::dict segmentDict(const SegmentSnapshot& segment) {
  py::dict result;
  result["device"] = static_cast<int>(segment.device);
  result["address"] = segment.address;
  result["total_size"] = segment.total_size;
  result["allocated_size"] = segment.allocated_size;
  result["active_size"] = segment.active_size;
  result["requested_size"] = segment.requested_size;
  result["stream"] = 0;
  result["segment_type"] = segment.is_large ? "large" : "small";
  result["segment_pool_id"] = py::make_tuple(0, 0);
  result["is_expandable"] = false;
  result["frames"] = py::list();
  py::list blocks;
  for (const auto& block : segment.blocks) {
    blocks.append(blockDict(block));
  }
  result["blocks"] = std::move(blocks);
  return result;
}

c10::DeviceIndex checked(int index) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  checkDevice(device);
  return device;
}

void setFraction(double fraction, int index) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1,
                    "the memory fraction of a process must be between 0 and 1, got ", fraction);
  devicePool(checked(index)).setFraction(fraction);
}

// For tests of the residency protocol: acts as a runtime whose memory the host cannot address,
// and keeps what it was asked for.
std::vector<std::string>& residencyLog() {
  static auto* log = new std::vector<std::string>;
  return *log;
}

void logHostAccess(Block* block, Access access) {
  residencyLog().emplace_back(access == Access::kWrite ? "write" : "read");
  block->residency = access == Access::kWrite ? Residency::kHost : Residency::kBoth;
}

void moveToDeviceForTest(const at::Tensor& tensor) {
  setHostAccessHook(&logHostAccess);
  blockOf(tensor.storage().data_ptr().get())->residency = Residency::kDevice;
}

std::vector<std::string> takeResidencyLog() {
  return std::exchange(residencyLog(), {});
}

}  // namespace

void bindMemory(py::module_& module) {
  module.def("memory_stats", torch::wrap_pybind_function([](int device) {
               return flatStatistics(devicePool(checked(device)).stats());
             }),
             py::arg("device"));
  module.def("memory_info", torch::wrap_pybind_function([](int device) {
               return neuronAllocator()->getMemoryInfo(checked(device));
             }),
             py::arg("device"));
  module.def("memory_snapshot", torch::wrap_pybind_function([]() {
               py::list segments;
               for (const auto& segment : memorySnapshot()) {
                 segments.append(segmentDict(segment));
               }
               return segments;
             }));
  module.def("empty_cache", torch::wrap_pybind_function([]() { emptyAllCaches(); }));
  module.def("reset_peak_memory_stats", torch::wrap_pybind_function([](int device) {
               devicePool(checked(device)).resetPeakStats();
             }),
             py::arg("device"));
  module.def("reset_accumulated_memory_stats", torch::wrap_pybind_function([](int device) {
               devicePool(checked(device)).resetAccumulatedStats();
             }),
             py::arg("device"));
  module.def("set_memory_fraction", torch::wrap_pybind_function(setFraction), py::arg("fraction"),
             py::arg("device"));
  module.def("arena_note",
             torch::wrap_pybind_function([](int device) { return arenaNote(checked(device)); }),
             py::arg("device"));
  module.def("host_memory_available", []() { return hostMemoryAvailable(); });
  module.def("set_host_memory_limit", &setHostMemoryLimit, py::arg("limit_bytes"));
  module.def("residency_test_move", &moveToDeviceForTest, py::arg("tensor"));
  module.def("residency_test_log", &takeResidencyLog);
}

}  // namespace torchneuron
