"""Run a Python script in a fresh process and show what it said when it fails."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

TESTS = Path(__file__).resolve().parent.parent


def run_script(
    source: str,
    folder: Path,
    *,
    env: Mapping[str, str | None] | None = None,
    flags: tuple[str, ...] = (),
    timeout_s: float = 240.0,
    returncode: int | None = 0,
) -> subprocess.CompletedProcess[str]:
    """Run source as a file in folder and check the process's return code.

    Args:
        source: The script; common indentation is removed.
        folder: An empty folder, which becomes the working directory.
        env: Variables to set, or to remove where the value is None.
        flags: Flags for the interpreter.
        timeout_s: Seconds after which the test fails.
        returncode: The code expected, or None to leave it to the caller.

    Returns:
        The finished process with its text output.
    """
    path = folder / "script.py"
    path.write_text(dedent(source), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, *flags, str(path)],
        cwd=folder,
        env=environment(env or {}),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if returncode is not None:
        said = f"--- stdout\n{process.stdout}\n--- stderr\n{process.stderr}"
        assert process.returncode == returncode, f"returned {process.returncode}\n{said}"
    return process


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Copy this process's environment for one compute thread, with changes."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(TESTS), os.environ.get("PYTHONPATH", "")) if part
    )
    for name, value in changes.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    return variables
