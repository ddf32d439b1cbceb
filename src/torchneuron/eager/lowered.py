"""Each eager operator as its own program: what TORCHNEURON_EAGER=lowered asks for.

An operator is traced once per shapes, dtypes and constants, into the ATen calls that the lowering
table knows, and run as a compiled program from then on. What is written in place, or into `out=`,
is computed anew and copied. Operators without a lowering, and those that draw random numbers, run
by the CPU's kernels and are counted as host fallbacks.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torchneuron import ledger
from torchneuron.compile import partition
from torchneuron.compile.failures import RefusedProgramError
from torchneuron.compile.options import Options
from torchneuron.compile.segment import Segment
from torchneuron.device.frames import user_line
from torchneuron.ledger import HostFallback
from torchneuron.lowering import decompose
from torchneuron.lowering.graph import LoweringError
from torchneuron.lowering.registry import resolve


@dataclass(frozen=True, slots=True)
class _Program:
    """Hold how one operator runs: the part of a graph, and which results are written where.

    Attributes:
        run: Takes the tensors among the arguments and returns new values of the written ones,
            then the results.
        written: Places, among the tensors, of those that the operator writes.
        returned: Per result: the place of the written tensor that it is, or None.
        is_list: Whether what it returns is one list of tensors.
    """

    run: Callable[..., Any]
    written: tuple[int, ...]
    returned: tuple[int | None, ...]
    is_list: bool


_TRACER = "torchneuron-eager-tracer"
_lock = threading.RLock()
_programs: dict[tuple[Any, ...], _Program | str] = {}


def run(name: str, arguments: list[Any]) -> list[Any] | None:
    """Run an operator as a program; None where the CPU's kernel is to run it.

    Args:
        name: Such as `aten::add.Tensor`.
        arguments: All arguments of the schema, in its order.
    """
    if threading.current_thread().name == _TRACER:
        return None  # a constant that tracing makes
    op, arguments = _annotated(_overload(name), arguments)
    leaves, structure = pytree.tree_flatten(arguments)
    tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
    key = (op, structure, *map(_described, leaves))
    with _lock:
        found = _programs.get(key)
    if found is None:
        found = _traced_apart(op, leaves, structure)
        with _lock:
            _programs[key] = found
    if isinstance(found, str):
        ledger.emit(HostFallback(name, found, *user_line()))
        return None
    made = found.run(*tensors)
    made = list(made) if isinstance(made, tuple | list) else [made]
    for place, value in zip(found.written, made, strict=False):
        _write(tensors[place], value)
    results = made[len(found.written) :]
    if found.is_list:
        return [results]
    return [results.pop(0) if place is None else tensors[place] for place in found.returned]


def _annotated(op: OpOverload, arguments: list[Any]) -> tuple[OpOverload, list[Any]]:
    """Replace an operator whose schema hides what it writes by the one that says it."""
    if op is torch.ops.aten.native_batch_norm.default:
        if arguments[3] is None:
            return torch.ops.aten._native_batch_norm_legit.no_stats, arguments[:3] + arguments[5:]
        return torch.ops.aten._native_batch_norm_legit.default, arguments
    return op, arguments


def _write(target: torch.Tensor, value: torch.Tensor) -> None:
    if target.shape != value.shape:
        target.resize_(value.shape)
    target.copy_(value)


@functools.cache
def _overload(name: str) -> OpOverload:
    namespace, _, rest = name.partition("::")
    return resolve(f"{namespace}.{rest}")


def _described(value: Any) -> Any:
    """Return what a program depends on in an argument."""
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype, value.device, value.is_conj())
    return (type(value), value)


def _traced_apart(op: OpOverload, leaves: Sequence[Any], structure: Any) -> _Program | str:
    """Trace in a thread of its own: this one is inside a kernel, below autograd and its modes."""
    answer: list[_Program | str] = []

    def trace() -> None:
        try:
            answer.append(_traced(op, leaves, structure))
        except Exception as error:  # noqa: BLE001 (the CPU's kernel says what is wrong, if it is)
            answer.append(f"it cannot be traced: {error}")

    thread = threading.Thread(target=trace, name=_TRACER)
    thread.start()
    thread.join()
    return answer[0]


def _traced(op: OpOverload, leaves: Sequence[Any], structure: Any) -> _Program | str:
    """Make a program of an operator, or say why there is none."""
    if decompose.draws_numbers(op):
        return "it draws random numbers"
    written = _written(op, leaves, structure)
    returned = _returned(op, leaves, structure)
    is_list = [str(each.type) for each in op._schema.returns] == ["List[Tensor]"]

    def call(*tensors: torch.Tensor) -> list[Any]:
        rest = [each.clone() if place in written else each for place, each in enumerate(tensors)]
        given = iter(rest)
        filled = [next(given) if isinstance(each, torch.Tensor) else each for each in leaves]
        args, kwargs = _split(op, pytree.tree_unflatten(filled, structure))
        made = op(*args, **kwargs)
        results = list(made) if isinstance(made, tuple | list) else [made]
        if is_list:
            return [*(rest[place] for place in written), *results]
        new = [each for each, place in zip(results, returned, strict=True) if place is None]
        return [*(rest[place] for place in written), *new]

    # Each its own object: where one tensor came twice, the next call may bring two.
    tensors = [each.detach() for each in leaves if isinstance(each, torch.Tensor)]
    with torch.no_grad():
        graph = make_fx(
            functionalize(call, remove="mutations_and_views"),
            decomposition_table=decompose.decompositions(),
            tracing_mode="fake",
        )(*tensors)
    graph.graph.eliminate_dead_code()
    reason = _obstacle(graph)
    if reason:
        return reason
    try:
        return _Program(Segment(graph, f"eager.{op._name}", Options()), written, returned, is_list)
    except (LoweringError, RefusedProgramError) as error:
        return str(error)


def _obstacle(graph: fx.GraphModule) -> str:
    for node in graph.graph.nodes:
        reason = partition.why_eager(node) if node.op == "call_function" else None
        if reason:
            return f"{node.target}: {reason}"
    return ""


def _split(op: OpOverload, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Divide the schema's arguments into those by position and those by name."""
    pairs = list(zip(op._schema.arguments, arguments, strict=True))
    by_name = {each.name: value for each, value in pairs if each.kwarg_only}
    return [value for each, value in pairs if not each.kwarg_only], by_name


