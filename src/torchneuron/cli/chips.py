"""Print the figures of chips and instances, each with its source and its confidence."""

import argparse

from torchneuron.cli import output

SUMMARY = "print the figures of chips and instances, with sources"
EXAMPLES = """\
examples:
  torchneuron chips                   all chips and instances
  torchneuron chips trn2              every figure of a chip
  torchneuron chips trn2.48xlarge     an instance, and how it is emulated
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the name."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a chip or an instance")


def run(options: argparse.Namespace) -> int:
    """Print the overview, one chip or one instance.

    Raises:
        ArgumentError: There is no such chip or instance.
    """
    from torchneuron.cli import figures

    content, text = figures.page(options.name)
    if options.json:
        output.document("torchneuron.chips/1", content)
    else:
        output.data(text)
    return 0
