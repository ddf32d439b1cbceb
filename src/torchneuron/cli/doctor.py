"""Look at the installation, the machine and the settings, and say what to mend."""

import argparse

from torchneuron.cli import output

SUMMARY = "say what is installed, what is set, what is wrong and why"
EXAMPLES = """\
examples:
  torchneuron doctor           one line per probe, then every setting
  torchneuron doctor --json    the same as data
"""
SCHEMA = "torchneuron.doctor/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command takes no argument of its own."""


def run(options: argparse.Namespace) -> int:
    """Print the report and return its exit code."""
    from torchneuron.cli.diagnosis import doctor

    report = doctor()
    if options.json:
        output.document(SCHEMA, report.to_dict())
    else:
        output.data(str(report))
    return report.exit_code
