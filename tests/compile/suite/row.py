"""What a row of the model suite holds, and how transformers' rows make their model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

Inputs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """Describe one architecture in a reduced configuration.

    Attributes:
        kind: Such as `decoder` or `vision`; the report groups by it.
        build: Makes the model with random weights, on the CPU; called with a fixed seed.
        inputs: Makes the keyword arguments of `forward`, labels among them.
        source: `transformers`, or `ours` for a network that is written here.
        has_experts: Check that at least two experts of each layer were hit.
        learning_rate: Of the AdamW steps; what makes the loss fall in twenty.
        known: Why the row fails, where that is known; the report prints it beside the failure.
    """

    kind: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], Inputs]
    source: str = "transformers"
    has_experts: bool = False
    learning_rate: float = 1e-3
    known: str = ""


@dataclass(frozen=True, slots=True)
class _FromConfig:
    """Make a model of transformers from its class's name and its configuration's arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> torch.nn.Module:
        model: Any = getattr(transformers, self.name)
        return model(model.config_class(**self.arguments))


def row(
    kind: str,
    name: str,
    inputs: Callable[[], Inputs],
    arguments: Mapping[str, Any],
    **options: Any,
) -> Row:
    """Make the row of an architecture of transformers."""
    return Row(kind, _FromConfig(name, arguments), inputs, **options)
