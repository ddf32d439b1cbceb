"""Rows of the networks that are written here; each computes its loss as transformers' models do."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compile.suite import inputs, networks
from compile.suite.inputs import BATCH, LENGTH, NUM_LABELS, VOCABULARY
from compile.suite.row import Inputs, Row


class WithLoss(nn.Module):
    """A network whose `forward` takes labels and answers with loss and outputs."""

    def __init__(self, network: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, labels: Tensor, **arguments: Any) -> dict[str, Tensor]:
        made = self.network(*arguments.values())
        return {"loss": self.loss(made, labels), "logits": made}


def _token_loss(made: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(made.flatten(0, 1), labels.flatten())


def _sequences() -> Inputs:
    found = inputs.tokens()
    return {"ids": found["input_ids"], "labels": found["labels"]}


def _noised() -> Inputs:
    hidden = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    hidden[1, -inputs.PADDED :] = True
    return {
        "x": torch.randn(BATCH, 3, 16, 16),
        "steps": torch.tensor([7, 430]),
        "text": torch.randn(BATCH, LENGTH, 32),
        "hidden": hidden,
        "labels": torch.randn(BATCH, 3, 16, 16),
    }


def _graphs() -> Inputs:
    """Two graphs of twenty nodes; the edges of one stay in it."""
    edges = torch.randint(0, 20, (2, 120))
    edges[:, 60:] += 20
    return {
        "nodes": torch.randn(40, 16),
        "edges": edges,
        "graphs": torch.arange(40) // 20,
        "num_graphs": 2,
        "labels": torch.tensor([1, 2]),
    }


def _own(
    kind: str,
    network: Callable[[], nn.Module],
    make: Callable[[], Inputs],
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Row:
    return Row(kind, lambda: WithLoss(network(), loss), make, source="ours")


OWN: dict[str, Row] = {
    "own_resnet": _own("vision", lambda: networks.resnet(NUM_LABELS), inputs.large_pictures),
    "own_vit": _own("vision", lambda: networks.VisionTransformer(NUM_LABELS), inputs.pictures),
    "own_efficientnet": _own(
        "vision", lambda: networks.efficientnet(NUM_LABELS), inputs.large_pictures
    ),
    "own_unet": _own("vision", lambda: networks.UNet(NUM_LABELS), inputs.segmented_pictures),
    "lstm": _own(
        "recurrent", lambda: networks.Recurrent(nn.LSTM, VOCABULARY), _sequences, _token_loss
    ),
    "gru": _own(
        "recurrent", lambda: networks.Recurrent(nn.GRU, VOCABULARY), _sequences, _token_loss
    ),
    "diffusion_unet": _own("diffusion", networks.DiffusionUNet, _noised, F.mse_loss),
    "message_passing": _own(
        "graph", lambda: networks.MessagePassing(16, NUM_LABELS), _graphs
    ),
}  # fmt: skip
