#include "aten/sparse.h"

#include "aten/frame.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/InferenceMode.h>

namespace torchneuron {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr DispatchKeySet kAutogradCpu{DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView};
constexpr DispatchKeySet kAutogradNeuron{DispatchKey::AutogradPrivateUse1,
                                         DispatchKey::ADInplaceOrView};

// Legal access to protected members: a member pointer named through a derived class.
struct Impl : c10::TensorImpl {
  static constexpr auto keySet = &Impl::key_set_;
  static constexpr auto dataType = &Impl::data_type_;
  static constexpr auto sizes = &Impl::sizes_and_strides_;
  static constexpr auto numel = &Impl::numel_;
};

bool isCompressed(const c10::TensorImpl* impl) {
  return impl->key_set().has(DispatchKey::SparseCsr);
}

bool isSparse(const c10::TensorImpl* impl) {
  return isCompressed(impl) || impl->key_set().has(DispatchKey::Sparse);
}

c10::SmallVector<at::Tensor*, kMaxMembers> membersOf(c10::TensorImpl* impl) {
  if (isCompressed(impl)) {
    auto* compressed = static_cast<at::SparseCsrTensorImpl*>(impl);
    return {&compressed->crow_indices_, &compressed->col_indices_, &compressed->values_};
  }
  auto* coo = static_cast<at::SparseTensorImpl*>(impl);
  return {&coo->indices_, &coo->values_};
}

// Makes `target` what `source` is, apart from its members.
void describe(const c10::TensorImpl* source, c10::TensorImpl* target) {
  target->*Impl::sizes = source->*Impl::sizes;
  target->*Impl::numel = source->*Impl::numel;
  if (isCompressed(source)) {
    static_cast<at::SparseCsrTensorImpl*>(target)->layout_ = source->layout();
    return;
  }
  const auto* from = static_cast<const at::SparseTensorImpl*>(source);
  auto* to = static_cast<at::SparseTensorImpl*>(target);
  to->sparse_dim_ = from->sparse_dim_;
  to->dense_dim_ = from->dense_dim_;
  to->coalesced_ = from->coalesced_;
}

c10::intrusive_ptr<c10::TensorImpl> makeImpl(const c10::TensorImpl* source) {
  if (isCompressed(source)) {
    return c10::make_intrusive<at::SparseCsrTensorImpl>(kSparseCsrCpuKernel, c10::Device(c10::kCPU),
                                                        source->layout(), source->dtype());
  }
  return c10::make_intrusive<at::SparseTensorImpl>(kSparseCpuKernel, source->dtype());
}

// Making a sparse tensor makes empty members for it, which cost more than all the rest of an
// alias: each thread keeps a few for its next kernels.
constexpr int kMaxFree = 8;
struct FreeAliases {
  SparseAlias* first = nullptr;
  int count = 0;
};
thread_local FreeAliases t_free[2];  // COO, compressed
thread_local bool t_thread_ends = false;

struct FreesAtThreadEnd {
  ~FreesAtThreadEnd() {
    t_thread_ends = true;
    for (auto& free : t_free) {
      while (auto* alias = free.first) {
        free.first = alias->next;
        delete alias;
      }
    }
  }
};

SparseAlias* takeAlias(const c10::TensorImpl* source) {
  auto& free = t_free[isCompressed(source) ? 1 : 0];
  if (C10_LIKELY(free.first != nullptr)) {
    auto* alias = free.first;
    free.first = alias->next;
    --free.count;
    return alias;
  }
  static thread_local FreesAtThreadEnd at_end;
  static_cast<void>(at_end);
  auto alias = std::make_unique<SparseAlias>();
  alias->impl = makeImpl(source);
  return alias.release();
}

void giveBackAlias(SparseAlias* alias) {
  auto* impl = alias->impl.get();
  auto& free = t_free[isCompressed(impl) ? 1 : 0];
  // A kernel that kept it may do so; one that asked for gradients is not like the others.
  if (alias->impl.use_count() > 1 || impl->autograd_meta() != nullptr || t_thread_ends ||
      free.count == kMaxFree) {
    delete alias;
    return;
  }
  for (auto* member : membersOf(impl)) {
    member->reset();
  }
  alias->members.fill(at::Tensor());
  alias->aliases.fill(nullptr);
  alias->next = free.first;
  free.first = alias;
  ++free.count;
}

}  // namespace

