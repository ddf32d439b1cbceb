"""`explain()` tells what was compiled again, why, and where graphs break."""

from __future__ import annotations

import logging

import pytest
import torch

import torchneuron
from torchneuron.device import announce, progress
from torchneuron.ledger import Compiling


def scaled(x: torch.Tensor, factor: int = 2) -> torch.Tensor:
    """Multiply; what the compiled functions of these tests do."""
    return x * factor


def ones(*sizes: int) -> torch.Tensor:
    """Make an input."""
    return torch.ones(*sizes, device="neuron")


def test_a_new_static_size_names_the_input_the_guard_and_both_sizes() -> None:
    compiled = torch.compile(scaled, backend="neuron", dynamic=False)
    compiled(ones(4, 3))
    with torchneuron.explain() as report:
        compiled(ones(5, 3))
    [record] = report.to_dict()["recompiles"]
    assert (record["input"], record["guard"]) == ("x", "size mismatch at index 0")
    assert (record["old"], record["new"]) == ("4", "5")
    assert record["seconds"] > 0
    assert record["file"] == __file__
    with pytest.raises(torchneuron.NeuronError, match="expected no recompile, found 1"):
        report.assert_no("recompile")


def test_another_dtype_is_named() -> None:
    compiled = torch.compile(scaled, backend="neuron")
    compiled(ones(4))
    with torchneuron.explain() as report:
        compiled(ones(4).bfloat16())
    [record] = report.to_dict()["recompiles"]
    assert (record["old"], record["new"]) == ("Float", "BFloat16")


def test_another_constant_is_named() -> None:
    compiled = torch.compile(scaled, backend="neuron", dynamic=False)
    compiled(ones(4), 2)
    with torchneuron.explain() as report:
        compiled(ones(4), 3)
    [record] = report.to_dict()["recompiles"]
    assert (record["input"], record["old"]) == ("factor", "2")


def test_a_new_size_of_a_dynamic_graph_is_one_recompile_and_an_old_one_none() -> None:
    compiled = torch.compile(scaled, backend="neuron", dynamic=True)
    with torchneuron.explain() as first:
        compiled(ones(4, 3))
    first.assert_no("recompile")
    with torchneuron.explain() as second:
        compiled(ones(7, 3))
    [record] = second.to_dict()["recompiles"]
    assert (record["input"], record["old"], record["new"]) == ("L['x'].size()[0]", "4", "7")
    with torchneuron.explain() as third:
        compiled(ones(4, 3))
        compiled(ones(7, 3))
    third.assert_no("recompile")


@pytest.mark.parametrize("mark", [True, False])
def test_marked_and_second_sizes_are_dynamic(mark: bool) -> None:
    compiled = torch.compile(scaled, backend="neuron")
    x = ones(4, 3)
    if mark:
        torch._dynamo.mark_dynamic(x, 0)
    compiled(x)
    if not mark:
        compiled(ones(5, 3))
    with torchneuron.explain() as report:
        for size in (6, 7, 8):
            assert torch.equal(compiled(ones(size, 3)).cpu(), torch.full((size, 3), 2.0))
    assert {each["guard"] for each in report.to_dict()["recompiles"]} == {"size"}


def test_a_graph_break_names_reason_and_line() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        print("seen")  # noqa: T201 (what breaks the graph)
        return x + 1

    with torchneuron.explain() as report:
        torch.compile(broken, backend="neuron")(ones(3))
    [record] = report.to_dict()["graph_breaks"]
    assert "print" in record["reason"]
    assert record["file"] == __file__
    assert record["line"] == broken.__code__.co_firstlineno + 2


def test_debug_log_tells_recompiles(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(scaled, backend="neuron", dynamic=False)
    compiled(ones(4, 3))
    with caplog.at_level(logging.DEBUG, logger="torchneuron"):
        compiled(ones(9, 3))
    assert "compiled again for x (size mismatch at index 0), 4 to 9" in caplog.text


class Terminal:
    """A terminal that remembers what was written to it."""

    def __init__(self) -> None:
        self.written = ""

    def isatty(self) -> bool:
        """Be one."""
        return True

    def write(self, text: str) -> None:
        """Remember."""
        self.written += text

    def flush(self) -> None:
        """Have nothing to do."""


@pytest.mark.parametrize("is_slow", [True, False])
def test_only_a_slow_compile_shows_a_line_on_a_terminal(
    is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "_QUIET_S", 0.0 if is_slow else 60.0)
    announce.announce(Compiling("model.fused_0"))
    line = announce._lines.line
    while is_slow and not terminal.written:
        pass
    announce.announce(Compiling("model.fused_0", is_over=True))
    assert not line._thread.is_alive()
    if is_slow:
        assert "torchneuron: compiling model.fused_0, 0 s" in terminal.written
        assert terminal.written.endswith("\r"), "the line is cleared"
    else:
        assert terminal.written == ""
