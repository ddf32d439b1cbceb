"""Work out the emulated instance: which logical cores a process sees, and their memory.

Rules of the vendor's runtime, from its public pages: LNC pairs the physical cores of a chip;
NEURON_RT_VISIBLE_CORES beats NEURON_RT_NUM_CORES; the first visible core is index 0 of the process.
Stability: E.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torchneuron.chips.spec import Chip, find_instance, instance_names, load_chip
from torchneuron.errors import CoreSelectionError, InstanceError

# A device index of PyTorch is a signed byte (c10::DeviceIndex).
MAX_VISIBLE_CORES = 127


@dataclass(frozen=True, slots=True)
class EmulatedInstance:
    """Describe the emulated instance as one process sees it.

    `visible_cores` holds the instance's number of each logical core, at its device index.
    """

    name: str
    chip: Chip
    chips: int
    lnc: int
    visible_cores: tuple[int, ...]

    @property
    def physical_cores(self) -> int:
        """Return the physical NeuronCores of the whole instance."""
        return self.chips * self.chip.physical_cores

    @property
    def logical_cores(self) -> int:
        """Return the logical NeuronCores of the whole instance, visible or not."""
        return self.physical_cores // self.lnc

    @property
    def device_count(self) -> int:
        """Return how many devices `neuron` the process has."""
        return len(self.visible_cores)

    @property
    def hbm_bytes_per_core(self) -> int:
        """Return the device memory of one logical core in bytes."""
        return self.chip.hbm_bytes * self.lnc // self.chip.physical_cores

    @property
    def family(self) -> str:
        """Return the instance family, such as `trn2`."""
        return self.name.partition(".")[0]


def resolve(
    instance: str = "trn2.3xlarge",
    lnc: int | None = None,
    visible_cores: tuple[int, ...] | None = None,
    num_cores: int | None = None,
) -> EmulatedInstance:
    """Work out what a process sees of an instance.

    Args:
        instance: Name of the instance, in any case.
        lnc: Physical cores per logical core; None takes the chip's default.
        visible_cores: Logical cores in device order; None shows all.
        num_cores: How many cores from 0, where `visible_cores` is None; 0 shows all.

    Raises:
        InstanceError: The instance is unknown or is not emulated.
        CoreSelectionError: The chip lacks that LNC, the instance lacks such cores, or more than
            127 would be visible.
    """
    found = find_instance(instance)
    chip = load_chip(found.chip)
    if not chip.emulated:
        raise InstanceError(
            f"instance `{found.name}` is not emulated: {chip.title} is kept as data only",
            hint=f"choose one of {', '.join(instance_names(emulated_only=True))}",
        )
    lnc = chip.lnc_default if lnc is None else lnc
    if lnc not in chip.lnc_allowed:
        raise CoreSelectionError(
            f"LNC {lnc} on instance `{found.name}`: {chip.title} takes "
            f"{' or '.join(map(str, chip.lnc_allowed))}",
            hint=f"set NEURON_LOGICAL_NC_CONFIG={chip.lnc_default} or unset it",
        )
    total = found.chips * chip.physical_cores // lnc
    cores = _visible(total, f"`{found.name}` at LNC {lnc}", visible_cores, num_cores)
    return EmulatedInstance(found.name, chip, found.chips, lnc, cores)


def _visible(
    total: int, where: str, visible_cores: tuple[int, ...] | None, num_cores: int | None
) -> tuple[int, ...]:
    """Choose among `total` logical cores; `where` names the instance in messages."""
    last = total - 1
    if visible_cores is not None:
        absent = [core for core in visible_cores if not 0 <= core < total]
        if absent or not visible_cores:
            raise CoreSelectionError(
                f"NEURON_RT_VISIBLE_CORES={_ranges(visible_cores)} names core "
                f"{_ranges(absent) or 'none'}: {where} has cores 0-{last}",
                hint=f"set NEURON_RT_VISIBLE_CORES=0-{min(last, MAX_VISIBLE_CORES - 1)} "
                "or choose a larger TORCHNEURON_INSTANCE",
            )
        cores = visible_cores
    else:
        if num_cores is not None and not 0 <= num_cores <= total:
            raise CoreSelectionError(
                f"NEURON_RT_NUM_CORES asks for {num_cores} cores: {where} has {total}",
                hint=f"set NEURON_RT_NUM_CORES to at most {min(total, MAX_VISIBLE_CORES)} "
                "or choose a larger TORCHNEURON_INSTANCE",
            )
        cores = tuple(range(num_cores or total))
    if len(cores) > MAX_VISIBLE_CORES:
        raise CoreSelectionError(
            f"{len(cores)} cores of {where} would be visible: a process takes at most "
            f"{MAX_VISIBLE_CORES}, because PyTorch stores a device index in a signed byte",
            hint=f"set NEURON_RT_VISIBLE_CORES=0-{MAX_VISIBLE_CORES - 1}, or keep LNC 2",
        )
    return cores


def _ranges(cores: Sequence[int]) -> str:
    """Write cores as the variable takes them: 0,2-5."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
