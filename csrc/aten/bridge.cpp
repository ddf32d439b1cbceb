#include "aten/bridge.h"

#include "aten/twin.h"
#include "core/allocator.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>

namespace torchneuron {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

bool isPlain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_privateuseone() && tensor.layout() == c10::kStrided &&
         !tensor.key_set().has(c10::DispatchKey::Python) && !tensor._fw_grad(0).defined();
}

struct ToDevice;

struct ToHost : torch::autograd::Function<ToHost> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor) {
    context->saved_data["device"] = static_cast<int64_t>(tensor.device().index());
    return at::Tensor(aliasOf(tensor, Access::kRead, /*full=*/true).impl);
  }
  static tensor_list backward(AutogradContext* context, tensor_list grads);
};

struct ToDevice : torch::autograd::Function<ToDevice> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& tensor,
                            int64_t device) {
    auto result = at::empty_strided(
        tensor.sizes(), tensor.strides(),
        tensor.options().device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device)));
    // The graph keeps the CPU tensor, so the memory cannot simply change hands.
    at::Tensor target(aliasOf(result, Access::kWrite, /*full=*/true).impl);
    target.copy_(tensor);
    return result;
  }
  static tensor_list backward(AutogradContext* /*context*/, tensor_list grads) {
    return {grads[0].defined() ? ToHost::apply(grads[0]) : at::Tensor(), at::Tensor()};
  }
};

tensor_list ToHost::backward(AutogradContext* context, tensor_list grads) {
  const auto device = context->saved_data["device"].toInt();
  return {grads[0].defined() ? ToDevice::apply(grads[0], device) : at::Tensor()};
}

// As at::autocast::is_autocast_enabled, whose header includes all of ATen.
bool autocasts() {
  return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastPrivateUse1);
}

}  // namespace

bool partsAreWatched() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

c10::DeviceIndex bridgeDevice(at::ArrayRef<at::Tensor> tensors) {
  if (partsAreWatched() || autocasts()) {
    return -1;
  }
  c10::DeviceIndex device = -1;
  for (const auto& tensor : tensors) {
    if (!isPlain(tensor) || (device >= 0 && tensor.device().index() != device)) {
      return -1;
    }
    device = tensor.device().index();
  }
  return device;
}

at::Tensor crossToHost(const at::Tensor& tensor) {
  return ToHost::apply(tensor);
}

at::Tensor crossToDevice(const at::Tensor& tensor, c10::DeviceIndex device) {
  return ToDevice::apply(tensor, static_cast<int64_t>(device));
}

}  // namespace torchneuron
