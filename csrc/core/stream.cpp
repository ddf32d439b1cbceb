#include "core/stream.h"

#include <array>
#include <atomic>
#include <limits>

namespace torchneuron {
namespace {

constexpr size_t kMaxDevices = std::numeric_limits<c10::DeviceIndex>::max();
thread_local std::array<c10::StreamId, kMaxDevices> t_current_streams{};
std::atomic<c10::StreamId> g_next_stream{1};

c10::Stream makeStream(c10::DeviceIndex device, c10::StreamId id) noexcept {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

}  // namespace

c10::Stream defaultStream(c10::DeviceIndex device) noexcept {
  return makeStream(device, 0);
}

c10::Stream currentStream(c10::DeviceIndex device) noexcept {
  return makeStream(device, t_current_streams[device]);
}

c10::Stream exchangeStream(c10::Stream stream) noexcept {
  const auto device = stream.device_index();
  const auto previous = currentStream(device);
  t_current_streams[device] = stream.id();
  return previous;
}

c10::Stream newStream(c10::DeviceIndex device) noexcept {
  return makeStream(device, g_next_stream.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace torchneuron
