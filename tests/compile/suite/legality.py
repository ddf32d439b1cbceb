"""What Trainium's compiler says of the programs of a row, as far as public documents tell."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torchneuron.compile import segment
from torchneuron.lowering.graph import lower
from torchneuron.lowering.legality import judge

Lowered = tuple[Any, Any]


# From the best to the worst.
_ORDER = ("documented yes", "unknown", "documented no")


def module_verdict(lowered: Sequence[Lowered]) -> str:
    """Return the worst verdict over the programs for a chip of these graphs and sizes."""
    labels = {judge(lower(graph, sizes).module).label for graph, sizes in lowered}
    return max(
        sorted(labels),
        key=lambda label: next(i for i, each in enumerate(_ORDER) if label.startswith(each)),
        default="unknown",
    )


@contextmanager
def recorded() -> Iterator[list[Lowered]]:
    """Collect the graphs, with their sizes, that become programs inside the block."""
    found: list[Lowered] = []
    original = segment.lower

    def record(graph: Any, sizes: Any, *rest: Any) -> Any:
        found.append((graph, sizes))
        return original(graph, sizes, *rest)

    with mock.patch.object(segment, "lower", record):
        yield found
