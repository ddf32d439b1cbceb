// Operators on sparse tensors, and those that make them of dense ones.
#include "aten/kernels.h"
#include "aten/sparse.h"
#include "aten/unboxed.h"

#include <ATen/Operators.h>

namespace torchneuron {

void registerHotToSparse(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<ops::_embedding_bag, ops::_embedding_bag_backward,
                       ops::_embedding_bag_forward_only,
                       ops::_embedding_bag_per_sample_weights_backward, ops::_to_sparse,
                       ops::_to_sparse_csr, ops::_to_sparse_sparse_dim>(registrar);
}

void registerHotCoo(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<ops::_coalesce, ops::_sparse_softmax, ops::_sparse_sum_backward,
                       ops::_to_dense, ops::abs, ops::abs_, ops::add_Tensor, ops::add__Tensor,
                       ops::addmm, ops::bmm, ops::clone, ops::div_Tensor, ops::div__Tensor,
                       ops::index_select, ops::mm, ops::mul_Tensor, ops::mul__Tensor, ops::neg,
                       ops::neg_, ops::pow_Tensor_Scalar, ops::relu, ops::sparse_mask, ops::sqrt,
                       ops::sub_Tensor, ops::sub__Tensor, ops::sum, ops::zero_>(registrar,
                                                                                kSparseCpuKernel);
}

void registerHotCompressed(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<ops::_to_dense, ops::_to_sparse, ops::abs, ops::abs_, ops::add_Tensor,
                       ops::add__Tensor, ops::addmm, ops::addmm_out, ops::addmv_out, ops::clone,
                       ops::mm, ops::mul_Scalar, ops::mul_Tensor, ops::mul__Scalar,
                       ops::mul__Tensor, ops::neg, ops::relu, ops::sparse_mask,
                       ops::sparse_sampled_addmm, ops::sqrt, ops::sum, ops::zero_>(
      registrar, kSparseCsrCpuKernel);
}

}  // namespace torchneuron
