#include "core/hooks.h"

#include "core/allocator.h"
#include "core/arena.h"
#include "core/block.h"
#include "core/device.h"
#include "core/generator.h"
#include "core/pinned.h"
#include "core/storage.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace torchneuron {
namespace {

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return torchneuron::deviceCount() > 0; }
  void init() const override { configure(); }
  // The device has no context of its own: it is ready as soon as it is configured.
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return isConfigured() && index >= 0 && index < torchneuron::deviceCount();
  }

  c10::DeviceIndex deviceCount() const override { return torchneuron::deviceCount(); }
  c10::DeviceIndex getCurrentDevice() const override { return currentDevice(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    torchneuron::setCurrentDevice(index);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto previous = currentDevice();
    torchneuron::setCurrentDevice(index);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    const auto previous = currentDevice();
    uncheckedSetCurrentDevice(index);
    return previous;
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return defaultGenerator(index < 0 ? currentDevice() : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return makeGenerator(resolveIndex(c10::Device(c10::kPrivateUse1, index)));
  }

  at::Device getDeviceFromPtr(void* data) const override {
    // Not only block starts: an exported view points into its block.
    const auto index = inArena(data);
    const auto* adopted = index < 0 ? adoptedBlock(data) : nullptr;
    TORCH_CHECK(index >= 0 || adopted != nullptr, "the pointer ", data,
                " is not memory of a neuron device");
    return at::Device(c10::kPrivateUse1,
                      adopted != nullptr ? adopted->device : static_cast<c10::DeviceIndex>(index));
  }
  bool isPinnedPtr(const void* data) const override { return isPinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinnedAllocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resizeStorage(storage.unsafeGetStorageImpl(), nbytes);
  }
};

}  // namespace

void registerHooks() {
  static auto* hooks = new NeuronHooks;  // torch keeps the pointer for the process's life
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace torchneuron
