"""The command `torchneuron`.

Exit codes: 0 fine, 1 findings or failure, 2 usage, 3 something is missing in the environment. Each
command has `--json`. A command imports its subsystem when it runs, so that `--help` is instant.
Stability: S for names and exit codes.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from torchneuron import __version__
from torchneuron.cli import cache, chips, doctor, export, help, output
from torchneuron.errors import (
    ArgumentError,
    InstallError,
    NeuronError,
    RuntimeUnavailableError,
    suggestion,
)

FINE, FAILURE, USAGE, MISSING = 0, 1, 2, 3
COMMANDS = {"doctor": doctor, "chips": chips, "cache": cache, "export": export, "help": help}

_EXAMPLES = """\
examples:
  torchneuron doctor          what is installed, what is set, and why
  torchneuron chips trn2      every figure of a chip, with its source

exit codes: 0 fine, 1 findings or failure, 2 usage, 3 environment missing
"""


class _Parser(argparse.ArgumentParser):
    """Report usage errors with a hint and exit code 2."""

    def error(self, message: str) -> NoReturn:
        output.talk(f"error: {message}\n\nhint: `{self.prog} --help` shows what it takes")
        raise SystemExit(USAGE)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="torchneuron",
        description="Tools around the emulated Trainium device `neuron` of PyTorch.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"torchneuron {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_argument("--json", action="store_true", help="print a JSON document")
        module.add_arguments(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: What follows the program's name; None takes it from the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except SystemExit as stop:
        return int(stop.code or 0)
    except BrokenPipeError:
        # The reader went away. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE


def _run(given: list[str]) -> int:
    parser = build_parser()
    word = next((word for word in given if not word.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        return _usage(f"unknown command `{word}`", suggestion(word, COMMANDS), parser.prog)
    options, unknown = parser.parse_known_args(given)
    if unknown:
        near = suggestion(unknown[0], ["--json", "--help", "--version"])
        return _usage(f"unknown argument `{unknown[0]}`", near, f"{parser.prog} {word or ''}")
    if options.command is None:
        output.talk(parser.format_help().rstrip())
        return USAGE
    run: Callable[[argparse.Namespace], int] = COMMANDS[options.command].run
    try:
        return run(options)
    except NeuronError as error:
        output.talk(f"error: {error}")
        if isinstance(error, ArgumentError):
            return USAGE
        return MISSING if isinstance(error, InstallError | RuntimeUnavailableError) else FAILURE


def _usage(what: str, near: str, program: str) -> int:
    output.talk(
        f"error: {what}\n\nhint: {near or f'`{program.strip()} --help` shows what it takes'}"
    )
    return USAGE
