// What a thread knows about the neuron kernel it is running.
#pragma once

#include <c10/core/Device.h>

namespace torchneuron {

// The device whose kernel this thread is inside of, or -1. While it is set, CPU allocations of
// this thread come from that device's pool (cpu_allocator.cpp). Initial-exec: one load, no call,
// because every CPU allocation of the process reads it.
inline thread_local c10::DeviceIndex kernelDevice __attribute__((tls_model("initial-exec"))) = -1;

}  // namespace torchneuron
