// at::PrivateUse1HooksInterface: what torch's own C++ asks of the device.
#pragma once

namespace torchneuron {

// Called once, when the extension is loaded.
void registerHooks();

}  // namespace torchneuron
