"""Scaled dot product attention, as the CPU's fused kernel computes it.

Scores, softmax and sums are float32 for the half types. The kernel's results are the output and,
for the backward pass, each query's log of the sum of exponentials.
"""

from __future__ import annotations

import math

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.reduce import widened
from torchneuron.lowering.registry import Call, lowers


def _product(left: Value, right: Value, ours: int, theirs: int) -> Value:
    """Contract one dimension of two (batch, heads, ..., ...) values."""
    return e.dot_general(left, right, ([ours], [theirs]), ([0, 1], [0, 1]))


def _by_key_heads(value: Value, keys: Value) -> Value:
    """Put query heads that share a key head (grouped queries) below one another: (B, K, G L, E)."""
    return e.reshape(value, (*keys.shape[:2], -1, value.shape[3]))


def _by_query_heads(value: Value, queries: Value) -> Value:
    return e.reshape(value, (*queries.shape[:3], value.shape[3]))


def _scores(
    query: Value, key: Value, causal: bool, mask: Value | None, scale: float | None
) -> Value:
    """Compute the scaled and masked products of queries (B, H, L, E) and keys: (B, H, L, S)."""
    products = _product(_by_key_heads(query, key), key, 3, 3)
    scores = _by_query_heads(products, query) * _scale(query, scale)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = e.select(mask, scores, -math.inf)
        else:
            scores = scores + mask.to(scores.dtype)
    if causal:  # aligned at the first query and key, whatever the two lengths
        places = scores.shape[2:]
        scores = e.select(e.iota(places, 1) <= e.iota(places, 0), scores, -math.inf)
    return scores


def _scale(query: Value, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[3]) if scale is None else scale


def _refuse_dropout(dropout: float) -> None:
    if dropout != 0:
        raise NotImplementedError(f"fused attention with dropout_p={dropout}")


@lowers("_scaled_dot_product_flash_attention_for_cpu")
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
) -> tuple[Value, Value]:
    """Attend; a query that may see no key gets zeros, and zero as its log of the sum."""
    _refuse_dropout(dropout_p)
    scores = _scores(widened(query), widened(key), is_causal, attn_mask, scale)
    largest = e.reduce_max(scores, [3], keepdim=True)
    largest = e.select(largest.eq(-math.inf), 0.0, largest)
    weights = e.exp(scores - largest)
    total = e.reduce_sum(weights, [3], keepdim=True)
    total = e.select(total.eq(0), 1.0, total)
    mixed = _product(_by_key_heads(weights, key), widened(value), 3, 2)
    output = _by_query_heads(mixed, query) / total
    logsumexp = e.reshape(largest + e.log(total), query.shape[:3])
    return output.to(call.dtype), logsumexp.to(call.results[1].dtype)


@lowers("_scaled_dot_product_flash_attention_for_cpu_backward")
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
) -> tuple[Value, ...]:
    _refuse_dropout(dropout_p)
    gradient, output = widened(gradient), widened(output)
    query, key, value = widened(query), widened(key), widened(value)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    weights = e.exp(scores - e.expand_dims(logsumexp.to(scores.dtype), [3]))
    grouped = _by_key_heads(gradient, key)
    of_value = _product(_by_key_heads(weights, key), grouped, 2, 2)
    of_weights = _by_query_heads(_product(grouped, value, 3, 3), query)
    mean = e.reduce_sum(gradient * output, [3], keepdim=True)
    of_scores = _by_key_heads(weights * (of_weights - mean) * _scale(query, scale), key)
    of_query = _by_query_heads(_product(of_scores, key, 3, 2), query)
    of_key = _product(of_scores, _by_key_heads(query, key), 2, 2)
    return tuple(each.to(call.dtype) for each in (of_query, of_key, of_value))
