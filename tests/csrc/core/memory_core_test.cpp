// The memory core without Python: one check per name, run as `memory_core_test NAME...`.
#include "core/device.h"
#include "memory_checks.h"

namespace torchneuron {

// What core/device.cpp answers once Python has configured it.
c10::DeviceIndex currentDevice() noexcept {
  return 3;
}
bool isConfigured() noexcept {
  return true;
}
void configure() {}
void checkDevice(c10::DeviceIndex /*index*/) {}

// Recomputes from the snapshot what the counters say.
void checkCounters(c10::DeviceIndex device) {
  std::map<std::string, int64_t> sums;
  for (const auto& segment : memorySnapshot()) {
    if (segment.device != device) {
      continue;
    }
    const std::string half = segment.is_large ? ".large_pool" : ".small_pool";
    const bool holds_live = segment.allocated_size > 0;
    const auto add = [&](const std::string& name, size_t amount) {
      sums[name + half] += static_cast<int64_t>(amount);
      sums[name + ".all"] += static_cast<int64_t>(amount);
    };
    add("segment", 1);
    add("reserved_bytes", segment.total_size);
    add("allocated_bytes", segment.allocated_size);
    add("active_bytes", segment.active_size);
    add("requested_bytes", segment.requested_size);
    size_t data_bytes = 0;
    for (const auto& block : segment.blocks) {
      data_bytes += block.size;
      add(block.active ? "allocation" : "inactive_split", block.active || holds_live ? 1 : 0);
      CHECK(block.address >= segment.address);
      CHECK(block.address + block.size <= segment.address + segment.total_size);
    }
    CHECK(data_bytes <= segment.total_size);
  }
  for (const char* half : {".all", ".small_pool", ".large_pool"}) {
    for (const char* name : {"segment", "reserved_bytes", "allocated_bytes", "active_bytes",
                             "requested_bytes", "allocation", "inactive_split"}) {
      const std::string key = std::string(name) + half;
      if (sums[key] != stat((key + ".current").c_str(), device)) {
        std::fprintf(stderr, "%s: %ld by the snapshot, %ld counted\n", key.c_str(),
                     static_cast<long>(sums[key]),
                     static_cast<long>(stat((key + ".current").c_str(), device)));
        std::exit(1);
      }
    }
  }
}

}  // namespace torchneuron

int main(int argc, char** argv) {
  using namespace torchneuron;
  configurePools(64, kHbmBytes, "test.xlarge");
  for (int i = 1; i < argc; ++i) {
    const auto found = kPoolChecks.find(argv[i]);
    (found != kPoolChecks.end() ? found->second : kAllocatorChecks.at(argv[i]))();
  }
  return 0;
}
