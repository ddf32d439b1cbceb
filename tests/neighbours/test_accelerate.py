"""accelerate takes this device by itself, prepares training for it, saves and resumes."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from accelerate import Accelerator, cpu_offload, dispatch_model
from accelerate.state import AcceleratorState
from accelerate.utils import ProjectConfiguration, gather_object, send_to_device, set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from behaviour.subject import DEVICE, FIRST, SECOND, assert_equal_states, state_of

Script = Callable[..., CompletedProcess[str]]


def make_net() -> nn.Sequential:
    """Make a net with dropout, so that random numbers matter."""
    return nn.Sequential(
        nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


def make_data() -> TensorDataset:
    """Make 32 points of six numbers with the class that a fixed rule gives them."""
    points = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, points[:, :3].argmax(1))


class Run:
    """A training script as accelerate's documentation writes it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        set_seed(4)
        settings = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True)
        self.accelerator = Accelerator(project_config=settings, **options)
        net = make_net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        loader = DataLoader(make_data(), batch_size=8, shuffle=True)
        prepared = self.accelerator.prepare(net, optimizer, schedule, loader)
        self.net, self.optimizer, self.schedule, self.loader = prepared
        self.losses: list[float] = []

    def epoch(self) -> None:
        """Train on every batch once."""
        for points, classes in self.loader:
            with self.accelerator.accumulate(self.net):
                with self.accelerator.autocast():
                    loss = F.cross_entropy(self.net(points), classes)
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.net.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            self.losses.append(self.accelerator.gather_for_metrics(loss.detach()).item())

    def state(self) -> dict[str, torch.Tensor]:
        """Copy the unwrapped model's state to the CPU."""
        return state_of(self.accelerator.unwrap_model(self.net))


