"""A line on the terminal while the compiler takes long: which program, and how long so far."""

from __future__ import annotations

import sys
import threading
import time

_QUIET_S = 2.0
_STEP_S = 0.5


class Line:
    """Rewrite one line of stderr from `_QUIET_S` seconds on, until `end`; only on a terminal."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._over = threading.Event()
        self._begin = time.monotonic()
        self._thread: threading.Thread | None = None
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Clear the line."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        wait_s, shown = _QUIET_S, 0
        while not self._over.wait(wait_s):
            wait_s = _STEP_S
            line = f"torchneuron: {self._text}, {time.monotonic() - self._begin:.0f} s"
            sys.stderr.write(f"\r{line.ljust(shown)}")
            sys.stderr.flush()
            shown = max(shown, len(line))
        if shown:
            sys.stderr.write(f"\r{' ' * shown}\r")
            sys.stderr.flush()
