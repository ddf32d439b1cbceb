"""List every case: one operator, module, optimizer, autocast list or compiled model each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from conformance import autocast, lengths, modules, operators, optimizers, sparse, upstream
from conformance.depth import Depth
from conformance.tally import Results

SUITES = ("operators", "foreach", "sparse", "modules", "optimizers", "autocast", "compiled")
KINDS = (
    "forward",
    "backward",
    "layout",
    "inplace",
    "out",
    "error_inputs",
    "step",
    "state_dict",
    "autocast",
    "lengths",
    *sparse.KINDS,
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is checked together.

    Attributes:
        suite: A member of `SUITES`.
        name: Upstream's name of the operator, module or optimizer.
        check: Runs it on a device at a depth.
    """

    suite: str
    name: str
    check: Callable[[torch.device, Depth], Results]

    @property
    def id(self) -> str:
        """The name that tests, expectations and the report use."""
        return f"{self.suite}/{self.name}"


def cases() -> list[Case]:
    """Return every case, in upstream's order."""
    found = [
        Case("operators", entry.full_name, partial(operators.check, entry))
        for entry in upstream.entries()
    ]
    found += [
        Case("foreach", entry.full_name, partial(_on_lists, entry))
        for entry in upstream.foreach_entries()
    ]
    found += [
        Case("sparse", entry.full_name, partial(sparse.check, entry))
        for entry in upstream.sparse_entries()
    ]
    found += [
        Case("modules", info.name, partial(modules.check, info)) for info in upstream.module_db
    ]
    found += [
        Case("optimizers", info.name, partial(optimizers.check, info)) for info in upstream.optim_db
    ]
    found += [
        Case("autocast", name, partial(_at_any_depth, partial(autocast.check, name)))
        for name in autocast.LISTS
    ]
    found.append(Case("autocast", "banned", partial(_at_any_depth, autocast.check_banned)))
    found.append(Case("compiled", "lengths", lengths.check))
    return found


def _on_lists(entry: upstream.OpInfo, device: torch.device, depth: Depth) -> Results:
    """Check a `_foreach_` entry: its samples are lists of up to sixty tensors, so few of them."""
    return operators.check(entry, device, replace(depth, samples=min(depth.samples, 4)))


def _at_any_depth(
    check: Callable[[torch.device], Results], device: torch.device, depth: Depth
) -> Results:
    return check(device)
