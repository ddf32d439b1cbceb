"""Figures of Trainium chips and instances as data, and the emulated instance made of them."""

from torchneuron.chips.emulated import MAX_VISIBLE_CORES, EmulatedInstance, resolve
from torchneuron.chips.spec import (
    CHIP_NAMES,
    Chip,
    Figure,
    Instance,
    find_instance,
    instance_names,
    load_chip,
    load_instances,
)

__all__ = [
    "CHIP_NAMES",
    "MAX_VISIBLE_CORES",
    "Chip",
    "EmulatedInstance",
    "Figure",
    "Instance",
    "find_instance",
    "instance_names",
    "load_chip",
    "load_instances",
    "resolve",
]
