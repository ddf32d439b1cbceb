"""Look at and empty the cache of compiled programs.

Programs are kept in TORCHNEURON_CACHE_DIR, or in the user's cache directory. Those that were not
used for longest are dropped by themselves above TORCHNEURON_CACHE_MAX_BYTES.
"""

import argparse
import datetime
from typing import Any

from torchneuron.cli import output
from torchneuron.errors import ArgumentError

SUMMARY = "list, measure, clear or prune the compiled programs on disk"
EXAMPLES = """\
examples:
  torchneuron cache size
  torchneuron cache list
  torchneuron cache prune --max-bytes 1Gi    drop the longest unused above 1 GiB
  torchneuron cache clear
"""
_DEFAULT = "TORCHNEURON_CACHE_MAX_BYTES"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and its bound."""
    parser.add_argument("action", choices=("list", "size", "clear", "prune"), help="what to do")
    parser.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help=f"for `prune`: how much may stay, also with K, M, G, Ki, Mi, Gi; else {_DEFAULT}",
    )


def run(options: argparse.Namespace) -> int:
    """Do it and print what is there, or what was dropped.

    Raises:
        ArgumentError: The size does not make sense.
        ConfigError: A setting does not make sense.
    """
    from torchneuron import config
    from torchneuron.runtime.cache import user_cache

    cache = user_cache()
    dropped = []
    if options.action == "clear":
        dropped = cache.clear()
    elif options.action == "prune":
        given = options.max_bytes
        bound = cache.max_bytes if given is None else config.bytes_of(given)
        if bound is None:
            raise ArgumentError(
                f"--max-bytes has the value `{given}`: it is not a number of bytes",
                hint="write a number, also with K, M, G, Ki, Mi, Gi, such as `1Gi`",
            )
        dropped = cache.prune(bound)
    shown = dropped if options.action in {"clear", "prune"} else cache.entries()
    rows = [
        {"name": each.name, "bytes": each.num_bytes, "last_used_s": each.last_used_s}
        for each in shown
    ]
    if options.json:
        content: dict[str, Any] = {
            "folder": str(cache.folder),
            "bytes": cache.num_bytes(),
            "max_bytes": cache.max_bytes,
            "action": options.action,
            "programs": rows,
        }
        output.document("torchneuron.cache/1", content)
        return 0
    if options.action == "list" and rows:
        lines = [("program", "bytes", "last used")]
        lines += [(each.name, str(each.num_bytes), _moment(each.last_used_s)) for each in shown]
        output.data(output.columns(lines))
    if options.action in {"clear", "prune"}:
        output.data(f"{len(dropped)} programs dropped")
    num_left = len(cache.entries())
    output.data(f"{num_left} programs, {cache.num_bytes()} bytes, in {cache.folder}")
    return 0


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).isoformat(sep=" ", timespec="seconds")
