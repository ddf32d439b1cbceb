"""Render chips and instances: as plain data for JSON and as tables for people."""

from collections.abc import Mapping
from typing import Any

from torchneuron import chips
from torchneuron.chips import Chip, Figure, Instance
from torchneuron.cli import output
from torchneuron.errors import ArgumentError, suggestion

_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_DECIMAL = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"))


def page(name: str | None) -> tuple[dict[str, Any], str]:
    """Return data and text of a chip, of an instance, or of all where no name is given.

    Raises:
        ArgumentError: There is no such chip or instance.
    """
    if name is None:
        return _overview()
    if name.lower() in chips.CHIP_NAMES:
        return _chip(chips.load_chip(name.lower()))
    if name.lower() in chips.load_instances():
        return _instance(chips.load_instances()[name.lower()])
    known = [*chips.CHIP_NAMES, *chips.load_instances()]
    raise ArgumentError(
        f"unknown chip or instance `{name}`: known are {', '.join(known)}",
        hint=suggestion(name.lower(), known) or "`torchneuron chips` lists them",
    )


def readable(key: str, value: int | float) -> str:
    """Return a figure with the unit that its name states, such as `96 GiB` or `667 Tflop/s`."""
    if key.endswith("_bytes"):
        for size, unit in _BINARY:
            if value >= size and 4 * value % size == 0:
                return f"{value / size:g} {unit}"
        return f"{value} B"
    if key.endswith("_per_cycle"):
        return f"{value} per cycle"
    units = {"bytes_per_s": "B/s", "flops_per_s": "flop/s", "bits_per_s": "bit/s", "hz": "Hz"}
    for ending, unit in units.items():
        if key.endswith(ending):
            size, prefix = next(pair for pair in _DECIMAL if value >= pair[0])
            return f"{value / size:g} {prefix}{unit}"
    return str(value)


def _plain(figures: Mapping[str, Figure]) -> dict[str, dict[str, Any]]:
    return {
        key: {"value": figure.value, "source": figure.source, "confidence": figure.confidence}
        for key, figure in figures.items()
    }


def _table(figures: Mapping[str, Figure]) -> str:
    rows = [
        (key, readable(key, figure.value), figure.confidence, figure.source)
        for key, figure in figures.items()
    ]
    return output.columns([("figure", "value", "confidence", "source"), *rows], indent="  ")


def _overview() -> tuple[dict[str, Any], str]:
    listed = [chips.load_chip(name) for name in chips.CHIP_NAMES]
    chip_rows = [
        (
            chip.name,
            chip.title,
            f"{chip.physical_cores} x {chip.core_version}",
            readable("hbm_bytes", chip.hbm_bytes),
            "LNC " + " or ".join(map(str, chip.lnc_allowed)),
            "emulated" if chip.emulated else "data only",
        )
        for chip in listed
    ]
    rows = [("instance", "chip", "chips", "devices", "memory of each", "note")]
    entries = []
    for instance in chips.load_instances().values():
        view = _emulation(instance)
        entries.append({"name": instance.name, "chip": instance.chip, "emulated": view})
        shown = (
            (str(view["devices"]), readable("hbm_bytes", view["hbm_bytes"])) if view else ("", "")
        )
        rows.append((instance.name, instance.chip, str(instance.chips), *shown, instance.note))
    content = {"chips": [chip.name for chip in listed], "instances": entries}
    return content, "\n\n".join([output.columns(chip_rows), output.columns(rows)])


def _chip(chip: Chip) -> tuple[dict[str, Any], str]:
    content = {
        "name": chip.name,
        "title": chip.title,
        "core_version": chip.core_version,
        "emulated": chip.emulated,
        "figures": _plain(chip.figures),
        "core_figures": _plain(chip.core_figures),
    }
    state = "" if chip.emulated else " (data only, not emulated)"
    text = (
        f"{chip.name}: {chip.title}{state}\n{_table(chip.figures)}\n\n"
        f"one core: {chip.core_version}\n{_table(chip.core_figures)}"
    )
    return content, text


def _emulation(instance: Instance) -> dict[str, int] | None:
    """Return how the instance looks by default to a process, None where it is not emulated."""
    if not chips.load_chip(instance.chip).emulated:
        return None
    view = chips.resolve(instance.name)
    return {"lnc": view.lnc, "devices": view.device_count, "hbm_bytes": view.hbm_bytes_per_core}


def _instance(instance: Instance) -> tuple[dict[str, Any], str]:
    view = _emulation(instance)
    content = {
        "name": instance.name,
        "chip": instance.chip,
        "note": instance.note,
        "emulated": view,
        "figures": _plain(instance.figures),
    }
    said = (
        f"emulated as {view['devices']} devices of {readable('hbm_bytes', view['hbm_bytes'])} "
        f"at LNC {view['lnc']}"
        if view
        else "data only, not emulated"
    )
    note = f"\n{instance.note}" if instance.note else ""
    return content, f"{instance.name} ({instance.chip}): {said}{note}\n{_table(instance.figures)}"
