"""PyTorch's profiler sees the device's operators through its CPU activity."""

import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from behaviour.subject import DEVICE
from behaviour.training import make_net, train


def test_operators_shapes_and_user_ranges_are_recorded() -> None:
    x = torch.randn(6, 5, device=DEVICE, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        with record_function("my range"):
            (x @ x.t()).relu().sum().backward()
    counts = {event.key: event.count for event in profiler.key_averages()}
    assert counts["my range"] == 1
    assert counts["aten::mm"] == 3
    assert counts["aten::relu"] == counts["aten::sum"] == 1
    assert "autograd::engine::evaluate_function: SumBackward0" in counts
    by_shape = profiler.key_averages(group_by_input_shape=True)
    assert any(e.key == "aten::mm" and e.input_shapes[:1] == [[6, 5]] for e in by_shape)
    assert "aten::mm" in profiler.key_averages().table(sort_by="self_cpu_time_total")
    assert all(event.cpu_time_total >= 0 for event in profiler.key_averages())


def test_memory_profiling_with_stacks_ends_in_a_readable_trace(tmp_path: Path) -> None:
    net = make_net(0, DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    path = tmp_path / "trace.json"
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True
    ) as profiler:
        train(net, optimizer, range(2))
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert any(event.get("name") == "aten::convolution" for event in events)
    assert all(event.get("dur", 0) >= 0 for event in events)
    assert profiler.key_averages().table(sort_by="self_cpu_memory_usage", row_limit=5)


def test_a_schedule_profiles_the_chosen_steps() -> None:
    ready = []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda p: ready.append({e.key: e.count for e in p.key_averages()}),
    ) as profiler:
        for _ in range(4):
            torch.ones(3, device=DEVICE).cos_()
            profiler.step()
    assert len(ready) == 1
    assert ready[0]["aten::cos_"] == 2


def test_the_older_profiler_and_results_are_unchanged_by_it() -> None:
    x = torch.randn(20, device=DEVICE)
    expected = x.softmax(0)
    with torch.autograd.profiler.profile() as profiler:
        result = x.softmax(0)
    assert torch.equal(result, expected)
    assert any(event.name == "aten::softmax" for event in profiler.function_events)
