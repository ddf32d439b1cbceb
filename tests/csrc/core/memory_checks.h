// What the checks of the memory core share. A check is a function without arguments.
#pragma once

#include "core/allocator.h"
#include "core/pool.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

namespace torchneuron {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kHbmBytes = size_t{1} << 30;

using Checks = std::map<std::string, void (*)()>;
extern const Checks kPoolChecks;
extern const Checks kAllocatorChecks;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

inline std::string outOfMemoryText(const std::function<void()>& act) {
  try {
    act();
  } catch (const c10::OutOfMemoryError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline int64_t stat(const char* name, c10::DeviceIndex device) {
  return flatStatistics(neuronAllocator()->getDeviceStats(device)).at(name);
}

// Recomputes from the snapshot what the counters say.
void checkCounters(c10::DeviceIndex device);

}  // namespace torchneuron
