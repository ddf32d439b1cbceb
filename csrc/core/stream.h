// Streams are identities: the emulated device is synchronous, so all work is done when a call
// returns. Each thread keeps one current stream per device.
#pragma once

#include <c10/core/Stream.h>

namespace torchneuron {

c10::Stream defaultStream(c10::DeviceIndex device) noexcept;
c10::Stream currentStream(c10::DeviceIndex device) noexcept;
c10::Stream exchangeStream(c10::Stream stream) noexcept;
c10::Stream newStream(c10::DeviceIndex device) noexcept;

}  // namespace torchneuron
