#include "aten/frame.h"
#include "aten/kernels.h"
#include "aten/unboxed.h"
#include "core/device.h"
#include "core/trace.h"

#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>

#include <cstring>

namespace torchneuron {
namespace {

// Below this a plain memory copy beats setting up a tensor iterator; above it the iterator's
// threads win.
constexpr size_t kPlainCopyBytes = 64 << 10;

bool isNeuron(const at::Tensor& tensor) {
  return tensor.is_privateuseone();
}

void touch(const at::Tensor& tensor, Access access) {
  if (isNeuron(tensor)) {
    const auto& data = tensor.storage().data_ptr();
    if (Block* block = data.get() == nullptr ? nullptr : blockOf(data.get())) {
      hostAccess(block, access);
    }
  }
}

bool isPlainCopy(const at::Tensor& self, const at::Tensor& source) {
  const auto* to = self.unsafeGetTensorImpl();
  const auto* from = source.unsafeGetTensorImpl();
  return to->dtype() == from->dtype() && to->sizes() == from->sizes() &&
         to->strides() == from->strides() && to->is_non_overlapping_and_dense_or_false() &&
         self.nbytes() <= kPlainCopyBytes && self.is_conj() == source.is_conj() &&
         self.is_neg() == source.is_neg() && !self.is_quantized();
}

void copyBytes(OpRecord& record, const at::Tensor& self, const at::Tensor& source) {
  enterThread();
  touch(source, Access::kRead);
  touch(self, Access::kWrite);
  countExecuted(record, self.scalar_type());
  if (self.numel() > 0) {
    std::memmove(self.mutable_data_ptr(), source.const_data_ptr(), self.nbytes());
  }
}

void note(const at::Tensor& self, const at::Tensor& source) {
  if (self.device() == source.device()) {
    return;
  }
  const auto direction = !isNeuron(source) ? Direction::kHostToDevice
                         : isNeuron(self)  ? Direction::kDeviceToDevice
                                           : Direction::kDeviceToHost;
  countTransfer(direction, source.scalar_type(), source.nbytes());
}

void checkOperand(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == c10::kStrided && (tensor.is_cpu() || isNeuron(tensor)),
      "cannot copy between the neuron device and a tensor of layout ", tensor.layout(), " on ",
      tensor.device(), "\n\nhint: copy through a dense CPU tensor");
}

}  // namespace

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static OpRecord& record = opRecord("aten::copy_", "");
  if (self.is_same(source)) {
    return self;
  }
  checkOperand(self);
  checkOperand(source);
  note(self, source);
  checkRefused(record, self.scalar_type());
  if (C10_LIKELY(isPlainCopy(self, source))) {
    copyBytes(record, self, source);
    return self;
  }
  Frame frame(record, MixedDevices::kAllowed);
  BorrowedTensor to(frame, self, Access::kWrite);
  BorrowedTensor from(frame, source, Access::kRead);
  frame.begin();
  at::_ops::copy_::redispatch(kCpuKernel, to.get(), from.get(), non_blocking);
  frame.finish();
  return self;
}

at::Tensor clone(const at::Tensor& self, std::optional<at::MemoryFormat> memory_format) {
  static OpRecord& record = opRecord("aten::clone", "");
  const auto format = memory_format.value_or(at::MemoryFormat::Preserve);
  if (format == at::MemoryFormat::Preserve && !self.is_conj() && !self.is_neg() &&
      isPlainCopy(self, self)) {
    auto result =
        emptyStrided(self.sizes(), self.strides(), self.scalar_type(), {}, self.device(), {});
    copyBytes(record, result, self);
    return result;
  }
  static const auto* kernel = kernelOf<at::_ops::clone>().release();
  return (*kernel)(self, memory_format);
}

at::Tensor copyFrom(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  auto target = destination;
  return copy(target, self, non_blocking);
}

at::Tensor copyFromAndResize(const at::Tensor& self, const at::Tensor& destination) {
  if (destination.sizes() != self.sizes()) {
    destination.resize_(self.sizes());
  }
  return copyFrom(self, destination, /*non_blocking=*/false);
}

at::Scalar localScalar(const at::Tensor& self) {
  touch(self, Access::kRead);
  countHostSync("aten::_local_scalar_dense", self.scalar_type());
  return at::native::_local_scalar_dense_cpu(self);
}

// Work on every stream is done when its call returns.
void recordStream(at::Tensor& /*self*/, c10::Stream /*stream*/) {}

// Whether `self.data = from` may make self what from is: Module.to() relies on it to keep
// parameters the objects that optimizers and tied layers hold.
bool hasCompatibleImpl(const at::Tensor& self, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& tensor) {
    constexpr c10::DispatchKeySet kSpecial{c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                           c10::DispatchKey::NestedTensor,
                                           c10::DispatchKey::Quantized};
    return (tensor.is_cpu() || isNeuron(tensor)) && tensor.layout() == c10::kStrided &&
           !tensor.key_set().has_any(kSpecial);
  };
  return plain(self) && plain(from);
}

}  // namespace torchneuron
