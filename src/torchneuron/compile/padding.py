"""Whether a graph may run with one of its dimensions padded at the end.

A value is *prefix-safe* along the padded dimension when its elements before the old end are those
of the unpadded graph, whatever the padding holds. `refusal` walks a graph and asks each call
whether it keeps that: pointwise calls do, a sum over the dimension does not, causal attention does.
What is not known to keep it is refused by name and line.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from torchneuron.lowering.decompose import draws_numbers
from torchneuron.lowering.graph import source_line

_SAFE = ""
_RESHAPES = (torch.ops.aten.view, torch.ops.aten._unsafe_view, torch.ops.aten.reshape)


class _Call(NamedTuple):
    """Hold one call, with fake tensors in the place of tensors, and the symbol of the padded size.

    `args` are all arguments of the schema in its order, with the defaults of those left out.
    """

    symbol: sympy.Symbol
    node: fx.Node
    args: list[Any]
    made: Any

    def rows(self, value: Any) -> list[int]:
        """Return the dimensions of a tensor whose size depends on the padded one."""
        return _rows(value, self.symbol)


Check = Callable[[_Call], str]


def depends(number: Any, symbol: sympy.Symbol) -> bool:
    """Return whether a number, or a size, depends on a symbol."""
    is_symbolic = isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool)
    return is_symbolic and symbol in number.node.expr.free_symbols


def refusal(graph: fx.GraphModule, symbol: sympy.Symbol) -> str:
    """Return why a dimension must not be padded, an empty string where it may.

    Args:
        graph: ATen calls with `meta["val"]`; inputs that have the dimension are padded at its end.
        symbol: The size of the dimension.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function":
            reason = _reason(node, symbol)
            if reason:
                file, line = source_line(node)
                return f"{node.target}{f' at {file}:{line}' if file else ''} {reason}"
    return _SAFE


