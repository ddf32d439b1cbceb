"""`torchneuron.strict`: make errors of what the target refuses.

A category is accepted by name as soon as `torchneuron.targets` knows it. Checked in this version:
`dtype`, before each operation computes; `sparse`, for each sparse tensor that an operation takes
or makes; `device_index`, where a rank chooses a device that is not
its own. `memory` needs no check: beyond a core's memory `torch.OutOfMemoryError` is always raised.
The other categories are checked where the operations they speak of are offered.
"""

import contextlib
from types import TracebackType

from torchneuron import config
from torchneuron.device import refusals
from torchneuron.targets import CATEGORIES, check_category, load_target


class strict(contextlib.ContextDecorator):  # noqa: N801 (used like a function)
    """Make an error of what the target refuses, in a `with` block or a decorated function.

    Blocks nest; a block adds to those around it and ends with them restored. A block holds for
    the code that it runs, not for other threads.

    Args:
        categories: Some of `dtype`, `memory`, `dynamic_shape`, `sparse`, `host_fallback`,
            `collective`, `device_index`; none means all.
        target: Name of the target, the one of TORCHNEURON_TARGET if left out.

    Raises:
        ArgumentError: There is no such category or target.
        StrictError: Inside the block, at what the target refuses.
        ConfigError: TORCHNEURON_TARGET is needed and some setting does not make sense.

    Example:
        >>> with torchneuron.strict("dtype"):
        ...     torch.ones(2, dtype=torch.float64, device="neuron")
        Traceback (most recent call last):
        torchneuron.errors.StrictError: torch-neuronx 2.33 refuses float64 in aten::...

    Stability: S.
    """

    def __init__(self, *categories: str, target: str | None = None) -> None:
        """Check the names; nothing changes before the block is entered."""
        chosen = categories or CATEGORIES
        self._scope = refusals.Scope(
            frozenset(check_category(name) for name in chosen),
            load_target(config.load().target if target is None else target),
        )

    def __enter__(self) -> "strict":
        """Begin to refuse."""
        refusals.enter(self._scope)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Refuse again only what was refused before.

        Raises:
            ArgumentError: The block is not open in this thread.
        """
        refusals.leave(self._scope)
