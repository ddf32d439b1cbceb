"""Run every example, the demo and every benchmark as a user does: a command in a process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BENCHMARKS = ROOT / "benchmarks"
CAP_S = 500
MAX_LINES = 120

LAST_LINES = {
    "first_model.py": (
        [],
        r"first_model: the model ran on neuron; largest difference from the CPU 0",
    ),
    "train_gpt2.py": (
        ["--context", "64", "--width", "64", "--checkpoint-every", "10"],
        r"train_gpt2: loss fell from 6\.\d+ to [0-5]\.\d+ on neuron",
    ),
    "memory.py": ([], r"memory: batch \d+ fits in 64 MiB with a peak of \d+\.\d MiB"),
    "mixed_precision.py": (
        [],
        r"mixed_precision: bfloat16 loss fell from 0\.\d+ to 0\.0\d+ on neuron",
    ),
    "save_resume.py": (
        [],
        r"save_resume: resumed in a new process on neuron, every weight is bitwise the same",
    ),
    "recommender.py": ([], r"recommender: loss fell from 2\.\d+ to 0\.\d+ on neuron, held out"),
    "graph_network.py": (
        [],
        r"graph_network: 3[34] of 34 members on the right side, on neuron",
    ),
    "accelerator.py": ([], r"accelerator: loss fell from 1\.\d+ to 0\.\d+ on neuron"),
    "demo.py": (
        ["--quick"],
        r"demo passed on neuron in \d+ s: .* right .*; held-out loss .* right on 1747 scans .*\.",
    ),
}


def run(
    file: Path, *arguments: str, folder: Path, autoload: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a Python file in an empty folder with one thread."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0",
    }
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=CAP_S,
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()[-1]


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LAST_LINES)


@pytest.mark.parametrize("name", LAST_LINES)
def test_example_ends_with_its_line(name: str, tmp_path: Path) -> None:
    arguments, pattern = LAST_LINES[name]
    assert re.fullmatch(pattern, last_line(run(EXAMPLES / name, *arguments, folder=tmp_path)))


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_example_names_nothing_of_ours(path: Path) -> None:
    assert not re.search(r"torch_?neuronx?\b", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LAST_LINES)
def test_example_is_short_and_says_what_it_shows(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert text.startswith('"""')
    assert "\nWhat it shows: " in text.split('"""')[1]


def test_accelerator_example_runs_on_the_cpu_without_the_device(tmp_path: Path) -> None:
    line = last_line(run(EXAMPLES / "accelerator.py", folder=tmp_path, autoload=False))
    assert re.fullmatch(r"accelerator: loss fell from 1\.\d+ to 0\.\d+ on cpu", line)


@pytest.mark.parametrize("name", ["recommender", "graph_network"])
def test_sparse_example_learns_the_same_on_the_cpu(name: str, tmp_path: Path) -> None:
    script = tmp_path / "both.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import torch
import {name} as example

here, there = (example.train(torch.device(name)) for name in ("cpu", "neuron"))
print(len(here[0]), "losses, the same bits" if here == there else f"{{here}} is not {{there}}")
""",
        encoding="utf-8",
    )
    assert re.fullmatch(r"[14]00 losses, the same bits", last_line(run(script, folder=tmp_path)))


def test_demo_names_the_remedy_without_the_device(tmp_path: Path) -> None:
    done = run(EXAMPLES / "demo.py", folder=tmp_path, autoload=False)
    assert done.returncode == 1
    assert done.stderr.startswith("demo: this Python has no usable device 'neuron': ")
    assert done.stderr.endswith("hint: `make demo` installs it, or pass --device cpu\n")


def test_demo_fails_with_a_sentence_when_a_goal_is_missed(tmp_path: Path) -> None:
    script = tmp_path / "missed.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import demo
from demo_parts.outcome import Outcome, Pace

missed = Outcome(
    title="digits", steps=1, seconds=1.0, pace=Pace(1.0, 1.0), peak_bytes=None, result="50 %",
    goal="97 %", shortfall="digits stopped at 50 % held-out accuracy, below its goal of 97 %",
)
demo.PARTS["digits"] = lambda setting: missed
sys.exit(demo.main())
""",
        encoding="utf-8",
    )
    done = run(script, "--device", "cpu", "--parts", "digits", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith(
        "demo failed on cpu: digits stopped at 50 % held-out accuracy, below its goal of 97 %.\n"
    )


def test_progress_prints_few_plain_lines_without_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "progress.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
from demo_parts.progress import Progress

with Progress("part", total=100) as progress:
    for done in range(1, 101):
        progress.update(done, "loss 1.0")
""",
        encoding="utf-8",
    )
    lines = run(script, folder=tmp_path).stderr.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("part ") and "\r" not in line for line in lines)
    assert re.fullmatch(r"part  100/100  loss 1\.0  [\d.]+ steps/s  0 s left", lines[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("bench_*.py")))
def test_benchmark_runs_a_smoke_round(name: str, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    done = run(BENCHMARKS / f"{name}.py", "--smoke", "--out", str(reports), folder=tmp_path)
    line = last_line(done)
    assert re.fullmatch(rf"{name}: smoke run passed, \d+ cases ran, nothing judged", line)
    assert not reports.exists()


def test_benchmark_runner_refuses_an_unknown_name(tmp_path: Path) -> None:
    done = run(BENCHMARKS / "run.py", "--only", "nothing", folder=tmp_path)
    assert done.returncode == 2
    assert "no benchmark nothing; there are autoload, build, compile, " in done.stderr
