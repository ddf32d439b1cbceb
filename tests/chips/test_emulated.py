import pytest

from torchneuron import chips
from torchneuron.errors import CoreSelectionError, InstanceError

GIB = 2**30


@pytest.mark.parametrize(
    ("instance", "lnc", "devices", "memory"),
    [
        ("trn2.3xlarge", None, 4, 24),
        ("trn2.3xlarge", 1, 8, 12),
        ("trn2.48xlarge", 2, 64, 24),
        ("trn2u.48xlarge", None, 64, 24),
        ("trn3.gen1-server", None, 64, 36),
        ("trn3.gen2-server", 1, 32, 18),
    ],
)
def test_devices_and_their_memory(
    instance: str, lnc: int | None, devices: int, memory: int
) -> None:
    view = chips.resolve(instance, lnc)
    assert (view.device_count, view.hbm_bytes_per_core) == (devices, memory * GIB)
    assert view.visible_cores == tuple(range(devices))
    assert view.logical_cores * view.lnc == view.physical_cores == view.chips * 8


def test_default_is_the_smallest_trn2() -> None:
    view = chips.resolve()
    assert (view.name, view.family, view.chip.name, view.lnc) == ("trn2.3xlarge", "trn2", "trn2", 2)


def test_visible_cores_beat_the_number_of_cores() -> None:
    view = chips.resolve("trn2.48xlarge", visible_cores=(8, 3), num_cores=1)
    assert (view.visible_cores, view.device_count, view.logical_cores) == ((8, 3), 2, 64)


@pytest.mark.parametrize(("asked", "devices"), [(1, 1), (3, 3), (4, 4), (0, 4)])
def test_number_of_cores_counts_from_core_0_and_0_is_all(asked: int, devices: int) -> None:
    assert chips.resolve(num_cores=asked).visible_cores == tuple(range(devices))


def test_trn1_is_data_only() -> None:
    with pytest.raises(
        InstanceError, match=r"trn1.2xlarge.*Trainium1 is kept as data only"
    ) as caught:
        chips.resolve("trn1.2xlarge")
    assert "trn2.3xlarge" in caught.value.hint
    assert "trn1" not in caught.value.hint


def test_lnc_that_the_chip_lacks_names_the_variable() -> None:
    with pytest.raises(CoreSelectionError, match="LNC 4 on instance") as caught:
        chips.resolve(lnc=4)
    assert "NEURON_LOGICAL_NC_CONFIG=2" in caught.value.hint


@pytest.mark.parametrize("cores", [(4,), (0, 7), ()])
def test_absent_visible_core_names_variable_and_range(cores: tuple[int, ...]) -> None:
    with pytest.raises(CoreSelectionError, match=r"NEURON_RT_VISIBLE_CORES=.* has cores 0-3"):
        chips.resolve(visible_cores=cores)


def test_too_many_cores_names_the_variable() -> None:
    with pytest.raises(CoreSelectionError, match="NEURON_RT_NUM_CORES asks for 9 cores"):
        chips.resolve(num_cores=9)


def test_more_than_127_visible_devices_name_the_variable() -> None:
    with pytest.raises(CoreSelectionError, match=r"128 cores .* at most 127") as caught:
        chips.resolve("trn2.48xlarge", lnc=1)
    assert "NEURON_RT_VISIBLE_CORES=0-126" in caught.value.hint
    assert chips.resolve("trn2.48xlarge", 1, tuple(range(127))).device_count == 127
