"""What `torchneuron doctor` finds, as an object that prints as the command's text."""

from dataclasses import asdict, dataclass
from typing import Any

from torchneuron import __version__, autoload
from torchneuron.cli import output, probes
from torchneuron.cli.probes import Probe
from torchneuron.config import SettingRow, settings

_COLOR = {"OK": "green", "WARN": "yellow", "FAIL": "red", "INFO": "blue"}
_ENVIRONMENT = frozenset({"torch", "extension", "runtime"})


@dataclass(frozen=True)
class DoctorReport:
    """Hold what `torchneuron doctor` found; printing it gives the command's text.

    Attributes:
        probes: What each probe found.
        settings: Every setting with its value and where the value comes from.
        registered: Whether the device `neuron` is there in this process.
        runtime: What executes, and that it is emulated.
        runtime_reason: Why that runtime was taken.
    """

    probes: tuple[Probe, ...]
    settings: tuple[SettingRow, ...]
    registered: bool
    runtime: str
    runtime_reason: str

    @property
    def exit_code(self) -> int:
        """Return 3 where torch, the extension or the runtime is missing, 1 for other failures."""
        failed = {probe.subject for probe in self.probes if probe.level == "FAIL"}
        failed |= {row.name for row in self.settings if row.problem}
        if failed & _ENVIRONMENT:
            return 3
        return 1 if failed else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the JSON document, without its schema."""
        return {
            "version": __version__,
            "probes": [asdict(probe) for probe in self.probes],
            "settings": [row._asdict() for row in self.settings],
            "device": {
                "registered": self.registered,
                "runtime": self.runtime,
                "runtime_reason": self.runtime_reason,
            },
        }

    def __str__(self) -> str:
        lines = [f"torchneuron {__version__}", ""]
        width = max(len(probe.subject) for probe in self.probes)
        for probe in self.probes:
            level = output.painted(probe.level.ljust(4), _COLOR[probe.level])
            remedy = f" -> {probe.remedy}" if probe.remedy else ""
            lines.append(f"{level}  {probe.subject.ljust(width)}  {probe.reason}{remedy}")
        lines += ["", "settings"]
        lines.append(output.columns([(r.name, r.value, r.origin) for r in self.settings], "  "))
        for row in self.settings:
            if row.problem:
                level = output.painted("FAIL", _COLOR["FAIL"])
                lines.append(f"{level}  {row.problem}")
        lines += ["", f"runtime: {self.runtime}, because: {self.runtime_reason}"]
        return "\n".join([*lines, "", "for a bug report:", "", self.for_bug_report()])

    def for_bug_report(self) -> str:
        """Return a fenced block with the findings and every setting that is not at its default."""
        facts = [f"{p.level.ljust(4)}  {p.subject}: {p.reason}" for p in self.probes]
        changed = [f"{r.name}={r.value}" for r in self.settings if r.origin != "default"]
        body = [
            f"torchneuron {__version__}, runtime {self.runtime} ({self.runtime_reason})",
            *facts,
            f"settings: {' '.join(changed) or 'all at their defaults'}",
        ]
        return "\n".join(["```text", *body, "```"])


def doctor() -> DoctorReport:
    """Look at the installation, the machine and the settings.

    Imports torch, as a program would, and changes nothing: a device that waits for its first use
    goes on waiting.

    Example:
        >>> print(torchneuron.doctor())

    Stability: S.
    """
    found = tuple(probe() for probe in probes.PROBES)
    name, reason = probes.runtime()
    return DoctorReport(
        probes=found,
        settings=tuple(settings()),
        registered=autoload.status().state == "registered",
        runtime=name,
        runtime_reason=reason,
    )
