"""A progress bar for a terminal, plain lines for everything else."""

import sys
import time
from typing import TextIO

BAR_WIDTH = 28
REDRAW_S = 0.1
LINES_PER_RUN = 8


class Progress:
    """Show how far a loop is: one line redrawn on a terminal, else a line now and then.

    Example:
        >>> with Progress("digits", total=200) as progress:
        ...     for step in range(200):
        ...         progress.update(step + 1, "loss 0.31")
    """

    def __init__(self, label: str, total: int, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._redraws = self._stream.isatty()
        self._start = time.monotonic()
        self._drawn_at = float("-inf")
        self._width = 0
        self._lines = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._redraws and self._width:
            self._stream.write("\n")
            self._stream.flush()

    def is_due(self, done: int) -> bool:
        """Tell whether `update(done)` would show anything, so that a note may cost a sync."""
        if self._redraws:
            return done == self._total or time.monotonic() - self._drawn_at >= REDRAW_S
        return done * LINES_PER_RUN >= (self._lines + 1) * self._total or done == self._total

    def update(self, done: int, note: str) -> None:
        """Show that `done` of the total is finished, with a short note such as the loss."""
        if not self.is_due(done):
            return
        elapsed = time.monotonic() - self._start
        left = elapsed / done * (self._total - done)
        text = f"{done:>4}/{self._total}  {note}  {done / elapsed:.1f} steps/s  {left:.0f} s left"
        if self._redraws:
            filled = BAR_WIDTH * done // self._total
            line = f"{self._label} [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {text}"
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
            self._drawn_at = time.monotonic()
        else:
            self._stream.write(f"{self._label} {text}\n")
            self._lines = done * LINES_PER_RUN // self._total
        self._stream.flush()
