#include "core/device.h"

#include "core/pool.h"

#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>

namespace torchneuron {
namespace {

Configurator g_configurator;
void (*g_first_use)() = nullptr;
// Written once under the mutex, then read without it: `g_configured` orders the two.
DeviceConfiguration* g_configuration = nullptr;
std::atomic<bool> g_configured{false};
std::mutex g_publish_mutex;
thread_local c10::DeviceIndex t_current_device = 0;

}  // namespace

void setConfigurator(Configurator configurator) {
  g_configurator = configurator;
}

void setFirstUse(void (*prepare)()) {
  g_first_use = prepare;
}

void publishConfiguration(const DeviceConfiguration& configuration) {
  std::lock_guard<std::mutex> lock(g_publish_mutex);
  if (g_configured.load(std::memory_order_relaxed)) {
    return;
  }
  configurePools(configuration.count, configuration.hbm_bytes, configuration.instance);
  if (g_first_use != nullptr) {
    g_first_use();
  }
  g_configuration = new DeviceConfiguration(configuration);
  g_configured.store(true, std::memory_order_release);
}

bool isConfigured() noexcept {
  return g_configured.load(std::memory_order_acquire);
}

void configure() {
  if (C10_LIKELY(isConfigured())) {
    return;
  }
  TORCH_CHECK(g_configurator.resolve != nullptr,
              "the neuron device is not registered\n\nhint: import torch before torchneuron._C");
  g_configurator.resolve();
}

const DeviceConfiguration& configuration() {
  configure();
  return *g_configuration;
}

c10::DeviceIndex deviceCount() noexcept {
  if (C10_LIKELY(isConfigured())) {
    return g_configuration->count;
  }
  if (g_configurator.tryResolve == nullptr || !g_configurator.tryResolve()) {
    return 0;
  }
  return g_configuration->count;
}

c10::DeviceIndex currentDevice() noexcept {
  return t_current_device;
}

void checkDevice(c10::DeviceIndex index) {
  const auto& known = configuration();
  TORCH_CHECK(index >= 0 && index < known.count, "device neuron:", static_cast<int>(index),
              " does not exist: the emulated ", known.instance, " gives this process ",
              static_cast<int>(known.count), " device(s), neuron:0 to neuron:", known.count - 1,
              " [NRN110]\n\nhint: choose a larger instance with TORCHNEURON_INSTANCE, or see "
              "NEURON_RT_VISIBLE_CORES and NEURON_RT_NUM_CORES");
}

void setCurrentDevice(c10::DeviceIndex index) {
  checkDevice(index);
  t_current_device = index;
}

void uncheckedSetCurrentDevice(c10::DeviceIndex index) noexcept {
  if (index >= 0) {
    t_current_device = index;
  }
}

c10::DeviceIndex resolveIndex(c10::Device device) {
  const auto index = device.has_index() ? device.index() : t_current_device;
  checkDevice(index);
  return index;
}

void enterThreadSlow() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  threadEntered = true;
}

}  // namespace torchneuron
