"""Run scripts in forked children of a process that has imported torch and done nothing else.

Importing torch takes seconds; a child of such a process stands for a fresh one. The process has the
device or has loaded no backend yet; in the second kind a script does what `import torch` ends with:
`torch._import_device_backends()`. Run as a program, with the names of modules to import, this file
is the process: it reads one request a line and answers each with the return code.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

from behaviour.script import environment


class ForkServer:
    """Start the process, and have it run scripts one after another."""

    def __init__(
        self,
        *,
        loaded: bool,
        modules: Sequence[str] = (),
        env: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        backends = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if loaded else "0"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            env=environment({**env, **backends}),
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


@functools.cache
def fork_server(*, loaded: bool) -> ForkServer:
    """Return the one server of a kind, which lives as long as the tests.

    Args:
        loaded: Whether the device is registered, or no backend loaded yet.
    """
    server = ForkServer(loaded=loaded)
    atexit.register(server.close)
    return server


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


def serve(modules: Sequence[str]) -> None:
    """Import what no child has to, then answer requests until the input ends."""
    import torch  # noqa: F401

    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(run_in_child(Path(request["path"]), request["env"]))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1:])
