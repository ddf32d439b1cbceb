"""The Trainer of transformers takes this device by itself and trains as it does on the CPU."""

import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from behaviour.subject import DEVICE, FIRST, assert_equal_states
from neighbours.small_models import VOCABULARY, Progressions, gpt2, llama, parameters_of

Script = Callable[..., CompletedProcess[str]]


def make_trainer(
    model: PreTrainedModel,
    folder: Path,
    callbacks: list[TrainerCallback] | None = None,
    **options: Any,
) -> Trainer:
    """Make a Trainer that says nothing and shuffles the same way every time."""
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": 5,
        **options,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=Progressions(),
        eval_dataset=Progressions(size=16),
        callbacks=callbacks,
    )


def seeded(make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """Make a model with weights that do not depend on what ran before."""
    torch.manual_seed(3)
    return make()


def history(trainer: Trainer) -> list[tuple[float, float]]:
    """Return the loss and the norm of the gradient of every step."""
    logs = trainer.state.log_history
    return [(entry["loss"], entry["grad_norm"]) for entry in logs if "grad_norm" in entry]


def test_bfloat16_training_takes_the_device_and_learns(tmp_path: Path) -> None:
    model = seeded(llama)
    seen: set[tuple[str, torch.dtype]] = set()
    model.model.layers[0].mlp.up_proj.register_forward_hook(
        lambda layer, inputs, output: seen.add((str(output.device), output.dtype))
    )
    trainer = make_trainer(model, tmp_path, bf16=True, max_steps=30)
    assert str(trainer.args.device) == FIRST
    assert trainer.accelerator.device.type == DEVICE
    before = trainer.evaluate()
    result = trainer.train()
    after = trainer.evaluate()
    assert seen == {(FIRST, torch.bfloat16)}
    assert {(str(p.device), p.dtype) for p in model.parameters()} == {(FIRST, torch.float32)}
    losses = [loss for loss, _ in history(trainer)]
    assert result.global_step == len(losses) == 30
    assert before["eval_loss"] > 0.9 * math.log(VOCABULARY)
    assert losses[-1] < 0.6 * losses[0]
    assert after["eval_loss"] < 0.6 * before["eval_loss"]
    assert result.metrics["train_loss"] == pytest.approx(sum(losses) / 30)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recompute_and_accumulate": {
        "activation_checkpointing": True,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
    },
    "adafactor_and_cosine": {"optim": "adafactor", "lr_scheduler_type": "cosine"},
    "loops_and_smoothing": {"optim": "adamw_torch", "label_smoothing_factor": 0.1},
    "workers_and_groups": {
        "dataloader_num_workers": 1,
        "train_sampling_strategy": "group_by_length",
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_float32_training_equals_the_cpu_bit_for_bit(name: str, tmp_path: Path) -> None:
    def run(use_cpu: bool) -> tuple[Any, ...]:
        model = seeded(llama)
        trainer = make_trainer(model, tmp_path, use_cpu=use_cpu, max_steps=5, **VARIANTS[name])
        assert trainer.args.device.type == ("cpu" if use_cpu else DEVICE)
        trainer.train()
        predicted = trainer.predict(Progressions(size=4))
        return history(trainer), predicted.predictions.tolist(), parameters_of(model)

    losses, predictions, parameters = run(use_cpu=False)
    expected_losses, expected_predictions, expected_parameters = run(use_cpu=True)
    assert losses == expected_losses
    assert predictions == expected_predictions
    assert_equal_states(parameters, expected_parameters)


def train_with_checkpoints(folder: Path, resume: str | None = None) -> Trainer:
    """Train in bfloat16 for eight steps, saving after each four, from a checkpoint or none."""
    settings = {"bf16": True, "save_strategy": "steps", "save_steps": 4, "max_steps": 8}
    trainer = make_trainer(seeded(llama), folder, **settings)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_new_process_resumes_bit_for_bit(script: Script, tmp_path: Path) -> None:
    whole = train_with_checkpoints(tmp_path / "whole")
    script(
        """
        from pathlib import Path

        from neighbours.test_trainer import history, train_with_checkpoints

        trainer = train_with_checkpoints(Path("resumed"), resume="whole/checkpoint-4")
        assert str(trainer.args.device) == "neuron:0"
        assert trainer.state.global_step == len(history(trainer)) == 8
        """,
        timeout_s=300,
    )
    expected, resumed = tmp_path / "whole/checkpoint-8", tmp_path / "resumed/checkpoint-8"
    weights = load_file(resumed / "model.safetensors")
    assert_equal_states(weights, load_file(expected / "model.safetensors"))
    assert_equal_states(weights, parameters_of(whole.model))
    state, expected_state = (
        torch.load(folder / "optimizer.pt", weights_only=True)["state"]
        for folder in (resumed, expected)
    )
    for index, entry in expected_state.items():
        assert_equal_states(state[index], entry)


class KeepRandomState(TrainerCallback):
    """Keep the device's random numbers in checkpoints.

    The Trainer of transformers 5.24 does so for a closed list of devices that lacks this one.
    """

    def __init__(self, resume: Path | None = None) -> None:
        self.resume = resume

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        torch.save(torch.neuron.get_rng_state_all(), folder / "random.pt")

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.resume is not None:
            torch.neuron.set_rng_state_all(torch.load(self.resume / "random.pt"))
            self.resume = None


def test_dropout_resumes_bit_for_bit_with_a_callback(tmp_path: Path) -> None:
    def run(name: str, resume: Path | None = None) -> dict[str, torch.Tensor]:
        trainer = make_trainer(
            seeded(gpt2),
            tmp_path / name,
            callbacks=[KeepRandomState(resume)],
            bf16=True,
            save_strategy="steps",
            save_steps=3,
            max_steps=6,
        )
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        return parameters_of(trainer.model)

    whole = run("whole")
    assert_equal_states(run("resumed", tmp_path / "whole" / "checkpoint-3"), whole)


def test_a_saved_model_opens_on_any_device(tmp_path: Path) -> None:
    trainer = make_trainer(seeded(gpt2), tmp_path, max_steps=1)
    trainer.train()
    trainer.save_model()
    model = trainer.model
    for place in ("cpu", FIRST, "neuron:1", 1, {"transformer": "neuron:1", "lm_head": "neuron:1"}):
        again = type(model).from_pretrained(tmp_path, device_map=place)
        expected = "cpu" if place == "cpu" else FIRST if place == FIRST else "neuron:1"
        assert {str(p.device) for p in again.parameters()} == {expected}
        assert again.lm_head.weight is again.transformer.wte.weight
        assert_equal_states(parameters_of(again), parameters_of(model))
