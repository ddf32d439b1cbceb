// Elementwise arithmetic, comparison and functions.
#include "aten/kernels.h"
#include "aten/unboxed.h"

#include <ATen/Operators.h>

namespace torchneuron {

void registerHotPointwise(Registrar& registrar) {
  namespace ops = at::_ops;
  registerAliasKernels<
      ops::_stack, ops::acos, ops::acos_, ops::acosh, ops::acosh_, ops::add_Scalar, ops::add_Tensor,
      ops::add__Scalar, ops::add__Tensor, ops::addcdiv, ops::addcdiv_, ops::addcmul, ops::addcmul_,
      ops::asin, ops::asin_, ops::asinh, ops::asinh_, ops::atan, ops::atan2, ops::atan2_,
      ops::atan_, ops::atanh, ops::atanh_, ops::bitwise_and_Tensor, ops::bitwise_and__Tensor,
      ops::bitwise_not, ops::bitwise_not_, ops::bitwise_or_Tensor, ops::bitwise_or__Tensor,
      ops::bitwise_xor_Tensor, ops::bitwise_xor__Tensor, ops::ceil, ops::ceil_, ops::clamp,
      ops::clamp_Tensor, ops::clamp_, ops::clamp__Tensor, ops::clamp_max, ops::clamp_max_Tensor,
      ops::clamp_max_, ops::clamp_max__Tensor, ops::clamp_min, ops::clamp_min_Tensor,
      ops::clamp_min_, ops::clamp_min__Tensor, ops::cos, ops::cos_, ops::cosh, ops::cosh_,
      ops::cumprod_, ops::cumsum_, ops::div_Scalar, ops::div_Tensor, ops::div_Tensor_mode,
      ops::div__Scalar, ops::div__Tensor, ops::div__Tensor_mode, ops::eq_Scalar, ops::eq_Tensor,
      ops::eq__Scalar, ops::eq__Tensor, ops::erf, ops::erf_, ops::erfc, ops::erfc_, ops::erfinv,
      ops::erfinv_, ops::exp, ops::exp2, ops::exp2_, ops::exp_, ops::expm1, ops::expm1_,
      ops::fill_Scalar, ops::fill__Scalar, ops::fill__Tensor, ops::floor, ops::floor_, ops::fmax,
      ops::fmin, ops::frac, ops::frac_, ops::ge_Scalar, ops::ge_Tensor, ops::ge__Scalar,
      ops::ge__Tensor, ops::gt_Scalar, ops::gt_Tensor, ops::gt__Scalar, ops::gt__Tensor, ops::isnan,
      ops::isneginf, ops::isposinf, ops::le_Scalar, ops::le_Tensor, ops::le__Scalar,
      ops::le__Tensor, ops::lerp_Scalar, ops::lerp_Tensor, ops::lerp__Scalar, ops::lerp__Tensor,
      ops::log, ops::log10, ops::log10_, ops::log1p, ops::log1p_, ops::log2, ops::log2_, ops::log_,
      ops::logaddexp, ops::logaddexp2, ops::logical_and_, ops::logical_not_, ops::logical_or_,
      ops::lt_Scalar, ops::lt_Tensor, ops::lt__Scalar, ops::lt__Tensor, ops::maximum, ops::minimum,
      ops::mul_Scalar, ops::mul_Tensor, ops::mul__Scalar, ops::mul__Tensor, ops::ne_Scalar,
      ops::ne_Tensor, ops::ne__Scalar, ops::ne__Tensor, ops::neg, ops::neg_,
      ops::normal_Tensor_Tensor, ops::normal_Tensor_float, ops::normal_float_Tensor,
      ops::pow_Scalar, ops::pow_Tensor_Scalar, ops::pow_Tensor_Tensor, ops::pow__Scalar,
      ops::pow__Tensor, ops::reciprocal, ops::reciprocal_, ops::remainder_Scalar,
      ops::remainder_Scalar_Tensor, ops::remainder_Tensor, ops::remainder__Tensor, ops::round,
      ops::round_decimals, ops::round_, ops::round__decimals, ops::rsqrt, ops::rsqrt_,
      ops::rsub_Scalar, ops::rsub_Tensor, ops::sgn, ops::sgn_, ops::sigmoid, ops::sigmoid_,
      ops::sign, ops::sign_, ops::signbit, ops::sin, ops::sin_, ops::sinh, ops::sinh_, ops::sqrt,
      ops::sqrt_, ops::sub_Scalar, ops::sub_Tensor, ops::sub__Scalar, ops::sub__Tensor, ops::tan,
      ops::tan_, ops::tanh, ops::tanh_, ops::trunc, ops::trunc_, ops::zero_>(registrar);
}

}  // namespace torchneuron
