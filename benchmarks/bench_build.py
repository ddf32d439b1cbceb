"""The C++ extension: how long a build from nothing takes.

Gate: under three minutes on two cores. `make` builds the same way.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import parse
from report import Gate, Report, Table

LIMIT_S = 180.0
ROOT = Path(__file__).resolve().parent.parent
METHOD = """\
The sources are copied to an empty folder and `setup.py build_ext` runs there once, with as many
compilers at a time as there are cores. A second build follows after touching one small file: what
a change costs. Another process on the machine adds to both."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build twice; a smoke run asks only whether setup.py starts."""
    options = parse(__doc__, rounds=1, arguments=arguments)
    report = Report("build", "Building the extension", METHOD)
    if options.smoke:
        run(ROOT, "--version")
        report.tables.append(Table("setup.py", ("step",), [("starts",)]))
        return report.finish(options)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("csrc", "src"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so"))
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
            shutil.copy(ROOT / name, tree)
        whole_s = build(tree)
        (tree / "csrc" / "core" / "generator.cpp").touch()
        again_s = build(tree)
    rows = [
        (f"from nothing, {os.cpu_count()} cores", f"{whole_s:.0f}"),
        ("after a change of one file", f"{again_s:.0f}"),
    ]
    report.tables.append(Table("Builds", ("build", "seconds"), rows))
    report.gates.append(Gate("seconds from nothing", whole_s, LIMIT_S))
    return report.finish(options)


def build(tree: Path) -> float:
    """Build in place and return the seconds it took."""
    start = time.monotonic()
    run(tree, "--quiet", "build_ext", "--inplace")
    return time.monotonic() - start


def run(tree: Path, *command: str) -> None:
    """Run setup.py, or stop with what it said."""
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "setup.py", *command],
        cwd=tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"bench_build: setup.py {' '.join(command)} failed\n\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
