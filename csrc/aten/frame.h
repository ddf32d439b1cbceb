// One call of a CPU kernel on neuron memory: alias the arguments, run, give the results back.
#pragma once

#include "aten/twin.h"
#include "core/context.h"
#include "core/op_record.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

namespace torchneuron {

struct SparseAlias;

inline constexpr c10::DispatchKeySet kCpuKernel{c10::DispatchKey::CPU};

// What must not see the aliases: they are below autograd and autocast, as the neuron tensors
// they stand for are by now. Kernels of other libraries see it, as they do on the CPU.
inline constexpr c10::DispatchKeySet kBelowAutograd =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);

// Whether neuron tensors of other devices may stand beside each other in one call.
enum class MixedDevices : uint8_t { kRefused, kAllowed };

class Frame {
 public:
  explicit Frame(OpRecord& op, MixedDevices mixed = MixedDevices::kRefused);
  // Also when the kernel threw: what it resized is carried over, so that nothing is lost.
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // The CPU tensor to hand to the kernel for `tensor`, which must stay where it is meanwhile.
  // The frame owns it; an operand that needs no alias is its own.
  c10::TensorImpl* alias(const at::Tensor& tensor, Access access);
  // The same with a reference of its own, for containers.
  at::Tensor sharedAlias(const at::Tensor& tensor, Access access) {
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
        alias(tensor, access)));
  }
  // The same for a member of a list of indices, which may stay on the CPU.
  at::Tensor sharedIndex(const at::Tensor& index, Access access);
  // A factory's device argument: decides the device where no tensor does.
  void place(c10::Device device);
  // All arguments are known: checks them and directs the kernel's allocations to the device.
  void begin();
  // Carries over what the kernel did to the arguments' sizes and storages.
  void finish();

  c10::DeviceIndex device() const { return device_; }
  // The tensor to return for a kernel's result.
  at::Tensor wrap(at::Tensor result);
  // The caller's own tensor behind a result that is an alias.
  const at::Tensor& original(const at::Tensor& result) const;

 private:
  struct Slot {
    const at::Tensor* original;
    Alias alias;
    Access access;

    c10::TensorImpl* impl() const { return alias.impl.get(); }
  };

  void noteForeign(const at::Tensor& tensor, Access access);
  [[noreturn]] void failMixed() const;
  void carryOver(Slot& slot);
  // sparse.cpp
  c10::TensorImpl* aliasSparse(const at::Tensor& tensor, Access access);
  void carryOverSparse(const Slot& slot);
  at::Tensor wrapSparse(at::Tensor result);
  void giveBackSparse();

  OpRecord& op_;
  c10::impl::ExcludeDispatchKeyGuard below_autograd_;
  c10::SmallVector<Slot, 6> slots_;
  SparseAlias* sparse_ = nullptr;           // what sparse operands were made into
  const at::Tensor* off_device_ = nullptr;  // an operand that may not stand beside neuron ones
  c10::DeviceIndex device_ = -1;
  c10::DeviceIndex outer_device_;
  MixedDevices mixed_;
  bool writes_ = false;
  bool finished_ = false;
};

// A tensor that shares ownership with nobody: the frame keeps it alive.
class BorrowedTensor {
 public:
  BorrowedTensor() = default;
  BorrowedTensor(Frame& frame, const at::Tensor& tensor, Access access) {
    if (tensor.defined()) {
      tensor_ = at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(
          frame.alias(tensor, access)));
    }
  }
  BorrowedTensor(BorrowedTensor&& other) noexcept : tensor_(std::move(other.tensor_)) {}
  BorrowedTensor& operator=(BorrowedTensor&&) = delete;
  ~BorrowedTensor() { tensor_.unsafeReleaseTensorImpl(); }

  at::Tensor& get() { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace torchneuron
