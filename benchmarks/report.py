"""The reports of the benchmarks: what was measured, where, how, and which gates were reached."""

import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from harness import Options, Pair

PAIR_HEADER = ("case", "cpu us", "device us", "ratio", "quartiles", "couples", "calls a block")


@dataclass(frozen=True, slots=True)
class Gate:
    """A number with an upper limit, against regression."""

    name: str
    value: float
    limit: float

    @property
    def reached(self) -> bool:
        """Whether the value is at or under its limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        state = "reached" if self.reached else "MISSED"
        return f"{state}: {self.name} is {self.value:.3f}, at most {self.limit:g} wanted"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a report; every row has as many cells as the header."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __str__(self) -> str:
        lines = [f"## {self.title}", ""]
        lines += [_line(self.header), _line(["---"] * len(self.header))]
        lines += map(_line, self.rows)
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines)


@dataclass(slots=True)
class Report:
    """Everything that one benchmark found out. `theme` names its file."""

    theme: str
    title: str
    method: str
    tables: list[Table] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    load_at_start: float = field(default_factory=lambda: os.getloadavg()[0])

    def __str__(self) -> str:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        parts = [f"# {self.title}", f"{today}, written by `benchmarks/bench_{self.theme}.py`."]
        load = f"{self.load_at_start:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
        facts = [*machine(), ("load average", load)]
        parts.append("\n".join(f"- {name}: {value}" for name, value in facts))
        parts += [f"## Method\n\n{self.method}", *map(str, self.tables)]
        if self.gates:
            parts.append("## Gates\n\n" + "\n".join(f"- {gate}" for gate in self.gates))
        return "\n\n".join(parts) + "\n"

    def finish(self, options: Options) -> int:
        """Print the report, write its file and return the exit code: 1 if a gate was missed.

        A smoke run only says that it ran.
        """
        if options.smoke:
            num_rows = sum(len(table.rows) for table in self.tables)
            print(f"bench_{self.theme}: smoke run passed, {num_rows} cases ran, nothing judged")
            return 0
        print(self)
        options.out.mkdir(parents=True, exist_ok=True)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        path = options.out / f"{self.theme}_{machine_slug()}_{today}.md"
        path.write_text(str(self), encoding="utf-8")
        num_missed = sum(not gate.reached for gate in self.gates)
        verdict = (
            f"{num_missed} of {len(self.gates)} gates missed" if num_missed else "gates reached"
        )
        print(f"bench_{self.theme}: {verdict}, report in {path}")
        return 1 if num_missed else 0


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def pair_row(pair: Pair) -> tuple[str, ...]:
    """Return the cells of one comparison, under `PAIR_HEADER`."""
    return (
        pair.label,
        f"{pair.cpu_us:.2f}",
        f"{pair.device_us:.2f}",
        f"{pair.ratio:.3f}",
        f"{pair.low:.2f}-{pair.high:.2f}",
        f"{pair.num_judged} of {pair.num_couples}",
        str(pair.calls),
    )


def machine() -> list[tuple[str, str]]:
    """Return what the numbers depend on: machine, system and versions."""
    return [
        ("machine", f"{_cpu_model()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB"),
        ("system", f"{platform.system()} {platform.release()}, {platform.libc_ver()[1] or 'libc'}"),
        ("python", sys.version.split()[0]),
        ("torch", torch.__version__),
        ("torchneuron", _version("torchneuron")),
        ("threads", str(torch.get_num_threads())),
        ("CPU capability", torch.backends.cpu.get_cpu_capability()),
    ]


def machine_slug() -> str:
    """Return the part of a report's file name that stands for the machine."""
    return f"{platform.system()}-{platform.machine()}-{os.cpu_count()}-cores".lower().replace(
        "_", "-"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