def _reason(node: fx.Node, symbol: sympy.Symbol) -> str:
    made, target = node.meta.get("val"), node.target
    args, kwargs = pytree.tree_map_only(
        fx.Node, lambda each: each.meta.get("val"), (node.args, node.kwargs)
    )
    if isinstance(made, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
        return _SAFE  # a size: where it is used decides
    leaves = pytree.tree_leaves((args, kwargs, made))
    call = _Call(symbol, node, list(args), made)
    if target is operator.getitem:
        return _SAFE
    if not any(call.rows(each) or depends(each, symbol) for each in leaves):
        return _SAFE
    if not isinstance(target, OpOverload) or draws_numbers(target):
        return "draws numbers, of which the padding takes some"
    for place, argument in enumerate(target._schema.arguments):
        if place >= len(args):
            call.args.append(kwargs.get(argument.name, argument.default_value))
    check = _CHECKS.get(target.overloadpacket._qualified_op_name.removeprefix("aten::"))
    if check is not None:
        return check(call)
    if torch.Tag.pointwise in target.tags:
        return _pointwise(call)
    return "is not known to leave alone what comes before the padding"


def _pointwise(call: _Call) -> str:
    """Accept what meets no padded element with another one; a size as a number changes results."""
    uses_size = any(depends(each, call.symbol) for each in call.args)
    return "computes with the size itself" if uses_size else _SAFE


def _always(call: _Call) -> str:
    del call
    return _SAFE


def _view(call: _Call) -> str:
    """Accept a reshape after which each step of the dimension holds the same elements as before."""
    inside = _inside(call.node, call.symbol)
    rows = call.rows(call.made)
    if inside is not None and len(rows) == 1:
        outside = sympy.cancel(_size(call.made.shape[rows[0]]) / (inside * call.symbol))
        is_whole = all(sympy.fraction(each)[1] == 1 for each in (inside, outside))
        if is_whole and call.symbol not in inside.free_symbols | outside.free_symbols:
            return _SAFE
    return "mixes the padded dimension with others"


def _inside(node: fx.Node, symbol: sympy.Symbol) -> Any:
    """Return how many places one step of the padded size takes within its own dimension.

    That is 1 for the dimension itself, and L after a reshape of (padded, L) to (padded * L). None
    where it is not known.
    """
    value: Any = node.meta.get("val")
    dims = _rows(value, symbol)
    if len(dims) != 1:
        return None
    size = _size(value.shape[dims[0]])
    is_reshape = getattr(node.target, "overloadpacket", None) in _RESHAPES
    if size == symbol and not is_reshape:
        return sympy.Integer(1)
    for source in node.all_input_nodes:
        before: Any = source.meta.get("val")
        rows = _rows(before, symbol)
        if len(rows) != 1:
            continue
        inside = _inside(source, symbol)
        if inside is not None and is_reshape:
            elements = inside * _elements(before.shape[rows[0] + 1 :])
            return sympy.cancel(elements / _elements(value.shape[dims[0] + 1 :]))
        if _size(before.shape[rows[0]]) == size:
            return inside
    return None


def _rows(value: Any, symbol: sympy.Symbol) -> list[int]:
    """Return the dimensions of a tensor whose size depends on a symbol."""
    if not isinstance(value, torch.Tensor):
        return []
    return [dim for dim, size in enumerate(value.shape) if depends(size, symbol)]


def _size(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _elements(sizes: Sequence[Any]) -> Any:
    return math.prod((_size(size) for size in sizes), start=sympy.Integer(1))


def _without(*places: tuple[int, int]) -> Check:
    """Accept where no padded dimension of argument `i` is the one that argument `j` names."""

    def check(call: _Call) -> str:
        for tensor, dims in places:
            value, named = call.args[tensor], call.args[dims]
            if isinstance(value, list | tuple):
                value = value[0]
            if _meets(call, value, named):
                return "works across the padded dimension"
        return _SAFE

    return check


def _meets(call: _Call, value: torch.Tensor, named: Any) -> bool:
    """Return whether a padded dimension is among those named; none named means all."""
    rows = call.rows(value)
    if named is None or named == []:
        return bool(rows)
    dims = named if isinstance(named, list | tuple) else [named]
    return any(dim % max(value.dim(), 1) in rows for dim in dims)


def _fixed(*places: tuple[int, Sequence[int]]) -> Check:
    """Accept where argument `i` is not padded in these dimensions."""

    def check(call: _Call) -> str:
        for tensor, dims in places:
            if call.args[tensor] is not None and _meets(call, call.args[tensor], list(dims)):
                return "works across the padded dimension"
        return _SAFE

    return check


def _layer_norm(call: _Call) -> str:
    return _fixed((0, range(-len(call.args[1]), 0)))(call)


def _convolution(call: _Call) -> str:
    return _fixed((0, range(1, call.args[0].dim())), (1, range(call.args[1].dim())))(call)


def _slice(call: _Call) -> str:
    """Accept a slice of other dimensions, or one from the first element on."""
    value, dim, start, end, step = call.args[:5]
    if dim % value.dim() not in call.rows(value):
        is_prefix = start in (None, 0) and step == 1
        return _SAFE if is_prefix or not depends(end, call.symbol) else "is counted from the end"
    is_whole = end is None or (isinstance(end, int) and end >= 2**62)
    is_whole = is_whole or (isinstance(end, torch.SymInt) and _size(end) == call.symbol)
    return _SAFE if start in (None, 0) and step == 1 and is_whole else "takes part of the dimension"


def _attention(call: _Call) -> str:
    """Accept causal attention, in which no query sees a later key; or unpadded keys."""
    query, key, value, _, is_causal, mask = call.args[:6]
    if any(call.rows(each) not in ([], [0], [2], [0, 2]) for each in (query, key, value)):
        return "works across the padded dimension"
    if mask is not None and call.rows(mask):
        return "takes a mask over the padded dimension"
    if 2 in call.rows(key) and not is_causal:
        return "lets queries see padded keys: it is not causal"
    return _SAFE


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        "permute transpose t unsqueeze squeeze expand clone _to_copy detach alias arange full "
        "zeros ones empty scalar_tensor zeros_like ones_like full_like empty_like lift_fresh_copy "
        "cumsum cumprod tril triu copy iota".split(),
        _always,
    ),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    **dict.fromkeys(
        "sum mean amax amin any all argmax argmin max min var var_mean std prod logsumexp _softmax "
        "_log_softmax _safe_softmax softmax unbind select flip cat index_select gather sort "
        "stack".split(),
        _without((0, 1)),
    ),
    **dict.fromkeys(("split", "split_with_sizes", "topk"), _without((0, 2))),
    "embedding": _fixed((0, (0, 1))),
    "mm": _fixed((0, (1,)), (1, (0,))),
    "bmm": _fixed((0, (2,)), (1, (1,))),
    "addmm": _fixed((1, (1,)), (2, (0,))),
    "baddbmm": _fixed((1, (2,)), (2, (1,))),
    "_native_batch_norm_legit_no_training": _fixed((0, (1,))),
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _layer_norm,
    "convolution": _convolution,
    "slice": _slice,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}