void requireGrad(const at::Tensor& alias) {
  auto* impl = alias.unsafeGetTensorImpl();
  impl->*Impl::keySet = impl->key_set() | kAutogradCpu;
  impl->set_requires_grad(true);
}

c10::TensorImpl* Frame::aliasSparse(const at::Tensor& tensor, Access access) {
  auto* source = tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(
      isSparse(source), op_.name, ": an argument has layout ", source->layout(),
      ", which the neuron device does not have\n\nhint: convert it with .to_dense()");
  checkSparse(op_, source->layout());
  auto* alias = op_.foreign ? new SparseAlias{makeImpl(source)} : takeAlias(source);
  alias->next = sparse_;
  sparse_ = alias;
  auto* impl = alias->impl.get();
  if (!op_.foreign) {
    impl->*Impl::keySet = isCompressed(source) ? kSparseCsrCpuKernel : kSparseCpuKernel;
  } else if (!tensor.is_inference() && !impl->is_inference()) {
    impl->set_version_counter(source->version_counter());
  }
  impl->*Impl::dataType = source->dtype();
  impl->set_allow_tensor_metadata_change(source->allow_tensor_metadata_change());
  describe(source, impl);
  // First the tensor, then its members: the first operand's dtype is what an op computes in.
  slots_.push_back({&tensor, {alias->impl, nullptr}, access});
  const auto members = membersOf(source);
  const auto stand_ins = membersOf(impl);
  for (size_t i = 0; i < members.size(); ++i) {
    alias->members[i] = *members[i];
    *stand_ins[i] = sharedAlias(alias->members[i], access);
    alias->aliases[i] = stand_ins[i]->unsafeGetTensorImpl();
  }
  return impl;
}

void Frame::carryOverSparse(const Slot& slot) {
  const auto* alias = sparse_;
  while (alias->impl.get() != slot.impl()) {
    alias = alias->next;
  }
  auto* target = slot.original->unsafeGetTensorImpl();
  const auto members = membersOf(target);
  const auto stand_ins = membersOf(slot.impl());
  if (alias->aliases[members.size() - 1] == nullptr) {
    return;  // an argument was refused, and no kernel ran
  }
  for (size_t i = 0; i < members.size(); ++i) {
    if (stand_ins[i]->unsafeGetTensorImpl() != alias->aliases[i]) {
      *members[i] = wrap(*stand_ins[i]);
    }
  }
  describe(slot.impl(), target);
}

at::Tensor Frame::wrapSparse(at::Tensor result) {
  auto* impl = result.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(isSparse(impl), op_.name, ": the result has layout ", impl->layout(),
                              ", which the neuron device does not have\n\n"
                              "hint: compute this on the CPU");
  checkRefused(op_, c10::typeMetaToScalarType(impl->dtype()));
  checkSparse(op_, impl->layout());
  for (auto* member : membersOf(impl)) {
    *member = wrap(std::move(*member));
  }
  setDevice(impl, device_);
  if (!impl->key_set().has(DispatchKey::ADInplaceOrView) && !c10::InferenceMode::is_enabled()) {
    // A copy of an alias, which was below autograd; the result is not.
    impl->*Impl::keySet = impl->key_set() | kAutogradNeuron;
    impl->set_version_counter(c10::VariableVersion(0));
  }
  return result;
}

void Frame::giveBackSparse() {
  for (auto& slot : slots_) {
    if (!slot.impl()->has_storage()) {
      slot.alias.impl.reset();
    }
  }
  while (auto* alias = sparse_) {
    sparse_ = alias->next;
    giveBackAlias(alias);
  }
}

}  // namespace torchneuron
