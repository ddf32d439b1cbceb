// Operators that must see the sparse neuron tensor itself: they read, make or move its members, and
// PyTorch's own functions do that on every device.
#include "aten/frame.h"
#include "aten/kernels.h"
#include "aten/registrar.h"
#include "aten/sparse.h"
#include "aten/unboxed.h"

#include <ATen/Operators.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_dimI_native.h>
#include <ATen/ops/_dimV_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_pin_memory_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/is_pinned_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/sparse_compressed_tensor_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <c10/core/DeviceGuard.h>

namespace torchneuron {
namespace {

namespace native = at::native;
namespace ops = at::_ops;

using Compressed = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  std::optional<at::ScalarType>, std::optional<at::Layout>,
                                  std::optional<at::Device>, std::optional<bool>);
using CompressedOfSize = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        at::IntArrayRef, std::optional<at::ScalarType>,
                                        std::optional<at::Layout>, std::optional<at::Device>,
                                        std::optional<bool>);

// The device that an argument names: a device argument comes after the tensors and decides.
void notePlace(std::optional<at::Device>& place, const at::Tensor& tensor) {
  if (!place.has_value() && tensor.is_privateuseone()) {
    place = tensor.device();
  }
}
void notePlace(std::optional<at::Device>& place, const std::optional<at::Device>& device) {
  if (device.has_value() && device->is_privateuseone()) {
    place = device;
  }
}
template <class Other>
void notePlace(std::optional<at::Device>& /*place*/, const Other& /*argument*/) {}

// A function of PyTorch's that makes a sparse tensor. The constructor of one makes empty members on
// the current device, so that has to be the tensor's.
template <class Op, auto function, class Type = decltype(function)>
struct Making;
template <class Op, auto function, class... Args>
struct Making<Op, function, at::Tensor (*)(Args...)> {
  static at::Tensor call(Args... args) {
    static OpRecord& record = opRecord(Op::name, Op::overload_name);
    std::optional<at::Device> place;
    (notePlace(place, args), ...);
    const c10::OptionalDeviceGuard guard(place);
    auto result = function(std::forward<Args>(args)...);
    if (result.is_privateuseone()) {
      checkRefused(record, result.scalar_type());
      checkSparse(record, result.layout());
      countExecuted(record, result.scalar_type());
    }
    return result;
  }
};

template <class Op, auto function>
void registerMaking(Registrar& registrar) {
  registrar.impl<&Making<Op, function>::call>(Op::name, Op::overload_name);
}

// The kernel leaves out what only a backward needs, and it asks the tensors whether there is one.
std::tuple<at::Tensor, at::Tensor> mmReduce(const at::Tensor& self, const at::Tensor& other,
                                            std::string_view reduce) {
  using Op = ops::_sparse_mm_reduce_impl;
  static OpRecord& record = opRecord(Op::name, Op::overload_name);
  Frame frame(record);
  BorrowedTensor sparse(frame, self, Access::kRead);
  BorrowedTensor dense(frame, other, Access::kRead);
  frame.begin();
  if (self.requires_grad() || other.requires_grad()) {
    requireGrad(sparse.get());
  }
  auto results = Op::redispatch(kSparseCsrCpuKernel, sparse.get(), dense.get(), reduce);
  frame.finish();
  return giveBack(frame, std::move(results));
}

}  // namespace

void registerSparseFactories(Registrar& coo, Registrar& compressed) {
  registerMaking<ops::empty_memory_format, &native::empty_sparse>(coo);
  registerMaking<ops::_sparse_coo_tensor_with_dims, &native::new_with_dims_sparse>(coo);
  registerMaking<ops::empty_memory_format, &native::empty_sparse_compressed>(compressed);
}

void registerCoo(Registrar& registrar) {
  registrar.impl<&native::_nnz_sparse>("aten::_nnz");
  registrar.impl<&native::sparse_dim_sparse>("aten::sparse_dim");
  registrar.impl<&native::dense_dim_sparse>("aten::dense_dim");
  registrar.impl<&native::sparse_dim_sparse>("aten::_dimI");
  registrar.impl<&native::dense_dim_sparse>("aten::_dimV");
  registrar.impl<&native::is_coalesced_sparse>("aten::is_coalesced");
  registrar.impl<&native::_coalesced_sparse_>("aten::_coalesced_");
  registrar.impl<&native::_indices_sparse>("aten::_indices");
  registrar.impl<&native::_values_sparse>("aten::_values");
  registrar.impl<&native::indices_sparse>("aten::indices");
  registrar.impl<&native::values_sparse>("aten::values");
  registrar.impl<&native::is_pinned_sparse_coo>("aten::is_pinned");
  registrar.impl<&native::_pin_memory_sparse_coo>("aten::_pin_memory");
  registrar.impl<&native::sparse_resize_>("aten::sparse_resize_");
  registrar.impl<&native::sparse_resize_and_clear_>("aten::sparse_resize_and_clear_");
  registrar.impl<&native::resize_as_sparse_>("aten::resize_as_sparse_");
  registrar.impl<&native::copy_sparse_wrapper_>("aten::copy_");
  registrar.impl<&native::copy_sparse_>("aten::copy_sparse_to_sparse_");
  registerMaking<ops::empty_like, &native::empty_like_sparse_coo>(registrar);
  registerMaking<ops::_sparse_coo_tensor_with_dims_and_tensors,
                 &native::new_with_dims_and_tensor_sparse_symint>(registrar);
}

void registerCompressed(Registrar& registrar) {
  registrar.impl<&native::_nnz_sparse_csr>("aten::_nnz");
  registrar.impl<&native::sparse_dim_sparse_csr>("aten::sparse_dim");
  registrar.impl<&native::dense_dim_sparse_csr>("aten::dense_dim");
  registrar.impl<&native::crow_indices_sparse_csr>("aten::crow_indices");
  registrar.impl<&native::col_indices_sparse_csr>("aten::col_indices");
  registrar.impl<&native::ccol_indices_sparse_csr>("aten::ccol_indices");
  registrar.impl<&native::row_indices_sparse_csr>("aten::row_indices");
  registrar.impl<&native::values_sparse_csr>("aten::values");
  registrar.impl<&native::is_pinned_sparse_compressed>("aten::is_pinned");
  registrar.impl<&native::_pin_memory_sparse_compressed>("aten::_pin_memory");
  registrar.impl<&native::resize_sparse_csr_>("aten::resize_");
  registrar.impl<&native::resize_as_sparse_compressed_>("aten::resize_as_sparse_");
  registrar.impl<&native::select_sparse_csr>("aten::select", "int");
  registrar.impl<&native::copy_sparse_compressed_>("aten::copy_");
  registrar.impl<&mmReduce>("aten::_sparse_mm_reduce_impl");
  registerMaking<ops::empty_like, &native::empty_like_sparse_csr>(registrar);
  registerMaking<ops::sparse_compressed_tensor_comp_plain_value_size,
                 static_cast<CompressedOfSize>(&native::sparse_compressed_tensor)>(registrar);
  registerMaking<ops::sparse_compressed_tensor_comp_plain_value,
                 static_cast<Compressed>(&native::sparse_compressed_tensor)>(registrar);
}

}  // namespace torchneuron
