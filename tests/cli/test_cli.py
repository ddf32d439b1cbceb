import json
import subprocess
import sys

import pytest

import torchneuron
from torchneuron import cli
from torchneuron.errors import InstallError, NeuronError

Capture = pytest.CaptureFixture[str]


def test_help_lists_commands_examples_and_exit_codes(capsys: Capture) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in cli.COMMANDS)
    assert text.count("  torchneuron ") >= 2
    assert "3 environment missing" in text


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_a_command_shows_examples_and_json(command: str, capsys: Capture) -> None:
    assert cli.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json" in text
    assert "examples:" in text


def test_version_is_data(capsys: Capture) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"torchneuron {torchneuron.__version__}"


def test_nothing_is_a_usage_error(capsys: Capture) -> None:
    assert cli.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: torchneuron" in captured.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["docter"], "did you mean `doctor`?"),
        (["doctor", "--jsno"], "did you mean `--json`?"),
        (["zebra"], "`torchneuron --help` shows what it takes"),
        (["chips", "trn2", "trn3"], "`torchneuron chips --help` shows what it takes"),
    ],
)
def test_usage_error_exits_2_with_a_hint_on_stderr(
    arguments: list[str], hint: str, capsys: Capture
) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"hint: {hint}" in captured.err


@pytest.mark.parametrize(("error", "code"), [(InstallError, 3), (NeuronError, 1)])
def test_error_of_a_command_becomes_an_exit_code(
    error: type[NeuronError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(options: object) -> int:
        raise error("it broke", hint="mend it")

    monkeypatch.setattr(cli.COMMANDS["chips"], "run", fail)
    assert cli.main(["chips"]) == code
    assert capsys.readouterr().err.strip().endswith("hint: mend it")


def test_help_imports_neither_torch_nor_the_data() -> None:
    code = (
        "import sys; from torchneuron.cli import main; main(['--help']);"
        "print({'torch', 'tomllib', 'torchneuron.chips'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "set()"


def test_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchneuron", "help", "NRN101", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "torchneuron.help/1"


def test_reader_that_goes_away_is_no_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m torchneuron chips trn2 | true",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
