"""What programs of this machine leave to PyTorch's CPU kernels, and when.

The program for Trainium is what `lowering` writes. Here some of its calls run faster through the
libraries that PyTorch links than through what XLA:CPU generates, so `RULES` comes before the
lowering table when a program is made for the host. A rule that answers `None` leaves its call to
the table. The figures are of benchmarks/bench_compile.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from torchneuron.device import launching
from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Scalar, Value
from torchneuron.lowering.emit.host import Number, before_transpose, host_call
from torchneuron.lowering.registry import Call, LoweringTable, Rule, qualified
from torchneuron.runtime import xla

RULES = LoweringTable()
# A call costs about as much as this many multiplications of a product that XLA compiles.
_MIN_PRODUCT = 1 << 15
_MIN_ROWS = 4


@functools.cache
def register() -> None:
    """Make the kernels known to XLA, once; needed before a program that calls them is loaded."""
    for name, handler in launching.host_calls():
        xla.register_call(name, handler)


def _on_host(*names: str) -> Callable[[Rule], Rule]:
    """Enter the decorated function as the host's rule of overloads, `aten.` in front understood."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            RULES.add(qualified(name), rule)
        return rule

    return enter


@functools.cache
def _computes(dtype: torch.dtype) -> bool:
    """Return whether this machine's library has fast kernels for a dtype."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return dtype in (torch.float32, torch.float64)


def _kept(value: Value) -> Value:
    """Return a factor in the dtype to compute in: its own, or float32 for a slow half type."""
    return value if _computes(value.dtype) else value.to(torch.float32)


def _multiply(left: Value, right: Value, addend: Value | None, dtype: torch.dtype) -> Value | None:
    """Multiply (B, M, K) by (B, K, N), or matrices without B; None where XLA's own is as good."""
    *batch, rows, inner = left.shape
    columns = right.shape[-1]
    size = math.prod(batch) * rows * inner * columns
    is_known = left.dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    if not is_known or size < _MIN_PRODUCT or min(rows, columns) < _MIN_ROWS:
        return None
    left, left_order = before_transpose(left)
    right, right_order = before_transpose(right)
    operands = [_kept(left), _kept(right)]
    made_dtype = operands[0].dtype
    if addend is not None:
        operands.append(addend.to(made_dtype))
    [made] = host_call(
        "torchneuron.product",
        operands,
        [((*batch, rows, columns), made_dtype)],
        {
            "left_order": left_order,
            "right_order": right_order,
            "sizes": (*(batch or [0]), rows, inner, columns),
        },
    )
    return made.to(dtype)


@_on_host("mm", "bmm")
def _mm(call: Call, left: Value, right: Value) -> Value | None:
    return _multiply(left, right, None, call.dtype)


