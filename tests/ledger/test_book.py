import threading
from collections.abc import Iterator
from typing import Any

import pytest

from torchneuron import ledger
from torchneuron.ledger import book
from torchneuron.ledger.source import NoDevice


def executed(op: str, line: int = 1, count: int = 1) -> dict[str, Any]:
    return {
        "kind": "executed",
        "op": op,
        "dtype": "torch.float32",
        "count": count,
        "bytes": 0,
        "direction": "",
        "file": "train.py",
        "line": line,
    }


class FakeDevice:
    """Record like the extension does: one trace for the process, cleared when it starts."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.trace: list[dict[str, Any]] | None = None

    def run(self, record: dict[str, Any]) -> None:
        self.counts[record["op"]] = self.counts.get(record["op"], 0) + record["count"]
        if self.trace is not None:
            self.trace.append(record)

    def executed_ops(self) -> dict[str, int]:
        return dict(self.counts)

    def clear_op_counts(self) -> None:
        self.counts.clear()

    def counters(self) -> dict[str, int]:
        return {"host_sync.count": 3}

    def trace_start(self) -> None:
        assert self.trace is None
        self.trace = []

    def trace_stop(self) -> list[dict[str, Any]]:
        records, self.trace = self.trace or [], None
        return records


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    before, fake = book._source, FakeDevice()
    ledger.attach(fake)
    yield fake
    ledger.attach(before)


def ops(report: ledger.Explanation) -> dict[str, int]:
    return {record["op"]: record["count"] for record in report.to_dict()["executed"]}


def test_block_sees_what_runs_inside_it_only(device: FakeDevice) -> None:
    device.run(executed("aten::before"))
    with ledger.explain() as report:
        device.run(executed("aten::add.Tensor"))
        device.run(executed("aten::add.Tensor", count=2))
    device.run(executed("aten::after"))
    assert report.to_dict()["executed"] == [
        {"op": "aten::add.Tensor", "dtype": "float32", "count": 3, "file": "train.py", "line": 1}
    ]
    assert device.trace is None


def test_block_can_be_read_while_it_is_open(device: FakeDevice) -> None:
    with ledger.explain() as report:
        device.run(executed("aten::add"))
        assert ops(report) == {"aten::add": 1}
        device.run(executed("aten::add"))
    assert ops(report) == {"aten::add": 2}


def test_nested_blocks_each_see_their_part(device: FakeDevice) -> None:
    with ledger.explain() as outer:
        device.run(executed("aten::a"))
        with ledger.explain() as inner:
            device.run(executed("aten::b"))
        device.run(executed("aten::c"))
    assert ops(inner) == {"aten::b": 1}
    assert ops(outer) == {"aten::a": 1, "aten::b": 1, "aten::c": 1}


def test_blocks_of_two_threads_may_end_in_any_order(device: FakeDevice) -> None:
    opened, finish = threading.Event(), threading.Event()
    reports = []

    def other() -> None:
        with ledger.explain() as report:
            reports.append(report)
            opened.set()
            finish.wait(10)

    thread = threading.Thread(target=other)
    with ledger.explain() as mine:
        thread.start()
        assert opened.wait(10)
        device.run(executed("aten::a"))
    device.run(executed("aten::b"))
    finish.set()
    thread.join(10)
    assert ops(mine) == {"aten::a": 1}
    assert ops(reports[0]) == {"aten::a": 1, "aten::b": 1}
    assert device.trace is None


def test_block_ends_when_its_code_raises(device: FakeDevice) -> None:
    with pytest.raises(ZeroDivisionError), ledger.explain() as report:
        device.run(executed("aten::a"))
        raise ZeroDivisionError
    assert ops(report) == {"aten::a": 1}
    assert device.trace is None


def test_device_that_comes_inside_a_block_is_traced_from_then_on(device: FakeDevice) -> None:
    ledger.attach(NoDevice())
    with ledger.explain() as report:
        ledger.attach(device)
        device.run(executed("aten::a"))
    assert ops(report) == {"aten::a": 1}


def test_transfers_and_syncs_keep_their_fields(device: FakeDevice) -> None:
    moved = executed("aten::copy_") | {
        "kind": "transfer",
        "bytes": 64,
        "direction": "host_to_device",
    }
    with ledger.explain() as report:
        device.run(moved)
        device.run(moved)
        device.run(executed("aten::item") | {"kind": "host_sync"})
    found = report.to_dict()
    assert found["transfers"] == [
        {
            "direction": "host_to_device",
            "dtype": "float32",
            "count": 2,
            "bytes": 128,
            "file": "train.py",
            "line": 1,
        }
    ]
    assert [record["op"] for record in found["host_syncs"]] == ["aten::item"]
    assert found["executed"] == []


def test_executed_ops_are_listed_by_frequency_and_cleared(device: FakeDevice) -> None:
    device.run(executed("aten::a"))
    device.run(executed("aten::b", count=5))
    assert ledger.get_executed_ops() == ["aten::b", "aten::a"]
    assert ledger.counters() == {"host_sync.count": 3}
    ledger.clear_op_tracking()
    assert ledger.get_executed_ops() == []


def test_without_a_device_everything_is_empty() -> None:
    before = book._source
    ledger.attach(NoDevice())
    try:
        with ledger.explain() as report:
            pass
        assert set(map(len, report.to_dict().values())) == {0}
        assert ledger.get_executed_ops() == []
        assert ledger.counters() == {}
        ledger.clear_op_tracking()
    finally:
        ledger.attach(before)


def test_fallback_event_is_counted_and_is_a_record(device: FakeDevice) -> None:
    ledger.clear_op_tracking()
    with ledger.explain() as report:
        ledger.emit(ledger.HostFallback("aten::foo", "no lowering", "train.py", 7))
        ledger.emit(ledger.HostFallback("aten::foo", "no lowering", "train.py", 7))
    assert ledger.get_fallback_ops() == ["aten::foo"]
    assert report.to_dict()["host_fallbacks"] == [
        {
            "op": "aten::foo",
            "reason": "no lowering",
            "file": "train.py",
            "line": 7,
            "count": 2,
        }
    ]
    ledger.clear_op_tracking()
    assert ledger.get_fallback_ops() == []


def test_sinks_get_events_until_they_are_removed() -> None:
    seen: list[ledger.Event] = []
    remove = ledger.add_sink(seen.append)
    notice = ledger.Notice("arena", "smaller than asked")
    ledger.emit(notice)
    remove()
    remove()
    ledger.emit(notice)
    assert seen == [notice]


def test_what_a_sink_raises_reaches_the_caller() -> None:
    def sink(event: ledger.Event) -> None:
        raise RuntimeWarning(str(event))

    remove = ledger.add_sink(sink)
    try:
        with pytest.raises(RuntimeWarning):
            ledger.emit(ledger.Notice("a", "b"))
    finally:
        remove()
