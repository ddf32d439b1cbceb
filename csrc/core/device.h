// The devices of this process: how many, which is current, and the one-time configuration.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace torchneuron {

struct DeviceConfiguration {
  c10::DeviceIndex count = 0;
  size_t hbm_bytes = 0;  // of one device
  std::string instance;
};

// Installed once by the Python layer, which alone reads the environment. `resolve` may throw;
// `tryResolve` never does and answers whether the configuration is now known.
struct Configurator {
  void (*resolve)() = nullptr;
  bool (*tryResolve)() noexcept = nullptr;
};
void setConfigurator(Configurator configurator);

// Called once, before the configuration is published: what only a program that uses the device
// needs is not worth the time of every `import torch`.
void setFirstUse(void (*prepare)());

// Publishes the configuration and readies the pools. The first call wins.
void publishConfiguration(const DeviceConfiguration& configuration);
bool isConfigured() noexcept;
// Resolves the configuration if that has not happened; throws what the configurator throws.
void configure();
const DeviceConfiguration& configuration();

// 0 where the configuration cannot be resolved: torch asks from noexcept functions and from
// programs that only use the CPU.
c10::DeviceIndex deviceCount() noexcept;
c10::DeviceIndex currentDevice() noexcept;
// Throws where `index` names no device.
void setCurrentDevice(c10::DeviceIndex index);
void uncheckedSetCurrentDevice(c10::DeviceIndex index) noexcept;
void checkDevice(c10::DeviceIndex index);
// The device meant by a device argument: its own index, else the current one. Checked.
c10::DeviceIndex resolveIndex(c10::Device device);

// To be called at a thread's first neuron act. Backward then runs in the calling thread, as it
// does for CPU: the autograd engine was started when it knew no neuron device and has no
// threads for ours.
void enterThreadSlow();
inline thread_local bool threadEntered __attribute__((tls_model("initial-exec"))) = false;
inline void enterThread() {
  if (C10_UNLIKELY(!threadEntered)) {
    enterThreadSlow();
  }
}

}  // namespace torchneuron
