"""What a part of the demo is told and what it answers."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Setting:
    """What the user asked for."""

    device: torch.device
    quick: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Training steps per second on the device and, interleaved with it, on the CPU."""

    device_per_s: float
    cpu_per_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one part reached.

    `peak_bytes` is None where the device keeps no memory statistics. `shortfall` is
    empty when the goal was reached, else a sentence without its full stop.
    """

    title: str
    steps: int
    seconds: float
    pace: Pace
    peak_bytes: int | None
    result: str
    goal: str
    shortfall: str = ""
    sample: str = ""
