"""Load the figures of chips and instances, each with its source and its confidence.

The numbers live in the TOML files beside this module and nowhere else; the files cite public pages.
Units are part of a figure's name. Stability: E.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, get_args

from torchneuron.errors import ArgumentError, DataError, InstanceError, suggestion

Confidence = Literal["published", "derived", "guess"]
CHIP_NAMES = ("trn1", "trn2", "trn3")

_UNITS = ("_bytes", "_per_s", "_hz", "_per_cycle")
# Figures that are counts: the only ones whose names carry no unit.
_COUNTS = frozenset(
    {
        "chips",
        "collective_cores",
        "dma_engines",
        "gpsimd_processors",
        "hbm_stacks",
        "lnc_default",
        "lnc_max",
        "physical_cores",
        "psum_banks",
        "sbuf_partitions",
        "tensor_columns",
        "tensor_rows",
        "ultraserver_instances",
        "vcpus",
    }
)
_CHIP_NEEDS = frozenset({"physical_cores", "hbm_bytes", "lnc_max", "lnc_default"})
_INSTANCE_NEEDS = frozenset({"chips", "hbm_bytes"})


@dataclass(frozen=True, slots=True)
class Figure:
    """Hold one number with the page it comes from and how far to trust it."""

    value: int | float
    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class Chip:
    """Describe one generation of Trainium.

    `figures` are those of the whole chip, `core_figures` those of one physical NeuronCore.
    """

    name: str
    title: str
    core_version: str
    emulated: bool
    figures: Mapping[str, Figure]
    core_figures: Mapping[str, Figure]

    @property
    def physical_cores(self) -> int:
        """Return the number of physical NeuronCores on the chip."""
        return int(self.figures["physical_cores"].value)

    @property
    def hbm_bytes(self) -> int:
        """Return the device memory of the chip in bytes."""
        return int(self.figures["hbm_bytes"].value)

    @property
    def lnc_default(self) -> int:
        """Return how many physical cores make a logical one unless a setting says otherwise."""
        return int(self.figures["lnc_default"].value)

    @property
    def lnc_allowed(self) -> tuple[int, ...]:
        """Return the logical NeuronCore settings that the chip takes."""
        return tuple(range(1, int(self.figures["lnc_max"].value) + 1))


@dataclass(frozen=True, slots=True)
class Instance:
    """Describe what one host of an instance type holds; `chip` is a name for `load_chip`."""

    name: str
    chip: str
    note: str
    figures: Mapping[str, Figure]

    @property
    def chips(self) -> int:
        """Return the number of Trainium chips of the instance."""
        return int(self.figures["chips"].value)


def _is_named_with_unit(key: str) -> bool:
    return key in _COUNTS or key.endswith(_UNITS)


def parse_figures(
    table: Mapping[str, Any], sources: Mapping[str, str], where: str, needed: frozenset[str]
) -> Mapping[str, Figure]:
    """Turn a TOML table into figures and check each.

    Args:
        table: Figure name to `{value, source, confidence}`.
        sources: Short name of a source to the page it stands for.
        where: File and table, for messages.
        needed: Names that must be present.

    Raises:
        DataError: A figure is missing or malformed, or its unit is not in its name.
    """
    figures = {}
    for key, entry in table.items():
        place = f"{where}: figure `{key}`"
        if not isinstance(entry, dict) or set(entry) != {"value", "source", "confidence"}:
            raise DataError(f"{place} needs exactly value, source and confidence")
        value = entry["value"]
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise DataError(f"{place} has the value `{value}`: it is not a positive number")
        if entry["confidence"] not in get_args(Confidence):
            raise DataError(
                f"{place} has the confidence `{entry['confidence']}`",
                hint=f"allowed: {', '.join(get_args(Confidence))}",
            )
        if entry["source"] not in sources:
            raise DataError(f"{place} names the source `{entry['source']}`: not in [sources]")
        if not _is_named_with_unit(key):
            raise DataError(f"{place} has no unit in its name", hint=f"end it in {_UNITS}")
        figures[key] = Figure(value, sources[entry["source"]], entry["confidence"])
    if missing := needed - figures.keys():
        raise DataError(f"{where}: missing {', '.join(sorted(missing))}")
    return MappingProxyType(figures)


def _read(name: str) -> dict[str, Any]:
    text = files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def load_chip(name: str) -> Chip:
    """Return a chip by name, read once per process.

    Raises:
        ArgumentError: There is no such chip.
        DataError: Its file breaks the rules of `parse_figures`.
    """
    if name not in CHIP_NAMES:
        raise ArgumentError(
            f"unknown chip `{name}`: known are {', '.join(CHIP_NAMES)}",
            hint=suggestion(name, CHIP_NAMES),
        )
    data = _read(name)
    where = f"{name}.toml"
    return Chip(
        name=name,
        title=data["title"],
        core_version=data["core_version"],
        emulated=data["emulated"],
        figures=parse_figures(data["chip"], data["sources"], f"{where} [chip]", _CHIP_NEEDS),
        core_figures=parse_figures(
            data["core"], data["sources"], f"{where} [core]", frozenset()
        ),
    )  # fmt: skip


@cache
def load_instances() -> Mapping[str, Instance]:
    """Return every instance under its name, in the order of the file.

    Raises:
        DataError: The file breaks the rules of `parse_figures` or names an unknown chip.
    """
    data = _read("instances")
    instances = {}
    for name, table in data["instances"].items():
        where = f"instances.toml [{name}]"
        if table["chip"] not in CHIP_NAMES:
            raise DataError(f"{where} names the chip `{table['chip']}`: there is no such file")
        entries = {key: entry for key, entry in table.items() if key not in {"chip", "note"}}
        figures = parse_figures(entries, data["sources"], where, _INSTANCE_NEEDS)
        instances[name] = Instance(name, table["chip"], table["note"], figures)
    return MappingProxyType(instances)


def find_instance(name: str) -> Instance:
    """Return an instance by name, in any case.

    Raises:
        InstanceError: There is no such instance.
    """
    instances = load_instances()
    found = instances.get(name.lower())
    if found is not None:
        return found
    family = name.lower().partition(".")[0]
    kin = [known for known in instances if known.startswith(f"{family}.")]
    hint = f"of this family: {', '.join(kin)}" if kin else suggestion(name.lower(), instances)
    if near := suggestion(name.lower(), kin):
        hint = near
    if family == "trn3":
        hint = f"no EC2 name of a trn3 instance is public; {hint}"
    raise InstanceError(
        f"unknown instance `{name}`\nknown: {', '.join(instances)}",
        hint=hint or "set TORCHNEURON_INSTANCE to a known name, or unset it",
    )


def instance_names(*, emulated_only: bool = False) -> tuple[str, ...]:
    """Return the names of the instances, optionally of those that can be emulated."""
    instances = load_instances()
    return tuple(
        name
        for name, instance in instances.items()
        if not emulated_only or load_chip(instance.chip).emulated
    )
