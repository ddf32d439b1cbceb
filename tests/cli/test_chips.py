import json

import pytest

from torchneuron import chips
from torchneuron.cli import main
from torchneuron.cli.figures import readable

Capture = pytest.CaptureFixture[str]


def test_overview_lists_every_chip_and_instance(capsys: Capture) -> None:
    assert main(["chips"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*chips.CHIP_NAMES, *chips.load_instances()))
    assert "data only" in text


def test_chip_shows_each_figure_with_source_and_confidence(capsys: Capture) -> None:
    assert main(["chips", "TRN2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    line = next(line for line in lines if line.split()[:1] == ["hbm_bytes"])
    assert line.split()[1:4] == ["96", "GiB", "published"]
    assert "trainium2" in line


def test_instance_says_how_it_is_emulated(capsys: Capture) -> None:
    assert main(["chips", "trn2.48xlarge"]) == 0
    assert "emulated as 64 devices of 24 GiB at LNC 2" in capsys.readouterr().out
    assert main(["chips", "trn1.2xlarge"]) == 0
    assert "data only, not emulated" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["trn3", "trn2.3xlarge", "trn1.32xlarge"])
def test_json_has_schema_and_plain_figures(name: str, capsys: Capture) -> None:
    assert main(["chips", name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["name"]) == ("torchneuron.chips/1", name)
    figure = document["figures"]["hbm_bytes"]
    assert figure["value"] % 2**30 == 0
    assert figure["source"]
    assert figure["confidence"] in {"published", "derived"}


def test_json_overview_tells_what_is_emulated(capsys: Capture) -> None:
    assert main(["chips", "--json"]) == 0
    entries = {e["name"]: e for e in json.loads(capsys.readouterr().out)["instances"]}
    assert entries["trn2.3xlarge"]["emulated"]["devices"] == 4
    assert entries["trn1.2xlarge"]["emulated"] is None


def test_unknown_name_is_a_usage_error(capsys: Capture) -> None:
    assert main(["chips", "trn2.4xlarge"]) == 2
    assert "did you mean `trn2." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("hbm_bytes", 96 * 2**30, "96 GiB"),
        ("hbm_bytes", 3 * 2**39, "1.5 TiB"),
        ("sbuf_usable_partition_bytes", 212984, "212984 B"),
        ("hbm_bytes_per_s", 2_900_000_000_000, "2.9 TB/s"),
        ("bf16_dense_flops_per_s", 667 * 10**12, "667 Tflop/s"),
        ("efa_bits_per_s", 200 * 10**9, "200 Gbit/s"),
        ("tensor_clock_hz", 2_400_000_000, "2.4 GHz"),
        ("vector_elements_per_cycle", 128, "128 per cycle"),
        ("chips", 16, "16"),
    ],
)
def test_figures_are_readable(key: str, value: int, text: str) -> None:
    assert readable(key, value) == text
