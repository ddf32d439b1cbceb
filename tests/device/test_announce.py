"""Showing the ledger's events through the logger `torchneuron`."""

import pytest

from torchneuron.device.announce import announce
from torchneuron.ledger import HostFallback, Notice, Refused


def refused(**changes: object) -> Refused:
    fields = {
        "category": "dtype",
        "target": "torch-neuronx 2.33",
        "code": "NCC_ESPP004",
        "summary": "float64 has no code generation on Trainium",
        "hint": "cast with `.float()`",
        "op": "aten::mul.Tensor",
        "dtype": "float64",
        "file": "train.py",
        "line": 12,
    }
    return Refused(**{**fields, **changes})


def test_refusal_is_one_warning_with_place_code_and_hint(caplog: pytest.LogCaptureFixture) -> None:
    announce(refused())
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.name == "torchneuron"
    first, *_, hint = record.getMessage().splitlines()
    assert first == (
        "runs here; torch-neuronx 2.33 refuses float64 in aten::mul.Tensor at train.py:12: "
        "float64 has no code generation on Trainium (NCC_ESPP004), said once for `dtype`"
    )
    assert hint.startswith("hint: cast with `.float()`; TORCHNEURON_STRICT=error")


def test_refusal_without_dtype_and_place(caplog: pytest.LogCaptureFixture) -> None:
    announce(refused(dtype="", file="", line=0, op="neuron:1 in rank 0"))
    assert "refuses neuron:1 in rank 0: " in caplog.records[0].getMessage()


def test_notice_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    announce(Notice("memory", "less than wanted", hint="raise the limit"))
    announce(Notice("memory", "less than wanted"))
    assert caplog.records[0].getMessage() == "memory: less than wanted\n\nhint: raise the limit"
    assert caplog.records[1].getMessage() == "memory: less than wanted"


def test_fallbacks_are_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    announce(HostFallback("aten::foo", "no lowering"))
    assert not caplog.records
    with caplog.at_level("DEBUG", logger="torchneuron"):
        announce(HostFallback("aten::foo", "no lowering"))
    assert caplog.records[0].levelname == "DEBUG"
