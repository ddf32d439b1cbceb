import sys

import pytest

from torchneuron.cli import output


def test_data_and_talk_go_to_their_streams(capsys: pytest.CaptureFixture[str]) -> None:
    output.data("figures")
    output.talk("a word")
    assert capsys.readouterr() == ("figures\n", "a word\n")


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert output.columns([("a", "bb"), ("ccc", "")], indent=" ") == " a    bb\n ccc"
    assert output.columns([]) == ""


def test_color_needs_a_terminal_and_obeys_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.painted("x", "red") == "x"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert output.painted("x", "red") == "\033[31mx\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.painted("x", "red") == "x"
