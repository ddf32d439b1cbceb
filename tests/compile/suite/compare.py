"""One row of the suite on the device, eager and compiled, compared with CPU eager.

Equal means within the tolerances below: products and sums are taken in another order. They are
relative to the largest element of a tensor; a gradient that is zero but for rounding is held
against the largest gradient of its model. Losses of training are relative to the first one. Where
training is chaotic, the CPU's own losses part as far when each weight changes by one rounding; such
a row may part from the CPU a few times as far, at each step, as the CPU from itself until then.
"""

import copy
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree

import torchneuron
from compile.suite import legality
from compile.suite.row import Inputs, Row

LOSS, OUTPUTS, GRADIENTS, ROUNDING, TRAINING = 1e-5, 1e-4, 1e-3, 1e-6, 1e-3
NUM_STEPS = 20
# Of a weight in float32; a program rounds at many places, so it may part further than this alone.
WEIGHT_ROUNDING, NUM_CHANGED, TIMES_AS_FAR = 2.0**-23, 3, 4.0
SEED = 11
Call = Callable[..., Any]


@dataclass(slots=True)
class Pass:
    """What one forward and one backward left: loss, outputs, gradients; all on the CPU."""

    loss: float
    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


@dataclass(slots=True)
class Outcome:
    """What came of a row; `failures` says in words what was not equal."""

    failures: list[str] = field(default_factory=list)
    loads: bool = False
    eager: bool = False
    compiled: bool = False
    num_graph_breaks: int = 0
    graph_breaks: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    num_programs: int = 0
    compile_s: float = 0.0
    losses: list[float] = field(default_factory=list)
    legality: str = "unknown"


def on_device(inputs: Inputs) -> Inputs:
    """Copy the tensors among the inputs to the device."""
    return pytree.tree_map_only(torch.Tensor, lambda each: each.to("neuron"), inputs)


