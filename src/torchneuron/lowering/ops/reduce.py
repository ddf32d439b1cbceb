"""Reductions: sums, products, extremes with and without indices, moments and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Scalar, Value
from torchneuron.lowering.ops.index import index_dtype
from torchneuron.lowering.registry import Call, lowers

Dims = int | Sequence[int] | None


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return what the CPU accumulates a dtype in: float32, rounded once, for the half types."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widened(value: Value) -> Value:
    """Convert to the dtype that sums are accumulated in."""
    return value.to(accumulator(value.dtype))


def reduced_dims(value: Value, dim: Dims) -> list[int]:
    """Return which dimensions `dim` names; None and an empty list name all of them."""
    if dim is None or dim == [] or dim == ():
        return list(range(value.rank))
    dims = [dim] if isinstance(dim, int) else dim
    return sorted({each % value.rank for each in dims}) if value.rank else []


def count_of(value: Value, dims: Sequence[int]) -> int:
    """Return how many elements go into one result."""
    return math.prod(value.shape[dim] for dim in dims)


def _sum_rule(names: str, prepare: Callable[[Value], Value]) -> None:
    def rule(
        call: Call,
        value: Value,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Value:
        work = widened(prepare(value).to(call.dtype))
        return e.reduce_sum(work, reduced_dims(value, dim), keepdim=keepdim).to(call.dtype)

    lowers(*names.split())(rule)


def _zero_for_nan(value: Value) -> Value:
    return e.select(e.isnan(value), 0, value) if value.is_float else value


_sum_rule("sum sum.dim_IntList", lambda value: value)
_sum_rule("nansum", _zero_for_nan)
_sum_rule("count_nonzero count_nonzero.dim_IntList", lambda value: value.to(torch.bool))


@lowers("mean", "mean.dim")
def _mean(
    call: Call,
    value: Value,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    dims = reduced_dims(value, dim)
    return mean_over(widened(value.to(call.dtype)), dims, keepdim=keepdim).to(call.dtype)


def mean_over(value: Value, dims: Sequence[int], *, keepdim: bool = False) -> Value:
    """Average; the mean of nothing is not a number."""
    return e.reduce_sum(value, dims, keepdim=keepdim) / count_of(value, dims)


@lowers("prod", "prod.dim_int")
def _prod(
    call: Call,
    value: Value,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    work = widened(value.to(call.dtype))
    dims = reduced_dims(value, dim)
    return e.reduce(work, 1, dims, lambda a, b: a * b, keepdim=keepdim).to(call.dtype)


def _truth_rule(name: str, start: bool, combine: Callable[[Value, Value], Value]) -> None:
    def rule(call: Call, value: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        # Unlike the other reductions, `any.dims` and `all.dims` take an empty list at its word.
        dims = [] if dim is not None and dim in ([], ()) else reduced_dims(value, dim)
        made = e.reduce(value.to(torch.bool), start, dims, combine, keepdim=keepdim)
        return made.to(call.dtype)

    lowers(name, f"{name}.dim", f"{name}.dims")(rule)


_truth_rule("any", False, lambda a, b: a | b)
_truth_rule("all", True, lambda a, b: a & b)


# -- extremes


def _extreme_rules(name: str, largest: bool) -> None:
    reduce = e.reduce_max if largest else e.reduce_min

    def values_only(call: Call, value: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        return reduce(value, reduced_dims(value, dim), keepdim=keepdim)

    def with_indices(call: Call, value: Value, dim: int, keepdim: bool = False) -> list[Value]:
        return list(extreme_and_index(value, dim, largest=largest, keepdim=keepdim))

    def index_only(
        call: Call, value: Value, dim: int | None = None, keepdim: bool = False
    ) -> Value:
        flat = e.reshape(value, (-1,)) if dim is None else value
        _, index = extreme_and_index(flat, dim or 0, largest=largest, keepdim=keepdim)
        return e.reshape(index, call.shape)

    lowers(name, f"a{name}")(values_only)
    lowers(f"{name}.dim")(with_indices)
    lowers(f"arg{name}")(index_only)


def extreme_and_index(
    value: Value, dim: int, *, largest: bool, keepdim: bool = False
) -> tuple[Value, Value]:
    """Find the extreme of one dimension and the first place it has; not-a-number wins."""
    if not value.rank:
        return value, e.full((), 0, torch.int64)
    dim %= value.rank
    count = value.shape[dim]
    extreme = (e.reduce_max if largest else e.reduce_min)(value, [dim], keepdim=True)
    places = e.iota(value.shape, dim, index_dtype(count))
    # Two reductions of one operand: chips take no reduction of pairs, and XLA:CPU vectorizes none.
    chosen = e.select(value.eq(extreme), places, count)
    if value.is_float:  # where there is one, it is the extreme, and equal to nothing
        chosen = e.select(e.isnan(value), places, chosen)
    index = e.reduce_min(chosen, [dim], keepdim=keepdim).to(torch.int64)
    return e.reshape(extreme, index.shape), index


_extreme_rules("max", largest=True)
_extreme_rules("min", largest=False)


@lowers("aminmax")
def _aminmax(
    call: Call, value: Value, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    dims = reduced_dims(value, dim)
    low = e.reduce_min(value, dims, keepdim=keepdim)
    return e.reshape(low, call.shape), e.reshape(
        e.reduce_max(value, dims, keepdim=keepdim), call.shape
    )


# -- moments


def variance_and_mean(
    value: Value, dims: Sequence[int], correction: float = 0, *, keepdim: bool = False
) -> tuple[Value, Value]:
    """Compute the variance around the mean in two passes; that of complex numbers is real."""
    mean = mean_over(value, dims, keepdim=True)
    centred = value - mean
    parts = [e.real(centred), e.imag(centred)] if value.is_complex else [centred]
    squares = [e.reduce_sum(part * part, dims, keepdim=True) for part in parts]
    total = squares[0] if len(squares) == 1 else squares[0] + squares[1]
    made = total / max(count_of(value, dims) - correction, 0)
    if keepdim:
        return made, mean
    shape = [size for dim, size in enumerate(value.shape) if dim not in dims]
    return e.reshape(made, shape), e.reshape(mean, shape)


def _moment_rules(name: str, finish: Callable[[Value], Value]) -> None:
    def with_mean(
        call: Call,
        value: Value,
        dim: Dims = None,
        *,
        correction: Scalar | None = None,
        keepdim: bool = False,
    ) -> tuple[Value, Value]:
        less = 1.0 if correction is None else float(correction)  # type: ignore[arg-type]
        dims = reduced_dims(value, dim)
        variance, mean = variance_and_mean(widened(value), dims, less, keepdim=keepdim)
        return finish(variance).to(call.dtype), mean.to(value.dtype)

    def alone(call: Call, value: Value, dim: Dims = None, **options: bool) -> Value:
        return with_mean(call, value, dim, **options)[0]

    lowers(f"{name}.correction")(alone)
    lowers(f"{name}_mean.correction")(with_mean)


_moment_rules("var", lambda variance: variance)
_moment_rules("std", e.sqrt)


# -- norms


@lowers("linalg_vector_norm")
def _vector_norm(
    call: Call,
    value: Value,
    ord: Scalar = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    dims = reduced_dims(value, dim)
    size = e.absolute(widened(value if dtype is None else value.to(dtype)))
    if ord == 0:
        made = e.reduce_sum(size.ne(0).to(size.dtype), dims, keepdim=keepdim)
    elif ord == math.inf:
        made = e.reduce_max(size, dims, keepdim=keepdim)
    elif ord == -math.inf:
        made = e.reduce_min(size, dims, keepdim=keepdim)
    elif ord == 1:
        made = e.reduce_sum(size, dims, keepdim=keepdim)
    elif ord == 2:
        made = e.sqrt(e.reduce_sum(size * size, dims, keepdim=keepdim))
    else:
        power = float(ord)  # type: ignore[arg-type]
        made = e.reduce_sum(size**power, dims, keepdim=keepdim) ** (1 / power)
    return made.to(call.dtype)


@lowers("logsumexp")
def _logsumexp(call: Call, value: Value, dim: Dims, keepdim: bool = False) -> Value:
    dims = reduced_dims(value, dim)
    work = widened(value.to(call.dtype))
    high = e.reduce_max(e.real(work) if work.is_complex else work, dims, keepdim=True)
    shift = e.select(e.isinf(high), 0.0, high).to(work.dtype)
    total = e.reduce_sum(e.exp(work - shift), dims, keepdim=True)
    made = (e.log(total) + shift).to(call.dtype)
    return e.reshape(made, call.shape)
