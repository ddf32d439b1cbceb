"""TORCHNEURON_EAGER=lowered: operators run as programs and give the CPU's results."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from behaviour.script import environment
from device.forking import ForkServer

TESTS = Path(__file__).resolve().parent.parent
DECLARED = yaml.safe_load(Path(__file__).with_name("lowered.yaml").read_text())
NOT_COUNTED = ("linalg.", "fft.")


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What a process needs to run operators as programs, kept out of the user's cache."""
    programs = tmp_path_factory.mktemp("programs")
    return {"TORCHNEURON_EAGER": "lowered", "TORCHNEURON_CACHE_DIR": str(programs)}


@pytest.fixture(scope="module")
def server(lowered: dict[str, str | None]) -> Iterator[ForkServer]:
    """One process for all scripts, which has imported what the first operator would."""
    made = ForkServer(loaded=True, env=lowered, modules=["torchneuron.eager.lowered"])
    yield made
    made.close()


@pytest.fixture
def script(server: ForkServer, tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run a script in a process that has not used the device."""
    return functools.partial(server.run, folder=tmp_path)


@pytest.fixture(scope="module")
def outcomes(lowered: dict[str, str | None]) -> dict[str, tuple[str, list[str]]]:
    """Sweep PyTorch's database, forward and backward, in processes of its own."""
    command = [sys.executable, "-m", "compile.operators", "--eager", "--json", "--jobs=2"]
    done = subprocess.run(
        command, cwd=TESTS, env=environment(lowered), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    return {name: (outcome, details) for name, outcome, details in rows}


@pytest.mark.slow
def test_every_operator_runs_as_programs_or_is_declared(outcomes: dict[str, Any]) -> None:
    host = {
        name: [each.removeprefix("aten::") for each in calls]
        for name, (outcome, calls) in outcomes.items()
        if outcome == "eager in part"
    }
    refused = {
        name: outcome
        for name, (outcome, _) in outcomes.items()
        if outcome not in {"lowered", "eager in part"}
    }
    assert host == DECLARED["host"]
    assert refused == DECLARED["refused"]


@pytest.mark.slow
def test_most_of_the_database_runs_as_programs(outcomes: dict[str, Any]) -> None:
    counted = [
        outcome
        for name, (outcome, _) in outcomes.items()
        if not name.startswith(NOT_COUNTED) and name not in DECLARED["refused"]
    ]
    assert counted.count("lowered") / len(counted) >= 0.85


SCRIPT = """
import torch, torchneuron
torch.manual_seed(0)
x = torch.randn(3, 4).to("neuron")
host = x.cpu()
def same(ours, theirs):
    torch.testing.assert_close(ours.cpu(), theirs)
with torchneuron.explain() as report:
{body}
found = report.to_dict()
print(sorted(each["graph"] for each in found["compiles"] + found["cache_hits"]))
print(sorted(each["op"] for each in report.to_dict()["host_fallbacks"]))
"""

CASES = {
    "in place": """
    y = x.clone()
    alias = y[1]
    y.add_(1).mul_(y)
    same(y, (host + 1) ** 2)
    same(alias, (host[1] + 1) ** 2)
""",
    "out of another size": """
    out = torch.empty(0, device="neuron")
    assert torch.add(x, x, out=out) is out
    same(out, host * 2)
""",
    "one tensor twice, then two": """
    same(x * x, host * host)
    same(x * (x + 1), host * (host + 1))
""",
    "strided": """
    same(x.t() + 1, host.t() + 1)
    same(x[:, ::2] * 2, host[:, ::2] * 2)
""",
    "conjugated": """
    z = torch.complex(x, x).conj()
    same(z * 2, torch.complex(host, host).conj() * 2)
""",
    "training with batch norm": """
    import copy
    layer = torch.nn.Linear(4, 6, bias=False)  # its gradient would be rounding alone
    model = torch.nn.Sequential(layer, torch.nn.BatchNorm1d(6), torch.nn.Tanh())
    ours = copy.deepcopy(model).to("neuron")
    for each, data in ((model, host), (ours, x)):
        optimizer = torch.optim.AdamW(each.parameters(), foreach=False)
        for _ in range(3):
            optimizer.zero_grad()
            each(data).square().sum().backward()
            optimizer.step()
    for one, two in zip(ours.state_dict().values(), model.state_dict().values()):
        torch.testing.assert_close(one.cpu(), two, atol=1e-4, rtol=1e-3)
""",
    "a list": """
    same(torch.cat([x, x]), torch.cat([host, host]))
    same(torch.stack([x, x + 1], -1), torch.stack([host, host + 1], -1))
""",
}


@pytest.mark.parametrize("case", CASES)
def test_operators(case: str, script: Callable[..., CompletedProcess[str]]) -> None:
    done = script(SCRIPT.replace("{body}", CASES[case]))
    compiled, fallbacks = done.stdout.splitlines()[-2:]
    assert "eager.aten::" in compiled
    assert fallbacks == "[]"


def test_what_has_no_program_is_counted_with_its_line(
    script: Callable[..., CompletedProcess[str]],
) -> None:
    body = """
    print(x.nonzero().shape, torch.rand(2, device="neuron").shape)
    assert {each["line"] for each in report.to_dict()["host_fallbacks"]} == {10}
"""
    done = script(SCRIPT.replace("{body}", body))
    assert done.stdout.splitlines()[-1] == "['aten::nonzero', 'aten::uniform_']"


def test_bad_arguments_get_the_cpus_error(script: Callable[..., CompletedProcess[str]]) -> None:
    body = """
    try:
        x + torch.ones(5, device="neuron")
    except RuntimeError as error:
        assert "must match the size" in str(error), error
    else:
        raise AssertionError("no error")
    same(x + 1, host + 1)
"""
    script(SCRIPT.replace("{body}", body))


def test_strict_refuses_before_anything_is_written(
    script: Callable[..., CompletedProcess[str]],
) -> None:
    body = """
    double = torch.ones(2, device="neuron", dtype=torch.float64)
    with torchneuron.strict("dtype"):
        try:
            double.add_(1)
        except torchneuron.NeuronError as error:
            assert "float64" in str(error)
        else:
            raise AssertionError("no error")
    same(double, torch.ones(2, dtype=torch.float64))
    same(x + 1, host + 1)
"""
    script(SCRIPT.replace("{body}", body))
