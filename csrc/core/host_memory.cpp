#include "core/host_memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <map>
#include <string>

namespace torchneuron {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
constexpr size_t kLargestMargin = size_t{1} << 30;

std::atomic<size_t> g_taken{0};
std::atomic<size_t> g_limit{kUnlimited};  // of the test hook
// The most that was ever seen available before anything of ours was counted; 0 before first use.
std::atomic<size_t> g_capacity{0};

size_t lessBy(size_t bytes, size_t amount) {
  return bytes > amount ? bytes - amount : 0;
}

// The lines "name number ..." of a file; empty where it cannot be read.
std::map<std::string, size_t> readFields(const std::string& path) {
  std::ifstream file(path);
  std::map<std::string, size_t> fields;
  std::string name;
  size_t number = 0;
  while (file >> name >> number) {
    fields[name] = number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return fields;
}

// The number in a file that holds one; unlimited where it says "max" or cannot be read.
size_t readNumber(const std::string& path) {
  std::ifstream file(path);
  size_t number = 0;
  return file >> number ? number : kUnlimited;
}

struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat
};

constexpr CgroupFiles kVersion1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                "/memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kVersion2{"/sys/fs/cgroup", "/memory.max", "/memory.current",
                                "inactive_file"};

// What one cgroup leaves of `machine_bytes`; page cache that can be dropped counts as free.
size_t leftInGroup(const CgroupFiles& files, const std::string& folder, size_t machine_bytes) {
  const size_t limit = readNumber(folder + files.limit);
  if (limit >= machine_bytes) {
    return kUnlimited;
  }
  const size_t usage = readNumber(folder + files.usage);
  if (usage == kUnlimited) {
    return kUnlimited;
  }
  const size_t cache = readFields(folder + "/memory.stat")[files.reclaimable];
  return lessBy(limit, lessBy(usage, cache));
}

// The least of what the cgroup at `path` and its parents leave. In a container the path may be the
// host's, which does not exist here; the walk up then still meets the container's own group.
size_t leftInGroups(const CgroupFiles& files, const std::string& root, std::string path,
                    size_t machine_bytes) {
  size_t left = kUnlimited;
  while (true) {
    left = std::min(left, leftInGroup(files, root + files.mount + path, machine_bytes));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return left;
    }
    path.resize(slash);
  }
}

// Lines of /proc/self/cgroup read "id:controllers:/path"; version 2 has id 0 and no controllers.
size_t leftInOwnGroups(const std::string& root, size_t machine_bytes) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  size_t left = kUnlimited;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      left = std::min(left, leftInGroups(kVersion2, root, path, machine_bytes));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, leftInGroups(kVersion1, root, path, machine_bytes));
    }
  }
  return left;
}

}  // namespace

size_t hostMemoryAvailableAt(const std::string& root) {
  const auto fields = readFields(root + "/proc/meminfo");
  const auto total = fields.find("MemTotal:");
  const auto available = fields.find("MemAvailable:");
  // Where the system does not say what it has, only the cgroups limit us.
  const bool is_known = total != fields.end() && available != fields.end();
  const size_t total_bytes = is_known ? total->second << 10 : kUnlimited;
  const size_t available_bytes = is_known ? available->second << 10 : kUnlimited;
  const size_t margin = std::min(total_bytes / 20, kLargestMargin);
  return lessBy(std::min(available_bytes, leftInOwnGroups(root, total_bytes)), margin);
}

size_t hostMemoryAvailable() {
  const size_t limit = g_limit.load();
  return limit != kUnlimited ? lessBy(limit, g_taken.load()) : hostMemoryAvailableAt("");
}

void setHostMemoryLimit(std::optional<size_t> limit_bytes) {
  g_limit = limit_bytes.value_or(kUnlimited);
}

bool takeHostMemory(size_t bytes) {
  const size_t now = hostMemoryAvailable();
  size_t capacity = g_limit.load();
  if (capacity == kUnlimited) {
    capacity = g_capacity.load();
    while (now > capacity && !g_capacity.compare_exchange_weak(capacity, now)) {
    }
    capacity = std::max(capacity, now);
  }
  if (bytes > now) {
    return false;
  }
  if (g_taken.fetch_add(bytes) + bytes > capacity) {
    g_taken.fetch_sub(bytes);
    return false;
  }
  return true;
}

void chargeHostMemory(size_t bytes) {
  g_taken.fetch_add(bytes);
}

void returnHostMemory(size_t bytes) {
  g_taken.fetch_sub(bytes);
}

size_t hostMemoryTaken() {
  return g_taken.load();
}

}  // namespace torchneuron
