"""Print the page of an error code: symptom, why and fix. Without a code, list the codes."""

import argparse

from torchneuron import errors
from torchneuron.cli import output

SUMMARY = "explain an error code such as NRN101"
EXAMPLES = """\
examples:
  torchneuron help            every code
  torchneuron help NRN101     the page of one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the code."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="the code in the error's brackets")


def run(options: argparse.Namespace) -> int:
    """Print one page, or the list.

    Raises:
        ArgumentError: There is no such code.
    """
    if options.code:
        page = errors.help_page(options.code)
        if options.json:
            output.document("torchneuron.help/1", {"code": options.code.upper(), "page": page})
        else:
            output.data(page)
        return 0
    import inspect

    entries = [
        (code, error.__name__, (inspect.getdoc(error) or "").partition("\n")[0])
        for code, error in errors.by_code().items()
    ]
    if options.json:
        listed = [{"code": code, "name": name, "title": title} for code, name, title in entries]
        output.document("torchneuron.help/1", {"codes": listed})
    else:
        output.data(output.columns(entries))
    return 0
