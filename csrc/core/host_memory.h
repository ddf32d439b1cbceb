#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace torchneuron {

// Bytes that this machine can still give: the least of MemAvailable and what the process's cgroups
// (v1 or v2, with all their parents) leave, less a margin of 5 % of the total, at most 1 GiB.
// Reads /proc and /sys: call it where a segment grows, not per allocation.
size_t hostMemoryAvailable();

// The same by the files under `root`, which stands for "/"; without the test hook below.
size_t hostMemoryAvailableAt(const std::string& root);

// Test hook: act as if the machine had this much for device memory in all; nullopt asks it again.
void setHostMemoryLimit(std::optional<size_t> limit_bytes);

// Accounts for `bytes` that are about to be reserved, if the machine has them: they must fit into
// what is available now, and with everything reserved before into what was available at first use,
// because reserved memory that nobody touched yet still shows as available.
bool takeHostMemory(size_t bytes);

// Accounts for memory that exists already and was allocated by somebody else.
void chargeHostMemory(size_t bytes);

// Undoes takeHostMemory or chargeHostMemory.
void returnHostMemory(size_t bytes);

// Bytes reserved by all devices of this process.
size_t hostMemoryTaken();

}  // namespace torchneuron
