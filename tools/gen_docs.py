"""Write docs/reference/*.md from the code and its data, or check that they are up to date.

python tools/gen_docs.py            write the pages
python tools/gen_docs.py --check    exit 1 where a page differs from what would be written
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tools import ops_page, sparse_page  # noqa: E402 (needs the line above, as the next two)
from torchneuron import chips, cli, config, errors, targets  # noqa: E402
from torchneuron.cli.figures import readable  # noqa: E402

PAGES_DIR = ROOT / "docs" / "reference"
NOTE = "<!-- Written by tools/gen_docs.py. Do not edit. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def code(text: str) -> str:
    return f"`{text}`"


def figure_rows(figures: Mapping[str, chips.Figure]) -> list[list[str]]:
    return [
        [code(key), readable(key, figure.value), figure.confidence, figure.source]
        for key, figure in figures.items()
    ]


FIGURE_HEADER = ("figure", "value", "confidence", "source")


def chips_page() -> str:
    parts = [
        "# Chips",
        "The figures behind the emulated device. `published` is printed by the named page, "
        "`derived` follows from published figures, `guess` is ours. None was measured here.",
    ]
    for name in chips.CHIP_NAMES:
        chip = chips.load_chip(name)
        state = "emulated" if chip.emulated else "data only, not emulated"
        parts += [f"## {chip.name}: {chip.title} ({state})"]
        parts += [table(FIGURE_HEADER, figure_rows(chip.figures))]
        parts += [f"One core, {chip.core_version}:"]
        parts += [table(FIGURE_HEADER, figure_rows(chip.core_figures))]
    return "\n\n".join(parts)


def instances_page() -> str:
    rows = []
    for instance in chips.load_instances().values():
        views = [""] * 2
        if chips.load_chip(instance.chip).emulated:
            view = chips.resolve(instance.name)
            views = [str(view.device_count), readable("hbm_bytes", view.hbm_bytes_per_core)]
        rows.append(
            [code(instance.name), instance.chip, str(instance.chips), *views, instance.note]
        )
    header = ("instance", "chip", "chips", "devices", "memory of each", "note")
    parts = [
        "# Instances",
        "Values of `TORCHNEURON_INSTANCE` and `torchneuron.emulate(instance=...)`. Devices are "
        "logical cores at the chip's default LNC; rows without devices are data only. A process "
        f"sees at most {chips.MAX_VISIBLE_CORES} devices.",
        table(header, rows),
    ]
    for instance in chips.load_instances().values():
        parts += [f"## {instance.name}", table(FIGURE_HEADER, figure_rows(instance.figures))]
    return "\n\n".join(parts)


def environment_page() -> str:
    rows = []
    for item in config.SETTINGS:
        older = f" Older name: `{item.older_name}`." if item.older_name else ""
        later = "" if item.active else " *Checked, but without effect in this version.*"
        shown = code(config.show(item.default))
        text = f"{item.description}{older}{later}"
        rows.append([code(item.name), item.kind, shown, item.allowed, text, item.documented])
    header = ("variable", "type", "default", "allowed", "meaning", "documented in")
    return "\n\n".join(
        [
            "# Environment variables",
            "Read at the first use of the device, never at `import torch`. A bad value, or a "
            "variable `TORCHNEURON_*` that is not listed, is one error there. An empty value "
            f"counts as unset. The build reads {', '.join(map(code, config.BUILD_VARIABLES))}.",
            table(header, rows),
        ]
    )


def errors_page() -> str:
    parts = [
        "# Errors",
        "`torchneuron help CODE` prints the same pages. Codes never change their meaning.",
    ]
    for number, error in errors.by_code().items():
        builtin = [base.__name__ for base in error.__mro__ if base.__module__ == "builtins"]
        parts += [f"## {number}: {error.__name__}", f"Also a {code(builtin[0])}."]
        parts += [f"```text\n{inspect.getdoc(error)}\n```"]
    return "\n\n".join(parts)


def cli_page() -> str:
    parts = [
        "# Command line",
        "`torchneuron COMMAND`, or `python -m torchneuron COMMAND`. Every command takes `--json`. "
        "Exit codes: 0 fine, 1 findings or failure, 2 usage, 3 environment missing.",
    ]
    for name, module in cli.COMMANDS.items():
        parser = argparse.ArgumentParser(add_help=False)
        module.add_arguments(parser)
        takes = [
            f"- `{action.metavar or ' | '.join(action.choices or ())}`: {action.help}"
            for action in parser._actions
        ]
        parts += [f"## torchneuron {name}", inspect.getdoc(module) or "", *takes]
        parts += [f"```text\n{module.EXAMPLES.rstrip()}\n```"]
    return "\n\n".join(parts)


def targets_page() -> str:
    parts = [
        "# Targets and their refusals",
        "What `torchneuron.strict` and `TORCHNEURON_STRICT` apply. `documented` is stated by the "
        "vendor, `user` was reported from hardware, `inferred` was concluded from pages. A row "
        "without operators holds for every operation, its arguments and results; in a row with "
        "operators the first tensor argument counts.",
    ]
    header = ("id", "code", "chips", "dtypes", "operators", "what and why", "confidence", "source")
    for name in targets.target_names():
        target = targets.load_target(name)
        parts.append(f"## {name}: {target.title}")
        for category in targets.CATEGORIES:
            rows = [row for row in target.refusals.values() if row.category == category]
            cells = [
                [
                    code(row.id),
                    row.code,
                    ", ".join(row.chips),
                    ", ".join(row.dtypes),
                    ", ".join(map(code, row.ops)),
                    f"{row.summary}. Way out: {row.hint}",
                    row.confidence,
                    row.source,
                ]
                for row in rows
            ]
            parts += [f"### {category}", table(header, cells)] if rows else []
    return "\n\n".join(parts)


def stated(row: targets.Statement) -> str:
    """Say in one cell which operations a statement is about."""
    parts = [", ".join(code("every operation" if op == "*" else op) for op in row.ops)]
    parts += [f"but {', '.join(map(code, row.but))}"] if row.but else []
    parts += [f"of {', '.join(map(code, row.dtypes))}"] if row.dtypes else []
    parts += [f"calling {', '.join(map(code, row.targets))}"] if row.targets else []
    parts += [f"calling other than {', '.join(map(code, row.other_than))}"] * bool(row.other_than)
    conditions = [f"{name} {value}".replace("'", "") for name, value in row.when.items()]
    parts += [f"where {', '.join(map(code, conditions))}"] if conditions else []
    return "; ".join(part for part in parts if part)


def legality_page() -> str:
    parts = [
        "# Statements on programs",
        "What is public on the programs that Trainium's compiler takes, in the words of StableHLO; "
        "`torchneuron.lowering.legality.judge` applies these rows to a module. `documented` is "
        "stated by the vendor, `user` was reported from hardware; what was only concluded from "
        "pages is `inferred` and leaves the verdict unknown, as does the absence of a row.",
    ]
    header = ("id", "operations", "verdict", "chips", "what and why", "confidence", "source")
    for name in targets.target_names():
        rows = targets.load_statements(name)
        new = [row for row in rows if name == targets.DEFAULT_TARGET or row not in shared_rows()]
        cells = [
            [
                code(row.id),
                stated(row) or row.outside,
                f"{row.verdict} {row.code}".strip(),
                ", ".join(row.chips) or "all",
                row.summary,
                row.confidence,
                row.source,
            ]
            for row in new
        ]
        decided = [cell for cell, row in zip(cells, new, strict=True) if not row.outside]
        left = [cell for cell, row in zip(cells, new, strict=True) if row.outside]
        parts.append(f"## {name}")
        parts += [table(header, decided)] if decided else ["The rows above, less the vendor's own."]
        left_header = ("id", "why no module decides it", *header[2:])
        parts += ["### What no module decides", table(left_header, left)] if left else []
    return "\n\n".join(parts)


def shared_rows() -> tuple[targets.Statement, ...]:
    return targets.load_statements(targets.DEFAULT_TARGET)


def ops_reference_page() -> str:
    found = ops_page.rows()
    cells = [[code(row.name), row.how, row.legality, row.because] for row in found]
    header = ("operator", "in a graph", "on trn2", "because of")
    sparse_cells = [[code(row.name), row.layouts, row.form] for row in sparse_page.rows()]
    return "\n\n".join(
        [
            "# Operators",
            "Every overload of the lowering table and every one that PyTorch tags as core ATen. "
            "`native`: it has a rule of its own; `decomposed`: PyTorch takes it apart into such; "
            "`host`: it runs eagerly between programs, counted.",
            "The third column is what is [public](legality.md) on the program of one small call "
            f"(float32 where the operator takes it), lowered without the host's own calls and "
            f"judged for {code(targets.DEFAULT_TARGET)}; other dtypes and arguments may have other "
            "answers. The last column names the operations that decide, in brackets the statement "
            "where that has no code; where neither is given, there is no statement. Nothing was "
            "run on a chip. CHLO is judged by its expansion.",
            ops_page.summary(found),
            table(header, cells),
            "## Sparse tensors",
            sparse_page.NOTE,
            table(("operator", "layouts", "on the chip"), sparse_cells),
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "chips.md": chips_page,
    "instances.md": instances_page,
    "environment.md": environment_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "targets.md": targets_page,
    "legality.md": legality_page,
    "ops.md": ops_reference_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/reference from the code.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = []
    PAGES_DIR.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = PAGES_DIR / name, f"{NOTE}\n\n{page()}\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    verb = "out of date" if check else "written"
    print(f"docs/reference: {', '.join(stale) or 'nothing'} {verb}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
