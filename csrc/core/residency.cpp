#include "core/residency.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace torchneuron {
namespace {
std::atomic<HostAccessHook> g_hook{nullptr};
}  // namespace

void setHostAccessHook(HostAccessHook hook) {
  g_hook = hook;
}

void hostAccessSlow(Block* block, Access access) {
  const auto hook = g_hook.load();
  TORCH_INTERNAL_ASSERT(hook != nullptr, "a block is off the host and no runtime moves it");
  hook(block, access);
}

}  // namespace torchneuron
