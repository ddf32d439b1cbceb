"""Saving, ending the process and resuming gives the run that was never interrupted."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from torch.nn import functional as F

from behaviour.subject import DEVICE, assert_equal_states, state_of
from behaviour.training import SmallNet, batch, make_net

Script = Callable[..., CompletedProcess[str]]

OPTIMIZERS: dict[str, dict[str, object]] = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {"fused": True},
    "RMSprop": {"foreach": True},
}


class Run:
    """Everything that a training script keeps and must save."""

    def __init__(self, name: str, device: str) -> None:
        self.device = device
        self.net: SmallNet = make_net(0, device)
        options = OPTIMIZERS[name]
        self.optimizer = getattr(torch.optim, name)(self.net.parameters(), lr=0.05, **options)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, 0.1, total_steps=10, cycle_momentum=False
        )
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**12, growth_interval=1)
        self.generator = torch.Generator(device=device).manual_seed(8)
        self.step = 0

    def advance(self, until: int) -> None:
        """Train up to a step, with noise from a generator and dropout from the default one."""
        while self.step < until:
            images, labels = batch(self.step, self.device)
            noise = torch.randn(images.shape, generator=self.generator, device=self.device)
            self.optimizer.zero_grad()
            with torch.autocast(torch.device(self.device).type, dtype=torch.float16):
                loss = F.cross_entropy(self.net(images + noise * 0.1), labels)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.step += 1

    def parts(self) -> dict[str, torch.nn.Module]:
        """Name what has a state dictionary."""
        names = ("net", "optimizer", "scheduler", "scaler")
        return {name: getattr(self, name) for name in names}

    def save(self, path: Path) -> None:
        """Write the whole run into one file."""
        state = {name: part.state_dict() for name, part in self.parts().items()}
        device_rng = torch.neuron.get_rng_state_all()
        rng = {
            "cpu": torch.get_rng_state(),
            "device": device_rng,
            "own": self.generator.get_state(),
        }
        torch.save({**state, "rng": rng, "step": self.step}, path)

    def load(self, path: Path) -> None:
        """Read a run back from a file."""
        state = torch.load(path, weights_only=True)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["rng"]["cpu"])
        torch.neuron.set_rng_state_all(state["rng"]["device"])
        self.generator.set_state(state["rng"]["own"])
        self.step = state["step"]


def run_name(name: str) -> str:
    """Return the file name of one optimizer's checkpoint."""
    return f"{name}.pt"


def test_a_resumed_run_is_bitwise_equal(script: Script, tmp_path: Path) -> None:
    whole = {}
    for name in OPTIMIZERS:
        torch.manual_seed(12)
        run = Run(name, DEVICE)
        run.advance(4)
        run.save(tmp_path / run_name(name))
        run.advance(8)
        whole[name] = (state_of(run.net), run.scaler.get_scale(), run.scheduler.get_last_lr())
        assert run.scaler.get_scale() < 2.0**20
    script(
        """
        from pathlib import Path

        import torch
        from behaviour.test_resume import OPTIMIZERS, Run, run_name

        for name in OPTIMIZERS:
            run = Run(name, "neuron")
            run.load(Path(run_name(name)))
            assert run.step == 4
            run.advance(8)
            run.save(Path("resumed-" + run_name(name)))
        """
    )
    for name, (state, scale, rates) in whole.items():
        resumed = Run(name, DEVICE)
        resumed.load(tmp_path / f"resumed-{run_name(name)}")
        assert_equal_states(state_of(resumed.net), state)
        assert resumed.scaler.get_scale() == scale
        assert resumed.scheduler.get_last_lr() == rates


def test_an_interrupted_run_resumes_from_any_step(tmp_path: Path) -> None:
    torch.manual_seed(12)
    whole = Run("AdamW", DEVICE)
    for step in range(1, 7):
        whole.advance(step)
        whole.save(tmp_path / f"{step}.pt")
    for step in (1, 3, 5):
        again = Run("AdamW", DEVICE)
        again.load(tmp_path / f"{step}.pt")
        again.advance(6)
        assert_equal_states(state_of(again.net), state_of(whole.net))


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_checkpoint_moves_between_the_cpu_and_the_device(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    run = Run(name, DEVICE)
    run.advance(2)
    run.save(tmp_path / "run.pt")
    state = torch.load(tmp_path / "run.pt", map_location="cpu")
    on_cpu = make_net(1, "cpu")
    on_cpu.load_state_dict(state["net"])
    assert_equal_states(state_of(on_cpu), state_of(run.net))
    optimizer = getattr(torch.optim, name)(on_cpu.parameters(), **OPTIMIZERS[name])
    optimizer.load_state_dict(state["optimizer"])
    for entry, parameter in zip(optimizer.state.values(), on_cpu.parameters(), strict=True):
        assert all(v.device == parameter.device for k, v in entry.items() if k != "step")
