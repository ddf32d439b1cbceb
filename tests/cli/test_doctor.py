import json
import re

import pytest

import torchneuron
from torchneuron import autoload, config
from torchneuron.autoload import Status
from torchneuron.cli import main, probes
from torchneuron.cli.diagnosis import DoctorReport, doctor
from torchneuron.cli.probes import Probe
from torchneuron.config import SettingRow

Capture = pytest.CaptureFixture[str]


def report(*found: Probe, problem: str = "") -> DoctorReport:
    row = SettingRow("TORCHNEURON_STRICT", "loud", "environment", problem)
    return DoctorReport(found, (row,), False, "host (emulated)", "nothing else is here")


def test_every_probe_says_one_line() -> None:
    found = doctor()
    assert torchneuron.doctor is doctor
    assert len(found.probes) == len(probes.PROBES)
    for probe in found.probes:
        assert probe.level in {"OK", "WARN", "FAIL", "INFO"}
        assert probe.reason
        assert "\n" not in f"{probe.subject}{probe.reason}{probe.remedy}"
        assert probe.remedy or probe.level in {"OK", "INFO"} or probe.subject == "Trainium"


def test_text_has_probes_settings_runtime_and_a_block_to_paste() -> None:
    text = str(doctor())
    for row in config.settings():
        assert re.search(rf"^ +{row.name} +{re.escape(row.value)} +{row.origin}", text, re.M)
    assert re.search(r"^runtime: host \(emulated\), because: .+", text, re.MULTILINE)
    block = text[text.index("```text") :]
    assert block.endswith("\n```")
    assert f"torchneuron {torchneuron.__version__}" in block
    assert "instance: trn2.3xlarge: 4 devices of 24.0 GiB" in block


def test_command_prints_the_report_and_its_exit_code(capsys: Capture) -> None:
    code = main(["doctor"])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert code == doctor().exit_code
    assert "for a bug report:" in captured.out


def test_json_is_a_versioned_document(capsys: Capture) -> None:
    main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "torchneuron.doctor/1"
    assert {probe["subject"] for probe in document["probes"]} >= {"torch", "device", "instance"}
    assert {"name", "value", "origin", "problem"} == set(document["settings"][0])
    assert set(document["device"]) == {"registered", "runtime", "runtime_reason"}


@pytest.mark.parametrize(
    ("found", "problem", "code"),
    [
        (Probe("WARN", "device", "waits"), "", 0),
        (Probe("FAIL", "instance", "unknown", "x"), "", 1),
        (Probe("OK", "torch", "fine"), "bad value", 1),
        (Probe("FAIL", "torch", "absent", "pip"), "", 3),
        (Probe("FAIL", "extension", "absent", "pip"), "bad value", 3),
    ],
)
def test_exit_code_tells_failure_from_missing(found: Probe, problem: str, code: int) -> None:
    assert report(found, problem=problem).exit_code == code


def test_remedy_and_problem_are_shown() -> None:
    text = str(report(Probe("FAIL", "torch", "absent", "pip install torch"), problem="bad value"))
    assert "FAIL  torch  absent -> pip install torch" in text
    assert "FAIL  bad value" in text
    assert "settings: TORCHNEURON_STRICT=loud" in text


def test_bad_setting_fails_the_instance_and_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoload, "_status", Status())
    monkeypatch.setenv("TORCHNEURON_INSTANCE", "trn2.4xlarge")
    assert probes.instance().level == "FAIL"
    assert "did you mean" in probes.instance().remedy
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "7")
    name, reason = probes.runtime()
    assert name == "none"
    assert "NEURON_LOGICAL_NC_CONFIG" in reason
    assert probes.target().level == "INFO"


@pytest.mark.parametrize(
    ("asked", "name", "reason"),
    [
        ("auto", "host (emulated)", "no Trainium is visible"),
        ("host", "host (emulated)", "asks for it"),
        ("nrt", "none", "is not available"),
    ],
)
def test_runtime_says_why(
    monkeypatch: pytest.MonkeyPatch, asked: str, name: str, reason: str
) -> None:
    monkeypatch.setattr(autoload, "trainium_visible", lambda: False)
    monkeypatch.setenv("TORCHNEURON_RUNTIME", asked)
    assert probes.runtime()[0] == name
    assert reason in probes.runtime()[1]


@pytest.mark.parametrize(
    ("state", "level", "remedy"),
    [
        ("registered", "OK", ""),
        ("off", "WARN", "unset TORCHNEURON"),
        ("waiting", "WARN", "TORCHNEURON=1"),
        ("aside", "WARN", "TORCHNEURON_PREFER=1"),
        ("failed", "FAIL", "start the program again"),
    ],
)
def test_device_probe_follows_the_status(
    monkeypatch: pytest.MonkeyPatch, state: str, level: str, remedy: str
) -> None:
    monkeypatch.setattr(autoload, "_status", Status(state, "because"))  # type: ignore[arg-type]
    probe = probes.device()
    assert probe.level == level
    assert remedy in probe.remedy
    assert state == "registered" or "because" in probe.reason


def test_torch_probe_compares_with_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_built_for", lambda: "1.0.0")
    assert probes.torch_version().remedy == "pip install torch==1.0.0"
    monkeypatch.setattr(probes, "_built_for", lambda: "2.13.0")
    assert probes.torch_version().level == "OK"


def test_entry_point_probe_notices_the_switch_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, module = "neuron", "torchneuron.autoload"

    monkeypatch.setattr(probes.importlib.metadata, "entry_points", lambda group: [Point()])
    assert probes.entry_point().level == "OK"
    assert probes.other_backends().reason == "none"
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    assert "unset TORCH_DEVICE_BACKEND_AUTOLOAD" in probes.entry_point().remedy


def test_other_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, module = "npu", "torch_npu"

    monkeypatch.setattr(probes.importlib.metadata, "entry_points", lambda group: [Point()])
    assert probes.other_backends().level == "WARN"
    assert "npu" in probes.other_backends().reason
    assert probes.entry_point().level == "WARN"
