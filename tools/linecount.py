"""Print the lines of every hand-written source file and hold each to the budget.

A file aims at 300 lines and may not pass 450. `--check` prints only the files above a limit and
exits with 1 if one is above the hard limit. There is no list of exceptions: split the file.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("csrc", "src", "tests", "examples", "benchmarks", "tools")
SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".sh"}
# What setup.py writes is not written by hand.
GENERATED = {"_build_info.py"}
SOFT_LIMIT = 300
HARD_LIMIT = 450


def source_files(root: Path = ROOT) -> list[Path]:
    """List the hand-written source files below the code folders, sorted."""
    found = [
        path
        for folder in FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in SUFFIXES and path.name not in GENERATED
    ]
    return sorted(path for path in found if path.is_file())


def count_lines(root: Path = ROOT) -> dict[str, int]:
    """Count the lines of every source file, keyed by its path below the root."""
    return {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in source_files(root)
    }


def over_budget(lines: dict[str, int], limit: int = HARD_LIMIT) -> dict[str, int]:
    """Select the files with more lines than the limit, longest first."""
    over = {name: count for name, count in lines.items() if count > limit}
    return dict(sorted(over.items(), key=lambda item: -item[1]))


def main(arguments: list[str] | None = None) -> int:
    """Print the table and return 1 if a file is above the hard limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="print only what is over a limit")
    check = parser.parse_args(arguments).check
    lines = count_lines()
    shown = over_budget(lines, SOFT_LIMIT) if check else lines
    for name, count in shown.items():
        mark = "  over the hard limit" if count > HARD_LIMIT else ""
        print(f"{count:6d}  {name}{mark}")
    print(f"{sum(lines.values()):6d}  total in {len(lines)} files", file=sys.stderr)
    return 1 if over_budget(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
