"""Train with autocast to bfloat16 and a gradient scaler.

What it shows: `torch.autocast("neuron")` picks the dtype op by op, the weights stay
float32, and `GradScaler` leaves out a step whose gradients are not finite. The scaler inverts
its scale in float64, which the strict mode of an emulated device may report.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Fit a small network to a smooth function, with one spoilt step on the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    device = torch.device(options.device)

    torch.manual_seed(0)
    inputs = torch.rand(256, 2) * 4 - 2
    targets = (inputs[:, :1] * inputs[:, 1:]).sin()
    inputs, targets = inputs.to(device), targets.to(device)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    model.append(nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**12)

    losses = []
    for step in range(options.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            outputs = model(inputs)
            loss = functional.mse_loss(outputs.float(), targets)
        if step == 0:
            print(f"weights {model[0].weight.dtype}, outputs {outputs.dtype}, loss {loss.dtype}")
        is_spoilt = step == options.steps // 2
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        scaler.scale(loss * torch.inf if is_spoilt else loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        if is_spoilt:
            same = all(map(torch.equal, kept, model.parameters()))
            print(f"step {step}: infinite gradients, weights {'kept' if same else 'changed'}, "
                  f"scale {scale:g} -> {scaler.get_scale():g}")  # fmt: skip
        elif step % 30 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}")
    print(f"mixed_precision: bfloat16 loss fell from {losses[0]:.4f} to {losses[-1]:.4f} "
          f"on {device}")  # fmt: skip


if __name__ == "__main__":
    main()
