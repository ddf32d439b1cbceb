"""Section C, what compiling costs: recompiles, the cache on disk, sizes, and failures."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters

import torchneuron
from behaviour.compiling import assert_close, assert_compiles_the_same, num_programs
from behaviour.script import environment
from behaviour.subject import DEVICE, moved
from torchneuron.errors import CompileError
from torchneuron.runtime import xla
from torchneuron.runtime.cache import user_cache

pytestmark = pytest.mark.usefixtures("own_cache")


class Tagger(nn.Module):
    """Score each token of sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        return self.head(hidden + hidden.mean(1, keepdim=True))


@pytest.mark.parametrize(
    ("dynamic", "most_graphs"),
    [(False, 3), (None, 2), (True, 1)],
    ids=["static", "auto", "dynamic"],
)
def test_c01_the_second_epoch_compiles_nothing(dynamic: bool | None, most_graphs: int) -> None:
    """philschmid/aws-neuron-samples #4: every step with another length compiled again."""
    net = Tagger()
    call = torch.compile(moved(net), backend="neuron", dynamic=dynamic)
    batches = [torch.randint(20, (2, length)) for length in (5, 9, 5, 13, 9)]

    def epoch() -> int:
        with torchneuron.explain() as report, torch.no_grad():
            for ids in batches:
                assert_close(call(ids.to(DEVICE)), net(ids))
        return num_programs(report)

    before = counters["stats"]["unique_graphs"]
    assert epoch() <= 4  # three lengths; a static graph may come before the dynamic one
    assert counters["stats"]["unique_graphs"] - before <= most_graphs
    assert epoch() == 0


def test_c01_each_recompile_names_the_input_and_its_sizes() -> None:
    """philschmid/aws-neuron-samples #4: the user could not see what caused it."""
    call = torch.compile(lambda ids: ids * 2, backend="neuron", dynamic=False)
    with torchneuron.explain() as report:
        for length in (5, 9):
            call(torch.ones(2, length, device=DEVICE))
    (record,) = report.to_dict()["recompiles"]
    assert "ids" in record["input"] and (record["old"], record["new"]) == ("5", "9")


def test_c02_the_report_tells_count_and_seconds() -> None:
    """aws-neuron/aws-neuron-sdk #646: compiling took longer than training, without a word."""
    before = torchneuron.compile_stats()
    with torchneuron.explain() as report:
        torch.compile(lambda x: x.sin() * 2.625, backend="neuron")(torch.ones(3, device=DEVICE))
    after = torchneuron.compile_stats()
    assert after["programs"] - before["programs"] == 1
    assert after["lowering_s"] > before["lowering_s"] and after["compile_s"] > before["compile_s"]
    (record,) = report.to_dict()["compiles"] + report.to_dict()["cache_hits"]
    assert record["seconds"] > 0
    assert re.search(r"(compiles|cache_hits): 1\n.*seconds", report.summary())


