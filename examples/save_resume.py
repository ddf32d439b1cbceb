"""Save a training run, resume it in a new process, and get the same bits.

What it shows: model, optimizer, schedule and the device's random state survive
`torch.save` and `torch.load`. Dropout is on, so the random state matters.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

DATA = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))


class Run:
    """A model with everything that its next steps depend on."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        layers = (nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 16))
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.7)

    def train(self, num_steps: int) -> None:
        """Learn to reproduce noisy inputs; the noise is drawn on the device."""
        inputs = DATA.to(self.device)
        for _ in range(num_steps):
            noisy = inputs + 0.1 * torch.randn(inputs.shape, device=self.device)
            loss = functional.mse_loss(self.model(noisy), inputs)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()

    def save(self, path: Path) -> None:
        """Write everything to one file."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        torch.save(state | {"random": self._random().get_rng_state()}, path)

    def load(self, path: Path) -> None:
        """Read everything back, tensors straight to the device."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self._random().set_rng_state(state["random"].cpu())

    def _parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def _random(self) -> Any:
        return torch.random if self.device.type == "cpu" else torch.get_device_module(self.device)


def num_differing(left: dict[str, Tensor], right: dict[str, Tensor]) -> int:
    """Return how many elements of two state dicts are not the same."""
    return sum(int((left[name] != right[name]).sum()) for name in left)


def main() -> None:
    """Train once straight through and once with a stop in the middle; compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--steps", type=int, default=10, help="before and after the stop")
    parser.add_argument("--resume", type=Path, help="a saved run to go on with, then save again")
    options = parser.parse_args()
    device = torch.device(options.device)

    run = Run(device)
    if options.resume:
        run.load(options.resume)
        run.train(options.steps)
        run.save(options.resume)
        return

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pt"
        run.train(options.steps)
        run.save(path)
        print(f"saved after {options.steps} steps: {path.stat().st_size} bytes")
        run.train(options.steps)
        command = [sys.executable, __file__, "--device", options.device, "--resume", str(path)]
        subprocess.run([*command, "--steps", str(options.steps)], check=True)
        resumed = Run(device)
        resumed.load(path)
    differing = num_differing(run.model.state_dict(), resumed.model.state_dict())
    if differing:
        raise SystemExit(f"save_resume: {differing} weights differ after resuming on {device}")
    print(f"save_resume: resumed in a new process on {device}, every weight is bitwise the same")


if __name__ == "__main__":
    main()
