// Reductions, matrix products, indexing and sorting.
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/Operators.h>

namespace torchneuron {

void registerHotReductions(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<
      ops::_addmm_activation, ops::_cummax_helper, ops::_cummin_helper, ops::_index_put_impl_,
      ops::addmm, ops::addmm_, ops::addmv, ops::addmv_, ops::all, ops::all_dim, ops::all_dims,
      ops::amax, ops::amin, ops::any, ops::any_dim, ops::any_dims, ops::argmax, ops::argmin,
      ops::baddbmm, ops::baddbmm_, ops::bmm, ops::cat, ops::stack, ops::count_nonzero_dim_IntList,
      ops::cumprod, ops::cumsum, ops::dot, ops::equal, ops::flip, ops::gather, ops::index_Tensor,
      ops::index_add, ops::index_add_, ops::index_copy, ops::index_copy_,
      ops::index_fill__int_Scalar, ops::index_fill__int_Tensor, ops::index_put_, ops::index_select,
      ops::linalg_vector_norm, ops::logsumexp, ops::masked_fill_Scalar, ops::masked_fill_Tensor,
      ops::masked_fill__Scalar, ops::masked_fill__Tensor, ops::masked_scatter_, ops::masked_select,
      ops::max, ops::max_dim, ops::max_dim_max, ops::mean, ops::mean_dim, ops::median,
      ops::median_dim_values, ops::min, ops::min_dim, ops::min_dim_min, ops::mm, ops::mv,
      ops::nansum, ops::nonzero, ops::norm_ScalarOpt_dim, ops::norm_ScalarOpt_dim_dtype, ops::prod,
      ops::prod_dim_int, ops::repeat, ops::scatter_reduce, ops::scatter_src, ops::scatter_value,
      ops::scatter_value_reduce, ops::scatter__reduce, ops::scatter__src, ops::scatter__value,
      ops::scatter__value_reduce, ops::scatter_add, ops::scatter_add_, ops::scatter_reduce_two,
      ops::scatter_reduce__two, ops::sort, ops::sort_stable, ops::sort_values_stable,
      ops::std_correction, ops::std_mean_correction, ops::sum, ops::sum_dim_IntList, ops::take,
      ops::topk, ops::topk_values, ops::trace, ops::tril, ops::tril_, ops::triu, ops::triu_,
      ops::var_correction, ops::var_mean_correction, ops::where_self>(registrar);
}

}  // namespace torchneuron
