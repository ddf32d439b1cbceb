import json

import pytest

from torchneuron import errors
from torchneuron.cli import main

Capture = pytest.CaptureFixture[str]


def test_page_of_a_code(capsys: Capture) -> None:
    assert main(["help", "nrn104"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("NRN104 CoreSelectionError")
    assert "Fix:" in text


def test_list_of_codes(capsys: Capture) -> None:
    assert main(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(errors.by_code())


def test_json_of_both(capsys: Capture) -> None:
    assert main(["help", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["codes"]) == len(errors.by_code())
    assert main(["help", "NRN101", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"] == errors.help_page("NRN101")


def test_unknown_code_is_a_usage_error(capsys: Capture) -> None:
    assert main(["help", "NRN1O1"]) == 2
    assert "unknown error code `NRN1O1`" in capsys.readouterr().err
