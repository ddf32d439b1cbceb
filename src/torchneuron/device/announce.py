"""Show the ledger's events to the user, through the logger `torchneuron`.

Quiet unless something deserves a warning. Without any logging set up, Python prints warnings to
stderr. `TORCH_LOGS="+torchneuron"` shows debug messages: PyTorch takes the name of any module.
"""

import logging

from torchneuron.ledger import CacheHit, Compiled, Event, HostFallback, Refused

_log = logging.getLogger("torchneuron")


def announce(event: Event) -> None:
    """Log one event: refusals and notices as warnings, fallbacks for debugging."""
    if isinstance(event, HostFallback):
        _log.debug("`%s` ran on the host: %s", event.op, event.reason)
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


def _refusal(event: Refused) -> str:
    what = f"{event.dtype} in {event.op}" if event.dtype else event.op
    where = f" at {event.file}:{event.line}" if event.file else ""
    return (
        f"runs here; {event.target} refuses {what}{where}: {event.summary} ({event.code}), "
        f"said once for `{event.category}`"
    )