def _answer(call: Call, inputs: Inputs) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Call with the seed that every call gets, so that dropout is the same everywhere."""
    torch.manual_seed(SEED)
    answer = call(**inputs)
    loss = answer["loss"]
    tensors = [each for each in pytree.tree_leaves(answer) if isinstance(each, torch.Tensor)]
    return loss, [each for each in tensors if each.is_floating_point()]


def one_pass(model: torch.nn.Module, call: Call, inputs: Inputs) -> Pass:
    """Run forward and backward once; the model keeps no gradients."""
    model.zero_grad()
    loss, outputs = _answer(call, inputs)
    loss.backward()
    gradients = {
        name: each.grad.cpu()
        for name, each in model.named_parameters()
        if each.grad is not None
    }  # fmt: skip
    model.zero_grad()
    return Pass(loss.item(), [each.detach().cpu() for each in outputs], gradients)


def train(model: torch.nn.Module, call: Call, inputs: Inputs, rate: float) -> list[float]:
    """Take steps of AdamW and return the loss before each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss, _ = _answer(call, inputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _apart(one: torch.Tensor, other: torch.Tensor, tolerance: float, floor: float) -> float | None:
    """Return the largest difference in units of the largest element, None where it is small."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.numel() == 0:
        return None
    if not torch.equal(one.isfinite(), other.isfinite()):
        return float("inf")
    finite = other.isfinite()
    largest = (one - other)[finite].abs().max().item() if finite.any() else 0.0
    scale = other[finite].abs().max().item() if finite.any() else 1.0
    return None if largest <= tolerance * scale + floor else largest / (scale + 1e-30)


def differences(found: Pass, expected: Pass) -> list[str]:
    """Say where two passes are not equal."""
    said = []
    if not abs(found.loss - expected.loss) <= LOSS * abs(expected.loss):
        said.append(f"loss {found.loss} instead of {expected.loss}")
    if len(found.outputs) != len(expected.outputs):
        said.append(f"{len(found.outputs)} outputs instead of {len(expected.outputs)}")
    for place, (one, other) in enumerate(zip(found.outputs, expected.outputs, strict=False)):
        if (apart := _apart(one, other, OUTPUTS, ROUNDING)) is not None:
            said.append(f"output {place} {tuple(other.shape)}: {apart:.1e} of its largest element")
    if found.gradients.keys() != expected.gradients.keys():
        said.append(f"gradients of {sorted(found.gradients.keys() ^ expected.gradients.keys())}")
    largest = max((each.abs().max().item() for each in expected.gradients.values()), default=0.0)
    for name in found.gradients.keys() & expected.gradients.keys():
        one, other = found.gradients[name], expected.gradients[name]
        if (apart := _apart(one, other, GRADIENTS, ROUNDING * largest)) is not None:
            said.append(f"gradient of {name}: {apart:.1e} of its largest element")
    return said


def experts_missed(gradients: dict[str, torch.Tensor]) -> list[str]:
    """Name the layers of which fewer than two experts got a gradient."""
    hit: dict[str, set[int]] = {}
    for name, gradient in gradients.items():
        layer, found, rest = name.partition(".experts.")
        if not found or not gradient.any():
            continue
        number = "".join(filter(str.isdigit, rest.split(".")[0]))
        rows = (
            gradient.flatten(1).any(1).nonzero().flatten().tolist() if gradient.dim() == 3 else []
        )
        hit.setdefault(layer, set()).update([int(number)] if number else rows)
    return [name for name, numbers in hit.items() if len(numbers) < 2] if hit else ["all of them"]


def compare(row: Row, *, seed: int = 0) -> Outcome:
    """Run one row on the CPU, on the device, and compiled."""
    torch.manual_seed(seed)
    model, inputs = row.build().train(), row.inputs()
    reference = copy.deepcopy(model)
    expected = one_pass(reference, reference, inputs)
    outcome = Outcome()
    if row.has_experts:
        missed = experts_missed(expected.gradients)
        outcome.failures += [f"fewer than two experts hit in {each}" for each in missed]
    initial = copy.deepcopy(model.state_dict())

    def load() -> None:
        model.to("neuron")
        outcome.loads = True

    def run_eager() -> None:
        found = differences(one_pass(model, model, on_device(inputs)), expected)
        outcome.failures += [f"eager: {each}" for each in found]
        outcome.eager = not found

    def run_compiled() -> None:
        model.load_state_dict(initial)
        reference.load_state_dict(initial)
        found = _compare_compiled(row, outcome, model, on_device(inputs), expected)
        losses = train(reference, reference, inputs, row.learning_rate)

        def train_changed(seed: int) -> list[float]:
            reference.load_state_dict(initial)
            change_by_rounding(reference, seed)
            return train(reference, reference, inputs, row.learning_rate)

        found += compare_losses(outcome.losses, losses, train_changed)
        outcome.failures += [f"compiled: {each}" for each in found]
        outcome.compiled = not found

    for stage in (load, run_eager, run_compiled):
        try:
            stage()
        except Exception as error:  # noqa: BLE001 (what a stage raises is its result)
            said = str(error).strip().splitlines()[:1]
            outcome.failures.append(f"{stage.__name__}: {type(error).__name__}: {' '.join(said)}")
    return outcome


def _compare_compiled(
    row: Row, outcome: Outcome, model: torch.nn.Module, inputs: Inputs, expected: Pass
) -> list[str]:
    """Compile, compare one pass, train; fill in what it took."""
    counters.clear()
    before = torchneuron.compile_stats()
    call = torch.compile(model, backend="neuron")
    begin = time.process_time()
    with torchneuron.explain() as report, legality.recorded() as lowered:
        found = differences(one_pass(model, call, inputs), expected)
        outcome.compile_s = round(time.process_time() - begin, 2)
        outcome.losses = train(model, call, inputs, row.learning_rate)
    after = torchneuron.compile_stats()
    outcome.num_programs = int(after["programs"] - before["programs"])
    outcome.fallbacks = sorted({each["op"] for each in report.to_dict()["host_fallbacks"]})
    outcome.legality = legality.module_verdict(lowered)
    breaks = counters["graph_break"]
    outcome.num_graph_breaks = sum(breaks.values())
    outcome.graph_breaks = [reason.splitlines()[0] for reason in breaks]
    return found


def change_by_rounding(model: torch.nn.Module, seed: int) -> None:
    """Change each weight by about one rounding of float32."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(1 + WEIGHT_ROUNDING * torch.randn(each.shape, generator=generator))


def compare_losses(
    found: Sequence[float], expected: Sequence[float], train_changed: Callable[[int], list[float]]
) -> list[str]:
    """Say where training is not the CPU's.

    Args:
        found: The losses.
        expected: The CPU's.
        train_changed: Trains on the CPU with weights changed by a rounding; takes a seed. Called
            only where the losses part.
    """
    allowed = [TRAINING * abs(expected[0])] * len(expected)
    if _parting(found, expected, allowed) is not None:
        changed = [train_changed(seed) for seed in range(NUM_CHANGED)]
        apart = [
            max(abs(each - loss) for each in losses)
            for loss, *losses in zip(expected, *changed, strict=True)
        ]
        allowed = [
            max(least, TIMES_AS_FAR * widest)
            for least, widest in zip(allowed, itertools.accumulate(apart, max), strict=True)
        ]
    step = _parting(found, expected, allowed)
    if step is not None:
        return [f"step {step} of AdamW: loss {found[step]} instead of {expected[step]}"]
    if found[-1] >= found[0]:
        return [f"the loss does not fall: {list(found)}"]
    return []


def _parting(
    found: Sequence[float], expected: Sequence[float], allowed: Sequence[float]
) -> int | None:
    """Return the first step at which losses differ by more than is allowed."""
    for step, (one, other, most) in enumerate(zip(found, expected, allowed, strict=True)):
        # Not-a-number differs from everything.
        if not abs(one - other) <= most:
            return step
    return None
