"""What a pure CPU program does, timed in a process of its own.

Run by `bench_good_neighbour.py`, once with the device loaded and once without. Prints one
line of JSON: the name under which the device slot is registered, and microseconds by case.
"""

import argparse
import json
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from harness import block_seconds, median_call_seconds

NUM_BLOCKS = 41
Step = Callable[[], object]


def operations() -> dict[str, Step]:
    """Return small eager operations."""
    x, y, square = torch.rand(16), torch.rand(16), torch.rand(32, 32)
    rows, counter = torch.rand(8, 64), torch.zeros(1)
    leaf = torch.rand(16, requires_grad=True)

    def backward() -> None:
        leaf.grad = None
        (leaf * leaf).sum().backward()

    return {
        "add 16": lambda: x + y,
        "add_ 1": lambda: counter.add_(1.0),
        "mm 32x32": lambda: torch.mm(square, square),
        "view": lambda: x.view(4, 4),
        "sum 16": x.sum,
        "softmax 8x64": lambda: torch.softmax(rows, -1),
        "layer_norm 8x64": lambda: functional.layer_norm(rows, (64,)),
        "item": counter.item,
        "backward 16": backward,
    }


def allocations() -> dict[str, Step]:
    """Return allocations of several sizes, each freed at once."""
    return {
        "empty 16": lambda: torch.empty(16),
        "empty 4K": lambda: torch.empty(2**12),
        "empty 1M": lambda: torch.empty(2**20),
        "zeros 64K": lambda: torch.zeros(2**16),
    }


def training() -> dict[str, Step]:
    """Return training steps of a small network, eager and compiled by Inductor."""
    inputs = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    x, y = inputs[:, :16].contiguous(), inputs[:, 16:].contiguous()

    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y + x.sin()).relu().sum(dim=1)

    compiled = torch.compile(chain)
    eager_step, compiled_step = _train(inputs, compiles=False), _train(inputs, compiles=True)
    return {
        "training step": eager_step,
        "Inductor, pointwise": lambda: compiled(x, y),
        "Inductor, training step": compiled_step,
    }


def _train(inputs: torch.Tensor, *, compiles: bool) -> Step:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward = torch.compile(model) if compiles else model

    def step() -> None:
        loss = functional.mse_loss(forward(inputs), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    """Measure every case and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="call everything but once")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    cases = operations() | allocations() | training()
    if smoke:
        # Compiling its forward and backward takes most of a smoke run.
        del cases["Inductor, training step"]
        times = {name: 1e6 * block_seconds(step, 1) for name, step in cases.items()}
    else:
        times = {name: 1e6 * median_call_seconds(step, NUM_BLOCKS) for name, step in cases.items()}
    print(json.dumps({"slot": torch._C._get_privateuse1_backend_name(), "us": times}))


if __name__ == "__main__":
    main()
