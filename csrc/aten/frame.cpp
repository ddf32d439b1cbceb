#include "aten/frame.h"

#include "core/device.h"
#include "core/trace.h"

namespace torchneuron {
namespace {
constexpr c10::DispatchKeySet kMathBits{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
}  // namespace

Frame::Frame(OpRecord& op, MixedDevices mixed)
    : op_(op),
      below_autograd_(op.foreign ? c10::DispatchKeySet() : kBelowAutograd),
      outer_device_(kernelDevice),
      mixed_(mixed) {
  enterThread();
}

Frame::~Frame() {
  if (!finished_) {
    try {
      finish();
    } catch (...) {
      // An error is on its way already, and it is the one to report.
    }
  }
  kernelDevice = outer_device_;
  if (C10_UNLIKELY(sparse_ != nullptr)) {
    giveBackSparse();
  }
  for (auto& slot : slots_) {
    putBack(std::move(slot.alias));
  }
}

c10::TensorImpl* Frame::alias(const at::Tensor& tensor, Access access) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->device_type() != c10::kPrivateUse1)) {
    noteForeign(tensor, access);
    return impl;
  }
  const auto index = impl->device().index();
  if (device_ < 0) {
    device_ = index;
  } else if (C10_UNLIKELY(index != device_) && mixed_ == MixedDevices::kRefused) {
    off_device_ = &tensor;
  }
  checkRefused(op_, c10::typeMetaToScalarType(impl->dtype()));
  writes_ |= access == Access::kWrite;
  for (const auto& slot : slots_) {
    // The same tensor twice must stay the same tensor for the kernel (x.add_(x)).
    if (C10_UNLIKELY(slot.original->unsafeGetTensorImpl() == impl)) {
      slots_.push_back({&tensor, {slot.alias.impl, nullptr}, access});
      return slots_.back().impl();
    }
  }
  if (C10_UNLIKELY(!impl->has_storage())) {
    return aliasSparse(tensor, access);
  }
  slots_.push_back({&tensor, aliasOf(tensor, access, op_.foreign), access});
  return slots_.back().impl();
}

void Frame::noteForeign(const at::Tensor& tensor, Access access) {
  const bool scalar_operand = tensor.is_cpu() && tensor.dim() == 0 && access == Access::kRead;
  if (!scalar_operand && !op_.mixes_devices) {
    off_device_ = &tensor;
  }
}

// CUDA's rule: what is indexed comes first and decides the device; an index follows it from the
// CPU for free, but not from a device to the CPU.
at::Tensor Frame::sharedIndex(const at::Tensor& index, Access access) {
  const bool on_host = index.is_cpu();
  TORCH_CHECK(on_host || device_ >= 0 || !index.is_privateuseone(),
              "indices should be either on cpu or on the same device as the indexed tensor, but "
              "found indices on ",
              index.device(), " for a tensor that is not there (in ", op_.name,
              ")\n\nhint: move the index with .cpu(), or the tensor with .to(\"", index.device(),
              "\")");
  return on_host && device_ >= 0 ? index : sharedAlias(index, access);
}

void Frame::place(c10::Device device) {
  if (device_ < 0) {
    if (device.type() == c10::kPrivateUse1) {
      device_ = resolveIndex(device);
    }
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(device.type() == c10::kPrivateUse1 && resolveIndex(device) == device_,
                              op_.name, " cannot put its result on ", device,
                              ": its operands are on neuron:", static_cast<int>(device_),
                              "\n\nhint: leave out the device, then move the result with .to(\"",
                              device, "\")");
}

void Frame::begin() {
  if (C10_UNLIKELY(device_ < 0)) {
    TORCH_CHECK(off_device_ == nullptr, "Expected a '", off_device_->device().type(),
                "' device type for generator but found 'neuron' (in ", op_.name,
                ")\n\nhint: draw on the neuron device, or from a generator of the tensor's device");
    device_ = resolveIndex(c10::Device(c10::kPrivateUse1));
  }
  if (C10_UNLIKELY(off_device_ != nullptr)) {
    failMixed();
  }
  auto dtype = c10::ScalarType::Undefined;
  if (!slots_.empty()) {
    dtype = c10::typeMetaToScalarType(slots_[0].impl()->dtype());
    checkFirstRefused(op_, dtype);
  }
  countExecuted(op_, dtype);
  kernelDevice = device_;
}

void Frame::failMixed() const {
  TORCH_CHECK(
      false,
      "Expected all tensors to be on the same device, but found at least two devices, neuron:",
      static_cast<int>(device_), " and ", off_device_->device(), "! (in ", op_.name,
      ")\n\nhint: move the operand with .to(\"neuron:", static_cast<int>(device_), "\")");
}

void Frame::finish() {
  finished_ = true;
  kernelDevice = outer_device_;
  if (writes_) {
    for (auto& slot : slots_) {
      if (slot.access == Access::kWrite) {
        carryOver(slot);
      }
    }
  }
}

void Frame::carryOver(Slot& slot) {
  auto* impl = slot.original->unsafeGetTensorImpl();
  auto* alias = slot.impl();
  if (C10_UNLIKELY(!alias->has_storage())) {
    carryOverSparse(slot);
    return;
  }
  if (C10_UNLIKELY(adoptTwinResize(impl->unsafe_storage().unsafeGetStorageImpl(),
                                   alias->unsafe_storage().unsafeGetStorageImpl()))) {
    slot.alias.home = nullptr;  // that block is gone
  }
  if (impl->key_set().has(c10::DispatchKey::NestedTensor)) {
    return;  // its sizes are tensors, which both share
  }
  if (C10_UNLIKELY(impl->storage_offset() != alias->storage_offset() ||
                   impl->sizes() != alias->sizes() || impl->strides() != alias->strides())) {
    impl->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
  }
  if (C10_UNLIKELY(((impl->key_set() ^ alias->key_set()) & kMathBits) != c10::DispatchKeySet())) {
    impl->_set_conj(alias->is_conj());
    impl->_set_neg(alias->is_neg());
  }
}

at::Tensor Frame::wrap(at::Tensor result) {
  if (C10_UNLIKELY(!result.defined() || !result.is_cpu())) {
    return result;
  }
  auto* impl = result.unsafeGetTensorImpl();
  const auto* storage =
      impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
  for (const auto& slot : slots_) {
    if (slot.impl() == impl) {
      return *slot.original;
    }
    if (storage != nullptr && slot.impl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
      retagView(impl, *slot.original);
      return result;
    }
  }
  if (C10_UNLIKELY(storage == nullptr)) {
    return wrapSparse(std::move(result));
  }
  checkRefused(op_, c10::typeMetaToScalarType(impl->dtype()));
  retag(impl, device_);
  return result;
}

const at::Tensor& Frame::original(const at::Tensor& result) const {
  for (const auto& slot : slots_) {
    if (slot.impl() == result.unsafeGetTensorImpl()) {
      return *slot.original;
    }
  }
  return result;
}

}  // namespace torchneuron
