"""Show the ledger's events to the user, through the logger `torchneuron`.

Quiet unless something deserves a warning. Without any logging set up, Python prints warnings to
stderr. `TORCH_LOGS="+torchneuron"` shows debug messages: PyTorch takes the name of any module.
"""

import logging
import threading

from torchneuron.ledger import (
    CacheHit,
    Compiled,
    Compiling,
    Event,
    GraphBreak,
    HostFallback,
    Recompiled,
    Refused,
)

_log = logging.getLogger("torchneuron")
_lines = threading.local()


def announce(event: Event) -> None:
    """Log one event: refusals and notices as warnings, fallbacks for debugging."""
    if isinstance(event, Compiling):
        _show_progress(event)
        return
    if isinstance(event, HostFallback):
        _log.debug("`%s` ran on the host: %s", event.op, event.reason)
        return
    if isinstance(event, Recompiled):
        change = f"{event.old} to {event.new}" if event.new else f"not {event.old}"
        where = f"{event.input} ({event.guard})" if event.input else event.guard
        _log.debug("%s: compiled again for %s, %s", event.graph, where, change)
        return
    if isinstance(event, GraphBreak):
        _log.debug("graph break at %s:%d: %s", event.file, event.line, event.reason)
        return
    if isinstance(event, Compiled | CacheHit):
        how = "compiled" if isinstance(event, Compiled) else "loaded from the cache"
        _log.debug("%s: %s in %.2f s (%s)", event.graph, how, event.seconds, event.key)
        return
    if isinstance(event, Refused):
        text, hint = _refusal(event), f"{event.hint}; TORCHNEURON_STRICT=error makes it an error"
    else:
        text, hint = f"{event.subject}: {event.text}", event.hint
    _log.warning("%s%s", text, f"\n\nhint: {hint}" if hint else "")


def _show_progress(event: Compiling) -> None:
    """Begin or end this thread's progress line."""
    if event.is_over:
        line = getattr(_lines, "line", None)
        if line is not None:
            line.end()
        return
    from torchneuron.device.progress import Line  # only for programs that compile

    _lines.line = Line(f"compiling {event.graph}")


def _refusal(event: Refused) -> str:
    what = f"{event.dtype} in {event.op}" if event.dtype else event.op
    where = f" at {event.file}:{event.line}" if event.file else ""
    return (
        f"runs here; {event.target} refuses {what}{where}: {event.summary} ({event.code}), "
        f"said once for `{event.category}`"
    )