def test_the_accelerator_takes_the_device_and_places_everything(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.accelerator.device.type == DEVICE
    assert {str(p.device) for p in run.net.parameters()} == {FIRST}
    for batch in run.loader:
        assert [str(part.device) for part in batch] == [FIRST, FIRST]
    held = run.optimizer.param_groups[0]["params"]
    assert all(a is b for a, b in zip(held, run.net.parameters(), strict=True))
    nested = send_to_device({"a": torch.ones(3), "b": [torch.zeros(2), "text"]}, DEVICE)
    assert str(nested["a"].device) == str(nested["b"][0].device) == FIRST
    assert torch.equal(run.accelerator.gather(nested["a"]), nested["a"])
    assert gather_object(["x"]) == ["x"]
    run.accelerator.wait_for_everyone()


def test_the_chosen_device_is_taken(tmp_path: Path) -> None:
    torch.neuron.set_device(1)
    run = Run(tmp_path)
    assert {str(p.device) for p in run.net.parameters()} == {SECOND}
    assert {str(part.device) for batch in run.loader for part in batch} == {SECOND}
    run.epoch()


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulate": {"gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_float32_training_equals_the_cpu_bit_for_bit(name: str, tmp_path: Path) -> None:
    def run(cpu: bool) -> Run:
        run = Run(tmp_path, cpu=cpu, **OPTIONS[name])
        # On the CPU dropout would draw from the generator that also shuffles the batches.
        for module in run.net.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        for _ in range(3):
            run.epoch()
        return run

    actual, expected = run(cpu=False), run(cpu=True)
    assert actual.losses == expected.losses
    assert_equal_states(actual.state(), expected.state())


def test_bfloat16_learns_and_keeps_float32_weights(tmp_path: Path) -> None:
    run = Run(tmp_path, mixed_precision="bf16")
    seen = set()
    run.accelerator.unwrap_model(run.net)[0].register_forward_hook(
        lambda layer, inputs, output: seen.add((str(output.device), output.dtype))
    )
    for _ in range(12):
        run.epoch()
    assert seen == {(FIRST, torch.bfloat16)}
    assert run.net(torch.ones(1, 6, device=DEVICE)).dtype == torch.float32
    assert {p.dtype for p in run.net.parameters()} == {torch.float32}
    assert sum(run.losses[-4:]) < 0.6 * sum(run.losses[:4])


def test_accumulated_gradients_are_those_of_the_large_batch(tmp_path: Path) -> None:
    run = Run(tmp_path, gradient_accumulation_steps=4)
    steps = []
    for points, classes in run.loader:
        with run.accelerator.accumulate(run.net):
            run.net.eval()
            run.accelerator.backward(F.cross_entropy(run.net(points), classes))
            steps.append(run.accelerator.sync_gradients)
            if run.accelerator.sync_gradients:
                accumulated = [p.grad.clone() for p in run.net.parameters()]
            run.optimizer.step()
            run.optimizer.zero_grad()
    assert steps == [False, False, False, True]
    fresh = Run(tmp_path)
    fresh.net.eval()
    points, classes = (part.to(DEVICE) for part in make_data().tensors)
    F.cross_entropy(fresh.net(points), classes).backward()
    for got, parameter in zip(accumulated, fresh.net.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad)


def test_float16_is_refused_by_name(tmp_path: Path) -> None:
    """accelerate 1.15 scales losses on a closed list of devices that lacks this one."""
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in .*neuron"):
        Run(tmp_path, mixed_precision="fp16")


def whole_and_saved(folder: Path) -> Run:
    """Train four epochs in bfloat16, saving everything after two."""
    run = Run(folder, mixed_precision="bf16", gradient_accumulation_steps=2)
    for epoch in range(4):
        if epoch == 2:
            run.accelerator.save_state()
        run.epoch()
    return run


def resumed(folder: Path, map_location: str | None = None) -> Run:
    """Load what was saved after two epochs and train the other two."""
    run = Run(folder, mixed_precision="bf16", gradient_accumulation_steps=2)
    for device in ("cpu", DEVICE):
        torch.rand(3, device=device)
    options = {} if map_location is None else {"map_location": map_location}
    run.accelerator.load_state(str(folder / "checkpoints" / "checkpoint_0"), **options)
    for _ in range(2):
        run.epoch()
    return run


@pytest.mark.parametrize("map_location", [None, "on_device"])
def test_a_loaded_state_continues_bit_for_bit(map_location: str | None, tmp_path: Path) -> None:
    whole = whole_and_saved(tmp_path)
    again = resumed(tmp_path, map_location)
    assert again.losses == whole.losses[8:]
    assert_equal_states(again.state(), whole.state())
    assert again.schedule.get_last_lr() == whole.schedule.get_last_lr()


def test_a_new_process_continues_bit_for_bit(script: Script, tmp_path: Path) -> None:
    whole = whole_and_saved(tmp_path)
    script(
        """
        from pathlib import Path

        import torch

        from neighbours.test_accelerate import resumed

        run = resumed(Path.cwd())
        torch.save({"state": run.state(), "losses": run.losses}, "resumed.pt")
        """,
        timeout_s=300,
    )
    again = torch.load(tmp_path / "resumed.pt", weights_only=True)
    assert again["losses"] == whole.losses[8:]
    assert_equal_states(again["state"], whole.state())


def test_hooks_move_inputs_between_devices() -> None:
    net = make_net().eval()
    x = torch.randn(4, 6)
    expected = net(x)
    places = {"0": 0, "1": 0, "2": 1, "3": 1, "4": 1}
    spread = dispatch_model(net, places)
    assert [str(p.device) for p in spread.parameters()] == [FIRST] * 4 + [SECOND] * 2
    result = spread(x.to(DEVICE))
    assert torch.equal(result.cpu(), expected)


def test_weights_kept_on_the_host_visit_the_device() -> None:
    net = make_net().eval()
    x = torch.randn(4, 6)
    expected = net(x)
    offloaded = cpu_offload(net, execution_device=torch.device(SECOND))
    assert torch.equal(offloaded(x.to(SECOND)).cpu(), expected)
    assert all(p.device.type == "meta" for p in offloaded.parameters())


def test_memory_is_given_back(tmp_path: Path, settled_memory: Callable[..., int]) -> None:
    before = settled_memory()
    run = Run(tmp_path)
    run.epoch()
    assert torch.neuron.memory_allocated() > before
    run.net, run.optimizer, run.schedule, run.loader = run.accelerator.free_memory(
        run.net, run.optimizer, run.schedule, run.loader
    )
    assert run.net is run.optimizer is None
    assert settled_memory() == before
