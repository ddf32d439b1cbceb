"""Training speed beside the CPU, and peak device memory."""

import statistics
import time
from collections.abc import Callable

import torch

from demo_parts.outcome import Pace

SEGMENT_S = 0.3
Step = Callable[[], object]


def compare(build: Callable[[torch.device], Step], device: torch.device, *, rounds: int) -> Pace:
    """Time the same training step on `device` and on the CPU, in short segments in turn.

    The order within a round is device, CPU, CPU, device, so that a machine which slows
    down or speeds up meanwhile does so for both.
    """
    on_device, on_cpu = build(device), build(torch.device("cpu"))
    warm_up_s = _seconds(on_device, 2) + _seconds(on_cpu, 2)
    count = max(1, min(50, round(SEGMENT_S / (warm_up_s / 4))))
    device_s, cpu_s = [], []
    for _ in range(rounds):
        device_s.append(_seconds(on_device, count))
        cpu_s.append(_seconds(on_cpu, count))
        cpu_s.append(_seconds(on_cpu, count))
        device_s.append(_seconds(on_device, count))
    return Pace(count / statistics.median(device_s), count / statistics.median(cpu_s))


def _seconds(step: Step, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - start


def reset_peak(device: torch.device) -> None:
    """Begin a new measurement of peak memory, where the device has one."""
    if device.type != "cpu":
        torch.get_device_module(device).reset_peak_memory_stats()


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak of allocated device memory since `reset_peak`, None on the CPU."""
    if device.type == "cpu":
        return None
    return int(torch.get_device_module(device).max_memory_allocated())