@_on_host("addmm", "baddbmm")
def _addmm(
    call: Call, addend: Value, left: Value, right: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value | None:
    if (beta, alpha) != (1, 1):
        return None
    return _multiply(left, right, addend, call.dtype)


def _window(
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> dict[str, Number]:
    """Name the operator's numbers; PyTorch's kernel lets one stand for all dimensions itself."""
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "output_padding": output_padding,
        "groups": groups,
        "transposed": transposed,
    }


def _is_ours(*values: Value) -> bool:
    return all(each.is_float and each.numel > 0 for each in values)


@_on_host("convolution")
def _convolution(
    call: Call,
    value: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value | None:
    if not _is_ours(value, weight):
        return None
    operands = [_kept(each) for each in (value, weight, bias) if each is not None]
    [made] = host_call(
        "torchneuron.convolution",
        operands,
        [(call.shape, operands[0].dtype)],
        _window(stride, padding, dilation, transposed, output_padding, groups),
    )
    return made.to(call.dtype)


@_on_host("convolution_backward")
def _convolution_backward(
    call: Call,
    gradient: Value,
    value: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...] | None:
    if not _is_ours(gradient, value, weight):
        return None
    # The sum over the gradient is as fast in the program, and fuses there.
    mask = (output_mask[0], output_mask[1], False)
    operands = [_kept(each) for each in (gradient, value, weight)]
    wanted = [each for each, is_asked in zip(call.results, mask, strict=True) if is_asked]
    made: list[Value] = []
    if wanted:
        attributes = _window(stride, padding, dilation, transposed, output_padding, groups)
        made = host_call(
            "torchneuron.convolution_backward",
            operands,
            [(tuple(each.shape), operands[0].dtype) for each in wanted],
            {**attributes, "mask": [int(each) for each in mask]},
        )
    results: list[Value | None] = [made.pop(0) if is_asked else None for is_asked in mask]
    if output_mask[2]:
        wide = gradient.to(torch.float32) if gradient.dtype.itemsize < 4 else gradient
        results[2] = e.reduce_sum(wide, [0, *range(2, wide.rank)])
    return tuple(
        None if each is None else each.to(promised.dtype)
        for each, promised in zip(results, call.results, strict=True)
    )


def _by_length(value: Value) -> Value:
    """Turn (batch, heads, length, size) to (batch, length, heads, size), as it mostly comes."""
    return e.transpose(value, [0, 2, 1, 3])


def _attends_here(query: Value, key: Value, value: Value, mask: Value | None) -> bool:
    """Return whether the kernel takes them: heads in pairs, one size, a mask of their dtype."""
    return (
        _is_ours(query, key, value)
        and _computes(query.dtype)
        and query.shape[:2] == key.shape[:2]
        and query.shape[3] == key.shape[3] == value.shape[3]
        and (mask is None or mask.dtype == query.dtype)
    )


def _how(query: Value, causal: bool, scale: float | None) -> dict[str, Number]:
    return {
        "causal": causal,
        "scale": float(scale) if scale is not None else 1 / math.sqrt(query.shape[3]),
    }


@_on_host("_scaled_dot_product_flash_attention_for_cpu")
def _attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value] | None:
    if dropout_p != 0 or not _attends_here(query, key, value, attn_mask):
        return None
    operands = [_by_length(each) for each in (query, key, value)]
    operands += [] if attn_mask is None else [attn_mask]
    shape = operands[0].shape
    logsumexp = call.results[1]
    output, sums = host_call(
        "torchneuron.attention",
        operands,
        [(shape, call.dtype), (tuple(logsumexp.shape), logsumexp.dtype)],
        _how(query, is_causal, scale),
    )
    return _by_length(output), sums


@_on_host("_scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(
    call: Call,
    gradient: Value,
    query: Value,
    key: Value,
    value: Value,
    output: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, ...] | None:
    if dropout_p != 0 or not _attends_here(query, key, value, attn_mask):
        return None
    tensors = [_by_length(each) for each in (gradient, query, key, value, output)]
    operands = [*tensors, logsumexp, *([] if attn_mask is None else [attn_mask])]
    made = host_call(
        "torchneuron.attention_backward",
        operands,
        [(each.shape, each.dtype) for each in tensors[1:4]],
        _how(query, is_causal, scale),
    )
    return tuple(_by_length(each) for each in made)


def _is_sparse_here(*values: Value) -> bool:
    """Return whether PyTorch's sparse kernels take them."""
    return all(each.dtype in (torch.float32, torch.float64) and each.numel for each in values)


@_on_host("torchneuron.csr_mm")
def _csr_mm(
    call: Call, compressed: Value, plain: Value, values: Value, dense: Value
) -> Value | None:
    return _csr_product(call, [compressed, plain, values, dense], transposed=False)


@_on_host("torchneuron.csr_mm_transposed")
def _csr_mm_transposed(
    call: Call, compressed: Value, plain: Value, values: Value, dense: Value, columns: int
) -> Value | None:
    return _csr_product(call, [compressed, plain, values, dense], transposed=True)


def _csr_product(call: Call, operands: Sequence[Value], *, transposed: bool) -> Value | None:
    if not _is_sparse_here(*operands[2:]) or 0 in call.shape:
        return None
    [made] = host_call(
        "torchneuron.csr_product",
        operands,
        [(call.shape, call.dtype)],
        {"transposed": transposed},
    )
    return made


@_on_host("torchneuron.csr_sampled")
def _csr_sampled(
    call: Call, compressed: Value, plain: Value, left: Value, right: Value
) -> Value | None:
    if not _is_sparse_here(left, right) or 0 in call.shape:
        return None
    operands = [compressed, plain, left, right]
    [made] = host_call("torchneuron.csr_sampled", operands, [(call.shape, call.dtype)], {})
    return made
