"""The lowering table: which rule writes which ATen overload.

A rule is a plain function `rule(call, *args, **kwargs)`: `call` says what PyTorch promises about
the results, the arguments are those of the ATen call with a `Value` where it has a tensor. It
returns one `Value`, or a tuple for an operator with several results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from torchneuron.lowering import register  # noqa: F401 (our own operators have rules as well)

Rule = Callable[..., Any]
_OTHER_NAMESPACES = ("prims", "torchneuron")


@dataclass(frozen=True, slots=True)
class Call:
    """Hold what a rule may know about one call beside its arguments.

    Attributes:
        target: The overload called.
        results: Fake tensors of the results (None where a result is not asked for).
        args: The positional arguments with fake tensors in the place of values.
        kwargs: The keyword arguments, likewise.
    """

    target: OpOverload
    results: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the first result."""
        return tuple(int(size) for size in self.results[0].shape)

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the first result."""
        dtype: torch.dtype = self.results[0].dtype
        return dtype


class LoweringTable:
    """Rules by overload; a name that PyTorch does not have, or a second rule, is an error."""

    def __init__(self) -> None:
        self._rules: dict[OpOverload, Rule] = {}

    def __contains__(self, target: object) -> bool:
        return target in self._rules

    def __iter__(self) -> Any:
        return iter(self._rules)

    def find(self, target: object) -> Rule | None:
        """Return the rule of an overload, None where there is none."""
        return self._rules.get(target) if isinstance(target, OpOverload) else None

    def add(self, name: str, rule: Rule) -> None:
        """Enter a rule for `namespace.operator[.overload]`; without an overload, for `default`.

        Raises:
            ValueError: PyTorch has no such overload, or it has a rule already.
        """
        target = resolve(name)
        if target in self._rules:
            raise ValueError(f"{target} has a lowering already, {self._rules[target]}")
        self._rules[target] = rule


def qualified(name: str) -> str:
    """Put `aten.` in front of a name that says no namespace."""
    return name if name.partition(".")[0] in _OTHER_NAMESPACES else f"aten.{name}"


def resolve(name: str) -> OpOverload:
    """Find an overload by name.

    Raises:
        ValueError: PyTorch has no such overload.
    """
    namespace, operator, *overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    found = getattr(packet, overload[0] if overload else "default", None)
    if found is None:
        known = "" if packet is None else f"; its overloads: {', '.join(packet.overloads())}"
        raise ValueError(f"PyTorch {torch.__version__} has no {name}{known}")
    target: OpOverload = found
    return target


TABLE = LoweringTable()


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Enter the decorated function as the rule of these overloads, `aten.` in front understood."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            TABLE.add(qualified(name), rule)
        return rule

    return enter
