"""Part 3: the character GPT again, its training step compiled with `torch.compile`."""

import time

import torch

from demo_parts import chargpt, pace
from demo_parts.outcome import Outcome, Setting
from demo_parts.progress import Progress

NUM_STEPS, NUM_STEPS_QUICK = 40, 4
TOLERANCE = 0.02


def run(setting: Setting) -> Outcome:
    """Train the same steps eagerly and compiled, and compare every loss."""
    num_steps = NUM_STEPS_QUICK if setting.quick else NUM_STEPS
    text, _ = chargpt.split(chargpt.encode(chargpt.read_sources()))

    def build(device: torch.device, compiled: bool) -> chargpt.Trainer:
        return chargpt.Trainer(text, device, setting.seed, num_steps, compiled=compiled)

    pace.reset_peak(setting.device)
    start = time.monotonic()
    trainers = [build(setting.device, compiled) for compiled in (False, True)]
    losses = []
    first_s = 0.0
    with Progress("compiled", num_steps) as progress:
        for done in range(1, num_steps + 1):
            begin = time.monotonic()
            losses.append([trainer.step().item() for trainer in trainers])
            first_s = first_s or time.monotonic() - begin
            if progress.is_due(done):
                progress.update(done, f"loss {losses[-1][1]:.3f}")
    seconds = time.monotonic() - start
    speed = pace.compare(
        lambda device: build(device, device == setting.device).step,
        setting.device,
        rounds=1 if setting.quick else 2,
    )
    apart = max(abs(eager - compiled) for eager, compiled in losses)
    stopped = f"compiled losses are up to {apart:.3f} from eager's, more than {TOLERANCE}"
    return Outcome(
        title="compiled: the same GPT under torch.compile",
        steps=num_steps,
        seconds=seconds,
        pace=speed,
        peak_bytes=pace.peak_bytes(setting.device),
        result=f"losses {losses[0][1]:.2f} -> {losses[-1][1]:.2f}, at most {apart:.4f} from "
        f"eager's; first step with its compilation {first_s:.1f} s",
        goal=f"within {TOLERANCE} of eager",
        shortfall="" if apart < TOLERANCE else stopped,
    )
