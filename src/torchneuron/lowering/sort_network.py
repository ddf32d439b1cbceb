"""Sorting by comparing whole blocks, for programs for a chip: those take no sort.

XLA:CPU has one, which is faster. A network takes `b * (b + 1) / 2` stages for rows of up to `2**b`
elements; a short beginning of the order is found element by element.
"""

from __future__ import annotations

import math

import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit import Value
from torchneuron.lowering.ops.index import index_dtype

# Values, and for each its place in the row. No two places are equal, so the order is total.
Pair = tuple[Value, Value]


def order(rows: Value, descending: bool, count: int) -> Value:
    """Return where in its row each of the first `count` elements of the sorted row is, or of all.

    The order is stable, and not-a-number is the greatest.
    """
    length = rows.shape[1]
    bits = (length - 1).bit_length()
    pair = _in_total_order(rows, descending)
    few = count <= bits * (bits + 1) // 2  # a round costs about as much as a stage
    found = _rounds(pair, descending, count) if few else _network(pair, descending)
    if rows.is_float:
        beyond = found < 0 if descending else found >= length
        found = e.select(beyond, found + length if descending else found - length, found)
    return found.to(torch.int64)


def _in_total_order(rows: Value, descending: bool) -> Pair:
    """Make not-a-number infinite, with a place past the row: after (or before) the infinities."""
    length = rows.shape[1]
    places = e.iota(rows.shape, 1, index_dtype(2 * length))
    if not rows.is_float:
        return rows, places
    nan = e.isnan(rows)
    beyond = places - length if descending else places + length
    return e.select(nan, math.inf, rows), e.select(nan, beyond, places)


def _rounds(pair: Pair, descending: bool, count: int) -> Value:
    """Find the first elements of the order one after the other."""
    values, places = pair
    extreme, last = (e.reduce_max, e.lowest) if descending else (e.reduce_min, e.highest)
    left = e.full(values.shape, True, torch.bool)
    found = []
    for _ in range(count):
        best = extreme(e.select(left, values, last(values.dtype)), [1], keepdim=True)
        candidates = e.select(left & values.eq(best), places, 2 * values.shape[1])
        found.append(e.reduce_min(candidates, [1], keepdim=True))
        left &= places.ne(found[-1])
    return e.concatenate(found, 1)


def _network(pair: Pair, descending: bool) -> Value:
    """Merge sorted blocks into ones twice as long, until one block is left."""
    values, places = pair
    length = values.shape[1]
    size = 1 << (length - 1).bit_length()
    last = (e.lowest if descending else e.highest)(values.dtype)
    low, high = [0, 0], [0, size - length]
    pair = e.pad(values, last, low, high), e.pad(places, 2 * length, low, high)
    block = 2
    while block <= size:
        pair = _stage(pair, descending, block // 2, mirrored=True)
        distance = block // 4
        while distance:
            pair = _stage(pair, descending, distance, mirrored=False)
            distance //= 2
        block *= 2
    return e.slice_dim(pair[1], 1, 0, length)


def _stage(pair: Pair, descending: bool, distance: int, *, mirrored: bool) -> Pair:
    """Order each element and its partner in the next run of `distance` elements.

    Partners are at the same place of their runs or, `mirrored`, one is counted from the end: what
    makes a merge's first stage take two blocks in the same order.
    """
    rows, size = pair[0].shape
    halves = []
    for each in pair:
        blocks = e.reshape(each, (rows, size // (2 * distance), 2, distance))
        first, second = e.slice_dim(blocks, 2, 0, 1), e.slice_dim(blocks, 2, 1, 2)
        halves.append((first, e.reverse(second, [3]) if mirrored else second))
    (a, b), (i, j) = halves
    stays = e.select(a.eq(b), i < j, a > b if descending else a < b)
    made = []
    for first, second in halves:
        later = e.select(stays, second, first)
        joined = [e.select(stays, first, second), e.reverse(later, [3]) if mirrored else later]
        made.append(e.reshape(e.concatenate(joined, 2), (rows, size)))
    return made[0], made[1]
