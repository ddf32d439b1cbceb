"""The only module that prints: data to standard output, talk to standard error."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

_COLORS = {"green": "32", "yellow": "33", "red": "31", "blue": "34"}


def data(text: str) -> None:
    """Print what a command was asked for."""
    print(text)


def document(schema: str, content: Mapping[str, Any]) -> None:
    """Print a JSON document; `schema` is its versioned name, such as `torchneuron.doctor/1`."""
    import json

    print(json.dumps({"schema": schema, **content}, indent=2))


def talk(text: str) -> None:
    """Print what is said about the work, such as an error."""
    print(text, file=sys.stderr)


def painted(text: str, color: str) -> str:
    """Return the text in a color where standard output is a terminal and NO_COLOR is not set."""
    from torchneuron import config

    if config.no_color() or not sys.stdout.isatty():
        return text
    return f"\033[{_COLORS[color]}m{text}\033[0m"


def columns(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return rows of equally many cells as aligned lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return "\n".join(
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
        .rstrip()
        for row in rows
    )  # fmt: skip
