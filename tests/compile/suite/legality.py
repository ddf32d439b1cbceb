"""What Trainium's compiler says of the programs of a row, as far as public documents tell."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torchneuron.compile import segment

Lowered = tuple[Any, Any]


def module_verdict(lowered: Sequence[Lowered]) -> str:
    """Return the worst verdict over the modules of these graphs and sizes.

    The one place to plug in a verdict on modules: `lower(graph, sizes).module` of each pair is
    the StableHLO for Trainium, without this machine's host calls.
    """
    return "unknown"


@contextmanager
def recorded() -> Iterator[list[Lowered]]:
    """Collect the graphs, with their sizes, that become programs inside the block."""
    found: list[Lowered] = []
    lower = segment.lower

    def record(graph: Any, sizes: Any, *rest: Any) -> Any:
        found.append((graph, sizes))
        return lower(graph, sizes, *rest)

    with mock.patch.object(segment, "lower", record):
        yield found
