"""Run scripts in forked children of a process that has torch and has not used the device.

Importing torch takes seconds, and settings are read at the first use of the device: a child of such
a process stands for a fresh one wherever start-up itself is not what is tested. Run as a program,
this file is that process: it reads one request a line and answers each with the return code.
"""

import contextlib
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from behaviour.script import environment


class ForkServer:
    """Start the process, and have it run scripts one after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        source: str,
        folder: Path,
        *,
        env: Mapping[str, str | None] | None = None,
        returncode: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        """Run source as a file in folder and check the return code.

        Args:
            source: The script; common indentation is removed.
            folder: An empty folder, which becomes the working directory.
            env: Variables to set, or to remove where the value is None.
            returncode: The code expected.
        """
        path = folder / "script.py"
        path.write_text(dedent(source), encoding="utf-8")
        self._process.stdin.write(json.dumps({"path": str(path), "env": dict(env or {})}) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        stdout, stderr = ((folder / name).read_text() for name in ("stdout", "stderr"))
        said = f"--- stdout\n{stdout}\n--- stderr\n{stderr}"
        assert code == returncode, f"returned {code}\n{said}"
        return subprocess.CompletedProcess(str(path), code, stdout, stderr)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)


def run_in_child(path: Path, env: Mapping[str, str | None]) -> int:
    """Run a script as the main program with its output in files; return its exit code."""
    os.chdir(path.parent)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    code = 0
    try:
        runpy.run_path(str(path), run_name="__main__")
    except BaseException:  # noqa: BLE001 (the exit code says it)
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def serve() -> None:
    """Answer requests until the input ends."""
    import torch

    assert not torch.neuron.is_initialized()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(run_in_child(Path(request["path"]), request["env"]))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
