import pytest

from torchneuron import chips
from torchneuron.chips import spec
from torchneuron.errors import ArgumentError, DataError, InstanceError

GIB = 2**30
SOURCES = {"page": "the page"}
GOOD = {"value": 1, "source": "page", "confidence": "published"}


@pytest.mark.parametrize(
    ("name", "cores", "memory", "flops"),
    [("trn1", 2, 32, 190), ("trn2", 8, 96, 667), ("trn3", 8, 144, 671)],
)
def test_chip_figures_are_the_published_ones(
    name: str, cores: int, memory: int, flops: int
) -> None:
    chip = chips.load_chip(name)
    assert (chip.physical_cores, chip.hbm_bytes) == (cores, memory * GIB)
    assert chip.figures["bf16_dense_flops_per_s"].value == flops * 10**12
    assert chip.core_figures["psum_bytes"].value == 2 * 2**20


def test_cores_of_a_chip_hold_the_on_chip_memory_of_the_chip() -> None:
    for name in chips.CHIP_NAMES:
        chip = chips.load_chip(name)
        core, partition = chip.core_figures["sbuf_bytes"], chip.core_figures["sbuf_partition_bytes"]
        assert chip.figures["sbuf_bytes"].value == chip.physical_cores * core.value
        assert core.value == 128 * partition.value


def test_instance_memory_is_that_of_its_chips() -> None:
    for instance in chips.load_instances().values():
        chip = chips.load_chip(instance.chip)
        assert instance.figures["hbm_bytes"].value == instance.chips * chip.hbm_bytes


def test_lnc_settings_of_the_chips() -> None:
    assert chips.load_chip("trn1").lnc_allowed == (1,)
    assert chips.load_chip("trn2").lnc_allowed == (1, 2)
    assert chips.load_chip("trn3").lnc_default == 2


def test_every_figure_has_source_and_confidence() -> None:
    tables = [chips.load_chip(name).figures for name in chips.CHIP_NAMES]
    tables += [chips.load_chip(name).core_figures for name in chips.CHIP_NAMES]
    tables += [instance.figures for instance in chips.load_instances().values()]
    for figures in tables:
        for figure in figures.values():
            assert figure.source
            assert figure.confidence in {"published", "derived", "guess"}


def test_trn3_servers_say_that_the_name_is_ours_and_derived() -> None:
    server = chips.find_instance("trn3.gen1-server")
    assert "our name" in server.note
    assert server.figures["chips"].confidence == "derived"


def test_instance_is_found_in_any_case() -> None:
    assert chips.find_instance("TRN2.48XLarge").name == "trn2.48xlarge"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("trn2.4xlarge", "did you mean `trn2."),
        ("trn3.48xlarge", "no EC2 name of a trn3 instance is public; of this family: trn3.gen1"),
        ("zebra", "TORCHNEURON_INSTANCE"),
    ],
)
def test_unknown_instance_lists_the_known_and_the_near_ones(name: str, hint: str) -> None:
    with pytest.raises(InstanceError, match=f"unknown instance `{name}`") as caught:
        chips.find_instance(name)
    assert "trn2.3xlarge, trn2.48xlarge" in caught.value.message
    assert hint in caught.value.hint


def test_unknown_chip_is_refused() -> None:
    with pytest.raises(ArgumentError, match="unknown chip `trn9`"):
        chips.load_chip("trn9")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"value": 1, "source": "page"}, "needs exactly value, source and confidence"),
        (GOOD | {"value": "many"}, "not a positive number"),
        (GOOD | {"value": True}, "not a positive number"),
        (GOOD | {"value": 0}, "not a positive number"),
        (GOOD | {"confidence": "sure"}, "confidence `sure`"),
        (GOOD | {"source": "hearsay"}, "source `hearsay`: not in"),
    ],
)
def test_malformed_figure_is_named(entry: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        spec.parse_figures({"hbm_bytes": entry}, SOURCES, "x.toml", frozenset())
    assert "x.toml: figure `hbm_bytes`" in str(caught.value)


def test_figure_without_unit_and_missing_figure_are_named() -> None:
    with pytest.raises(DataError, match="`speed` has no unit in its name"):
        spec.parse_figures({"speed": GOOD}, SOURCES, "x.toml", frozenset())
    with pytest.raises(DataError, match="missing hbm_bytes"):
        spec.parse_figures({"chips": GOOD}, SOURCES, "x.toml", frozenset({"hbm_bytes"}))


def test_files_are_read_once() -> None:
    assert chips.load_chip("trn2") is chips.load_chip("trn2")
    assert chips.load_instances() is chips.load_instances()