def test_c02_threads_compile_graphs_of_their_own() -> None:
    """aws-neuron/aws-neuron-sdk #646: only one thread could compile."""
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        call = torch.compile(lambda x: (x * number).cumsum(0), backend="neuron")
        results[number] = call(torch.ones(4, device=DEVICE)).tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in (2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == {n: [n, 2 * n, 3 * n, 4 * n] for n in (2, 3, 5)}


PROGRAM = """
    import json
    import torch
    import torchneuron

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    net.to("neuron")
    x = torch.randn(3, 6, device="neuron")
    loss = torch.compile(net)(x).square().sum()
    loss.backward()
    print(json.dumps({"loss": loss.item(), **torchneuron.compile_stats()}))
    """


def start(folder: Path, name: str, source: str, cache: Path) -> subprocess.Popen[str]:
    """Begin a program in a fresh process; `folder` becomes its working directory."""
    folder.mkdir()
    (folder / name).write_text(dedent(source), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, name],
        cwd=folder,
        env=environment({"TORCHNEURON_CACHE_DIR": str(cache)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stats(process: subprocess.Popen[str]) -> dict[str, float]:
    """Wait for a program and return what it printed."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert not err, "nothing about the cache deserved a word"
    found: dict[str, float] = json.loads(out)
    return found


@pytest.mark.slow
def test_c04_c05_processes_share_the_cache(tmp_path: Path) -> None:
    """optimum-neuron #115, #157, #345, #407, aws-neuron-sdk #537: each process compiled again."""
    cache = tmp_path / "cache"
    ranks = [start(tmp_path / name, "train.py", PROGRAM, cache) for name in ("rank0", "rank1")]
    first, second = (stats(process) for process in ranks)
    assert first["loss"] == second["loss"] and first["programs"] == second["programs"] == 2
    assert first["compiled"] + second["compiled"] == 2, "the ranks compiled the same program twice"

    moved_down = "\n# a comment\n\n" + dedent(PROGRAM)
    third = stats(start(tmp_path / "elsewhere", "renamed.py", moved_down, cache))
    assert third["compiled"] == 0 and third["from_cache"] == 2
    assert third["loss"] == first["loss"]


def test_c05_a_damaged_entry_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    """aws-neuron/aws-neuron-sdk #537: a file that another process left half-written."""
    monkeypatch.setenv("TORCHNEURON_CACHE_DIR", str(tmp_path))
    user_cache.cache_clear()
    x = torch.randn(5)

    def run() -> None:
        torch._dynamo.reset()
        call = torch.compile(lambda x: x.exp() - 0.375, backend="neuron")
        assert_close(call(x.to(DEVICE)), x.exp() - 0.375)

    run()
    (path,) = tmp_path.rglob("*.program")
    path.write_bytes(path.read_bytes()[:-100])
    run()
    assert len(notices) == 1 and "damaged" in notices[0]
    with torchneuron.explain() as report:
        run()
    assert report.to_dict()["cache_hits"] and not report.to_dict()["compiles"]


def test_c05_a_cache_that_takes_nothing_costs_one_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    """aws-neuron/aws-neuron-sdk #537: a directory that cannot be written."""
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("TORCHNEURON_CACHE_DIR", str(tmp_path / "file"))
    user_cache.cache_clear()
    for scale in (2.25, 3.25):
        torch._dynamo.reset()
        call = torch.compile(lambda x, scale=scale: x * scale, backend="neuron")
        assert call(torch.ones(2, device=DEVICE)).tolist() == [scale] * 2
    assert len(notices) == 1 and "cannot be kept" in notices[0]


@pytest.mark.parametrize("batch", [3, 1, 0])
def test_c07_small_and_odd_sizes_compile(batch: int) -> None:
    """aws-neuron/aws-neuron-sdk #1011, #768: a tiny linear model failed, and one hidden size."""
    sizes = (1, 2, 3, 31, 127, 128, 257)
    nets = nn.ModuleList(nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 2)) for n in sizes)

    def forward(nets: Any, x: torch.Tensor) -> list[torch.Tensor]:
        return [net(x[:, :n]) for n, net in zip(sizes, nets, strict=True)]

    x = torch.randn(batch, 257, requires_grad=True)
    assert_compiles_the_same(forward, nets, x, gradients=True, fullgraph=True)


def broken(error: Exception) -> Callable[..., None]:
    """Return a lowering rule, or a compiler, that raises an error."""

    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("culprit", ["rule", "compiler"])
def test_c08_a_failure_shows_the_line_and_the_call(
    culprit: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aws-neuron-sdk #664, #708, #803, #806, #1118, #1122, #1326: a long trace, no model line."""
    break_it(culprit, monkeypatch)
    call = torch.compile(lambda x: x.sin() * 5.125, backend="neuron", dynamic=dynamic)
    with pytest.raises(BackendCompilerFailed) as caught:
        call(torch.ones(3, device=DEVICE))
    error = caught.value.inner_exception
    assert isinstance(error, CompileError)
    first_line = str(error).partition("\n")[0]
    assert re.search(rf"{Path(__file__).name}:\d+.*aten\.sin\.default", first_line)
    assert "no luck" in first_line and error.hint


def break_it(culprit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the rule of `sin`, or XLA, fail from now on."""
    from torchneuron.lowering import decompose
    from torchneuron.lowering.registry import TABLE

    decompose.decompositions()
    if culprit == "rule":
        rule = broken(ZeroDivisionError("no luck"))
        monkeypatch.setitem(TABLE._rules, torch.ops.aten.sin.default, rule)
    else:
        monkeypatch.setattr(xla, "compile_module", broken(xla.CompilerError("INTERNAL: no luck")))


@pytest.mark.parametrize("culprit", ["rule", "compiler"])
def test_c08_a_failure_for_later_sizes_is_treated_alike(
    culprit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aws-neuron-sdk #1326: the first sizes compiled, others ended in the compiler's own words."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 6.125

    allowing = torch.compile(
        fn, backend="neuron", dynamic=True, options={"fallback_execution": True}
    )
    refusing = torch.compile(lambda x: fn(x), backend="neuron", dynamic=True)
    x = torch.randn(7)
    for call in (allowing, refusing):
        assert_close(call(x[:3].to(DEVICE)), fn(x[:3]))
    break_it(culprit, monkeypatch)
    for call in (allowing, refusing):
        assert_close(call(x[:3].to(DEVICE)), fn(x[:3]))  # made before
    with pytest.raises(CompileError, match=rf"{Path(__file__).name}:\d+.*aten\.sin\.default"):
        refusing(x.to(DEVICE))
    with torchneuron.explain() as report:
        for _ in range(2):
            assert_close(allowing(x.to(DEVICE)), fn(x))
    (record,) = report.to_dict()["host_fallbacks"]
    assert record["op"] == "the whole graph" and record["count"] == 1


def test_c08_a_rule_that_refuses_later_sizes_leaves_them_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aws-neuron-sdk #1326: the same where a rule says that it does not cover these sizes."""
    from torchneuron.lowering import decompose
    from torchneuron.lowering.registry import TABLE

    call = torch.compile(lambda x: (x * 2).cos() + 1, backend="neuron", dynamic=True)
    x = torch.randn(6)
    assert_close(call(x[:4].to(DEVICE)), (x[:4] * 2).cos() + 1)
    decompose.decompositions()
    rule = broken(NotImplementedError("cosines of six"))
    monkeypatch.setitem(TABLE._rules, torch.ops.aten.cos.default, rule)
    with torchneuron.explain() as report:
        assert_close(call(x.to(DEVICE)), (x * 2).cos() + 1)
    (record,) = report.to_dict()["host_fallbacks"]
    assert record["op"] == "aten.cos.default" and record["file"] == __file__
