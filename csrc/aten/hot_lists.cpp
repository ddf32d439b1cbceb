// Ops over lists of tensors: optimizers and joining.
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/Operators.h>

namespace torchneuron {

void registerHotLists(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<
      ops::_amp_foreach_non_finite_check_and_unscale,
      ops::_amp_foreach_non_finite_check_and_unscale_, ops::_amp_update_scale_, ops::_foreach_abs,
      ops::_foreach_abs_, ops::_foreach_add_List, ops::_foreach_add_Scalar,
      ops::_foreach_add_ScalarList, ops::_foreach_add_Tensor, ops::_foreach_add__List,
      ops::_foreach_add__Scalar, ops::_foreach_add__ScalarList, ops::_foreach_add__Tensor,
      ops::_foreach_addcdiv_Scalar, ops::_foreach_addcdiv_ScalarList, ops::_foreach_addcdiv_Tensor,
      ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv__ScalarList,
      ops::_foreach_addcdiv__Tensor, ops::_foreach_addcmul_Scalar, ops::_foreach_addcmul_ScalarList,
      ops::_foreach_addcmul_Tensor, ops::_foreach_addcmul__Scalar,
      ops::_foreach_addcmul__ScalarList, ops::_foreach_addcmul__Tensor,
      ops::_foreach_clamp_max_List, ops::_foreach_clamp_max_Scalar,
      ops::_foreach_clamp_max_ScalarList, ops::_foreach_clamp_max__List,
      ops::_foreach_clamp_max__Scalar, ops::_foreach_clamp_max__ScalarList,
      ops::_foreach_clamp_min_List, ops::_foreach_clamp_min_Scalar,
      ops::_foreach_clamp_min_ScalarList, ops::_foreach_clamp_min__List,
      ops::_foreach_clamp_min__Scalar, ops::_foreach_clamp_min__ScalarList, ops::_foreach_clone,
      ops::_foreach_copy, ops::_foreach_copy_, ops::_foreach_div_List, ops::_foreach_div_Scalar,
      ops::_foreach_div_ScalarList, ops::_foreach_div_Tensor, ops::_foreach_div__List,
      ops::_foreach_div__Scalar, ops::_foreach_div__ScalarList, ops::_foreach_div__Tensor,
      ops::_foreach_exp, ops::_foreach_exp_, ops::_foreach_lerp_List, ops::_foreach_lerp_Scalar,
      ops::_foreach_lerp_ScalarList, ops::_foreach_lerp__List, ops::_foreach_lerp__Scalar,
      ops::_foreach_lerp__ScalarList, ops::_foreach_log, ops::_foreach_log_, ops::_foreach_max,
      ops::_foreach_maximum_List, ops::_foreach_maximum_Scalar, ops::_foreach_maximum_ScalarList,
      ops::_foreach_maximum__List, ops::_foreach_maximum__Scalar, ops::_foreach_maximum__ScalarList,
      ops::_foreach_minimum_List, ops::_foreach_minimum_Scalar, ops::_foreach_minimum_ScalarList,
      ops::_foreach_minimum__List, ops::_foreach_minimum__Scalar, ops::_foreach_minimum__ScalarList,
      ops::_foreach_mm, ops::_foreach_mul_List, ops::_foreach_mul_Scalar,
      ops::_foreach_mul_ScalarList, ops::_foreach_mul_Tensor, ops::_foreach_mul__List,
      ops::_foreach_mul__Scalar, ops::_foreach_mul__ScalarList, ops::_foreach_mul__Tensor,
      ops::_foreach_neg, ops::_foreach_neg_, ops::_foreach_norm_Scalar, ops::_foreach_pow_List,
      ops::_foreach_pow_Scalar, ops::_foreach_pow_ScalarAndTensor, ops::_foreach_pow_ScalarList,
      ops::_foreach_pow__List, ops::_foreach_pow__Scalar, ops::_foreach_pow__ScalarList,
      ops::_foreach_powsum_Scalar, ops::_foreach_reciprocal, ops::_foreach_reciprocal_,
      ops::_foreach_rsqrt, ops::_foreach_rsqrt_, ops::_foreach_sign, ops::_foreach_sign_,
      ops::_foreach_sqrt, ops::_foreach_sqrt_, ops::_foreach_sub_List, ops::_foreach_sub_Scalar,
      ops::_foreach_sub_ScalarList, ops::_foreach_sub__List, ops::_foreach_sub__Scalar,
      ops::_foreach_sub__ScalarList, ops::_foreach_zero, ops::_foreach_zero_, ops::_fused_adagrad_,
      ops::_fused_adagrad__tensor_lr, ops::_fused_adam_, ops::_fused_adam__tensor_lr,
      ops::_fused_adamw_, ops::_fused_adamw__tensor_lr, ops::_fused_sgd_,
      ops::_fused_sgd__tensor_lr, ops::cat, ops::stack>(registrar);
}

}  // namespace torchneuron
