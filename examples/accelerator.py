"""Train through `torch.accelerator`, naming no device at all.

What it shows: code written once for "the accelerator" finds `neuron` by itself, and the
same file runs on another accelerator, or on the CPU where there is none.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Report the accelerator and train a small autoencoder on it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = torch.device("cpu") if accelerator is None else accelerator
    torch.manual_seed(0)
    print(f"accelerator: {accelerator}, {torch.accelerator.device_count()} device(s)")

    model = nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 32)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = torch.randn(128, 32).to(device, non_blocking=True)
    losses = []
    for _ in range(60):
        loss = functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    if accelerator is not None:
        torch.accelerator.synchronize()
        stream = torch.accelerator.current_stream()
        peak = torch.accelerator.max_memory_allocated()
        free, total = torch.accelerator.get_memory_info()
        print(f"index {torch.accelerator.current_device_index()}, {stream}")
        print(f"peak {peak} bytes allocated, {free} of {total} bytes free")
        if torch.accelerator.device_count() > 1:
            with torch.accelerator.device_index(1):
                elsewhere = batch.to(f"{device.type}:{torch.accelerator.current_device_index()}")
            print(f"a copy on the second device: {elsewhere.device}")
    first, last = losses[0].item(), losses[-1].item()
    print(f"accelerator: loss fell from {first:.3f} to {last:.3f} on {device.type}")


if __name__ == "__main__":
    main()