def _places(op: OpOverload, leaves: Sequence[Any], structure: Any) -> list[list[int]]:
    """Return, for each argument of the schema, the places of its tensors among all tensors."""
    numbers = iter(range(len(leaves)))
    numbered = [next(numbers) if isinstance(each, torch.Tensor) else None for each in leaves]
    arguments = pytree.tree_unflatten(numbered, structure)
    return [
        [each for each in pytree.tree_leaves(argument) if each is not None]
        for argument in arguments
    ]


def _written(op: OpOverload, leaves: Sequence[Any], structure: Any) -> tuple[int, ...]:
    places = _places(op, leaves, structure)
    return tuple(
        place
        for argument, found in zip(op._schema.arguments, places, strict=True)
        if argument.alias_info is not None and argument.alias_info.is_write
        for place in found
    )


def _returned(op: OpOverload, leaves: Sequence[Any], structure: Any) -> tuple[int | None, ...]:
    """Return which results are arguments: those that carry the alias of a written one."""
    places = _places(op, leaves, structure)
    by_alias = {
        alias: found[0]
        for argument, found in zip(op._schema.arguments, places, strict=True)
        if argument.alias_info is not None and found
        for alias in argument.alias_info.before_set
    }
    return tuple(
        next((by_alias.get(each) for each in result.alias_info.before_set), None)
        if result.alias_info is not None
        else None
        for result in op._schema.returns
    )
