#include "aten/registrar.h"

#include <deque>

namespace torchneuron {
namespace {

// Registrations end with their handles, and ours last as long as the process.
void keep(c10::RegistrationHandleRAII handle) {
  static auto* handles = new std::deque<c10::RegistrationHandleRAII>;
  handles->push_back(std::move(handle));
}

}  // namespace

void Registrar::impl(c10::OperatorName name, c10::KernelFunction kernel) {
  keep(c10::Dispatcher::singleton().registerImpl(std::move(name), key_, std::move(kernel),
                                                 std::nullopt, nullptr, "torchneuron"));
}

void Registrar::fallback(c10::KernelFunction kernel) {
  keep(c10::Dispatcher::singleton().registerFallback(key_, std::move(kernel), "torchneuron"));
}

}  // namespace torchneuron
