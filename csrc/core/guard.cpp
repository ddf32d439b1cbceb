// c10::DeviceGuardImplInterface: current device, streams and events of neuron.
//
// Events are timestamps: when `record` is called all earlier work has finished.
#include "core/device.h"
#include "core/stream.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <chrono>

namespace torchneuron {
namespace {

using Clock = std::chrono::steady_clock;

struct EventState {
  Clock::time_point recorded_at;
};

class NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto previous = getDevice();
    if (device.index() != previous.index()) {
      setDevice(device);
    }
    return previous;
  }
  c10::Device getDevice() const override { return c10::Device(c10::kPrivateUse1, currentDevice()); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      setCurrentDevice(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    uncheckedSetCurrentDevice(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return torchneuron::deviceCount(); }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    indexOf(device);
    return {};
  }

  // The engine asks for streams on the thread that calls backward.
  c10::Stream getStream(c10::Device device) const override {
    enterThread();
    return currentStream(indexOf(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return defaultStream(indexOf(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return newStream(resolveIndex(device));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return newStream(resolveIndex(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    checkDevice(stream.device_index());
    return torchneuron::exchangeStream(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  bool queryStream(const c10::Stream& stream) const override {
    checkDevice(stream.device_index());
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    checkDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { checkDevice(index); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(),
                "an event of neuron:", static_cast<int>(index),
                " cannot be recorded on a stream of neuron:",
                static_cast<int>(stream.device_index()), "\n\nhint: make an event for each device");
    checkDevice(stream.device_index());
    if (*event == nullptr) {
      *event = new EventState;
    }
    static_cast<EventState*>(*event)->recorded_at = Clock::now();
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<EventState*>(event);
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*index*/) const override {
    const auto elapsed =
        static_cast<EventState*>(end)->recorded_at - static_cast<EventState*>(start)->recorded_at;
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }

 private:
  // As `resolveIndex`, but leaves the device unused where no index is to be checked.
  static c10::DeviceIndex indexOf(c10::Device device) {
    return device.has_index() ? resolveIndex(device) : currentDevice();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NeuronGuard)

}  // namespace
}  // namespace torchneuron
