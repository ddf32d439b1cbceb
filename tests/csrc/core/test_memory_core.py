"""Run the C++ checks of the device memory: pool, allocators, pinned memory, host limit."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
CHECKS = ("memory_core_test.cpp", "pool_checks.cpp", "allocator_checks.cpp")
SOURCES = (
    "pool.cpp",
    "pool_adopted.cpp",
    "pool_large.cpp",
    "pool_registry.cpp",
    "pool_small.cpp",
    "arena.cpp",
    "host_memory.cpp",
    "statistics.cpp",
    "allocator.cpp",
    "cpu_allocator.cpp",
    "pinned.cpp",
)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the checks against torch's libraries, each side as one unit to save time."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on PATH")
    folder = tmp_path_factory.mktemp("memory_core")
    core = [ROOT / "csrc" / "core" / name for name in SOURCES]
    checks = [Path(__file__).with_name(name) for name in CHECKS]
    include = Path(torch.__file__).parent / "include"
    library = include.with_name("lib")
    compilers = []
    for name, paths in (("core", core), ("checks", checks)):
        unit = folder / f"{name}.cpp"
        unit.write_text("".join(f'#include "{path}"\n' for path in paths))
        command = [
            *("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"),
            *("-I", str(ROOT / "csrc"), "-isystem", str(include)),
            *("-isystem", str(include / "torch" / "csrc" / "api" / "include")),
            *("-c", str(unit), "-o", str(unit.with_suffix(".o"))),
        ]
        compilers.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for compiler in compilers:
        _, errors = compiler.communicate()
        assert compiler.returncode == 0, errors
    binary = folder / "memory_core_test"
    objects = [str(folder / "core.o"), str(folder / "checks.o")]
    libraries = [f"-L{library}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{library}"]
    command = ["g++", "-pthread", *objects, "-o", str(binary), *libraries]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return binary


@pytest.mark.parametrize(
    "check",
    [
        "blocks",
        "churn",
        "statistics",
        "limit",
        "host_limit",
        "host_files",
        "adopt",
        "charge",
        "twin",
        "cpu_allocator",
        "pinned",
        "threads",
        "fork",
        "address_space",
        "profiler",
        "exit",
    ],
)
def test_memory_core(program: Path, check: str) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(program), check], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
