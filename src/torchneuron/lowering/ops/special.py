"""Special functions of `torch.special`: those that Chebyshev series reach.

A series is fitted in float64 when its function is first lowered, to values from an integral or a
continued fraction that converges fast everywhere on the interval.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.pointwise import KIND, pointwise

FLOAT = KIND.INT_TO_FLOAT

Array = np.ndarray[Any, np.dtype[np.float64]]
Series = tuple[float, ...]

# Where the Bessel functions change from a series in x to one in 1/x.
_SPLIT = 8.0


def _fit(function: Callable[[Array], Array], degree: int) -> Series:
    """Return the Chebyshev coefficients of a function on [-1, 1]."""
    points = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    made = np.polynomial.chebyshev.chebfit(points, function(points), degree)
    return tuple(float(each) for each in made)


def _sum(series: Series, t: Value) -> Value:
    """Evaluate a Chebyshev series by Clenshaw's recurrence, for `t` in [-1, 1]."""
    newer, older = e.full_like(t, 0.0), e.full_like(t, 0.0)
    double = t + t
    for coefficient in reversed(series[1:]):
        newer, older = double * newer - older + coefficient, newer
    return t * newer - older + series[0]


# -- modified Bessel functions of the first kind


def _scaled_bessel(order: int, x: Array) -> Array:
    """Compute `exp(-x) I(x)`; the trapezoidal rule is exact to rounding on a whole period."""
    angles = np.linspace(0, math.pi, 4001)
    weights = np.full(angles.shape, 1 / 4000)
    weights[[0, -1]] /= 2
    terms = np.exp(np.multiply.outer(x, np.cos(angles) - 1)) * np.cos(order * angles)
    made: Array = terms @ weights
    return made


@functools.cache
def _bessel_series(order: int) -> tuple[Series, Series]:
    def near(t: Array) -> Array:
        x = (t + 1) * _SPLIT / 2
        return _scaled_bessel(order, x) / x**order

    def far(t: Array) -> Array:
        x = 2 * _SPLIT / (t + 1)
        return _scaled_bessel(order, x) * np.sqrt(x)

    return _fit(near, 29), _fit(far, 24)


def _bessel_scaled(order: int, x: Value) -> Value:
    """Compute `exp(-|x|) I(x)`, which is even or odd as its order is."""
    near, far = _bessel_series(order)
    size = e.absolute(x)
    small, large = e.minimum(size, _SPLIT), e.maximum(size, _SPLIT)
    inside = _sum(near, small * (2 / _SPLIT) - 1)
    outside = _sum(far, 2 * _SPLIT / large - 1) / e.sqrt(large)
    inside = inside * x if order else inside
    outside = e.copysign(outside, x) if order else outside
    return e.select(size <= _SPLIT, inside, outside)


def _bessel(order: int, x: Value) -> Value:
    return _bessel_scaled(order, x) * e.exp(e.absolute(x))


# -- the scaled complementary error function


def _scaled_erfc(x: float) -> float:
    if x < 3:
        return math.exp(x * x) * math.erfc(x)
    rest = x
    for numerator in range(80, 0, -1):
        rest = x + numerator / 2 / rest
    return 1 / (math.sqrt(math.pi) * rest)


@functools.cache
def _erfcx_series() -> Series:
    def near(t: Array) -> Array:
        x = 4 * (1 + t) / (1 - t)
        return np.array([_scaled_erfc(each) * (1 + 2 * each) for each in x])

    return _fit(near, 34)


def _erfcx(x: Value) -> Value:
    size = e.absolute(x)
    t = e.select(e.isinf(size), 1.0, (size - 4) / (size + 4))
    positive = _sum(_erfcx_series(), t) / (1 + 2 * size)
    return e.select(x < 0, 2 * e.exp(x * x) - positive, positive)


@functools.cache
def _cotangent_derivative(order: int) -> tuple[float, ...]:
    """Return the polynomial in `c = cot(x)` that is the derivative of `cot` of this order.

    One derivative more multiplies that of the polynomial by the derivative of `c`, `-1 - c * c`.
    """
    polynomial = np.polynomial.Polynomial([0, 1])
    for _ in range(order):
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([-1, 0, -1])
    return tuple(float(each) for each in polynomial.coef)


def _polygamma(order: int, x: Value) -> Value:
    """Differentiate digamma; the reflection formula brings negative numbers to positive ones."""
    if order == 0:
        return e.select(x.eq(0), e.copysign(math.inf, -x), e.digamma(x))
    scale = math.factorial(order) * (1 if order % 2 else -1)
    below = x <= 0
    positive = e.zeta(e.full_like(x, order + 1), e.select(below, 1 - x, x)) * scale
    cotangent = 1 / e.tan(math.pi * (x - e.floor(x)))
    total = e.full_like(x, 0)
    for coefficient in reversed(_cotangent_derivative(order)):
        total = total * cotangent + coefficient
    reflected = positive * (-1) ** order - total * math.pi ** (order + 1)
    pole = e.full_like(x, math.copysign(math.inf, scale))
    return e.select(below, e.select(x.eq(e.floor(x)), pole, reflected), positive)


def _zeta(x: Any, q: Any) -> Value:
    return e.zeta(*e.together(x, q))


pointwise("i0 special_modified_bessel_i0", functools.partial(_bessel, 0), FLOAT)
pointwise("special_i1 special_modified_bessel_i1", functools.partial(_bessel, 1), FLOAT)
pointwise("special_i0e", functools.partial(_bessel_scaled, 0), FLOAT)
pointwise("special_i1e", functools.partial(_bessel_scaled, 1), FLOAT)
pointwise("special_erfcx", _erfcx, FLOAT)
pointwise("polygamma", _polygamma, FLOAT)
pointwise("special_zeta special_zeta.other_scalar special_zeta.self_scalar", _zeta, FLOAT)
