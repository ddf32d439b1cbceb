// Sparse tensors: a CPU tensor of the same layout whose members are aliases of the members. What a
// frame does with them is in sparse.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/DispatchKeySet.h>

#include <array>

namespace torchneuron {

inline constexpr c10::DispatchKeySet kSparseCpuKernel{c10::DispatchKey::SparseCPU};
inline constexpr c10::DispatchKeySet kSparseCsrCpuKernel{c10::DispatchKey::SparseCsrCPU};

// COO tensors have two members, compressed ones three.
constexpr size_t kMaxMembers = 3;

// The alias of one sparse tensor for the time of one kernel.
struct SparseAlias {
  c10::intrusive_ptr<c10::TensorImpl> impl;
  // The members it was made from. Held: a kernel may replace one, and the next tensor at its
  // address would be taken for it.
  std::array<at::Tensor, kMaxMembers> members;
  // What stands for each of them; null where making it failed.
  std::array<c10::TensorImpl*, kMaxMembers> aliases{};
  SparseAlias* next = nullptr;  // of the same frame, or of the free ones
};

// Makes a sparse alias count as one that a gradient is wanted for: a kernel below autograd that
// asks for it sees the alias only.
void requireGrad(const at::Tensor& alias);

}  // namespace torchneuron
