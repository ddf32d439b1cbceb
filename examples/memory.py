"""Watch device memory, run out of it, and go on with a smaller batch.

What it shows: the statistics of `torch.neuron` mean what they mean in `torch.cuda`; an
allocation beyond the limit raises `torch.OutOfMemoryError` and loses nothing.
"""

import argparse

import torch
from torch import nn

MIB = 2**20


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="neuron", help="any device that keeps statistics")
    parser.add_argument("--limit-mib", type=int, default=64, help="what this process may use")
    parser.add_argument("--batch", type=int, default=65536, help="the batch that is tried first")
    return parser.parse_args()


def train_step(model: nn.Module, batch: int, device: torch.device) -> float:
    """Train the model to copy a random batch, once, and return the loss."""
    model.zero_grad()
    inputs = torch.randn(batch, 64, device=device)
    loss = (model(inputs) - inputs).square().mean()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return loss.item()


def main() -> None:
    """Show statistics, provoke an out-of-memory error and recover from it."""
    options = parse()
    if options.device == "cpu":
        raise SystemExit("memory.py: the CPU keeps no memory statistics\n\nhint: --device neuron")
    device = torch.device(options.device)
    memory = torch.get_device_module(device)

    free, total = memory.mem_get_info()
    print(f"{memory.get_device_name()}: {total / MIB:.0f} MiB, of which {free / MIB:.0f} free")

    before = memory.memory_allocated()
    block = torch.empty(4 * MIB, device=device)
    grown = memory.memory_allocated() - before
    print(f"a float32 tensor of {block.numel()} elements: {grown} bytes")
    del block
    print(f"freed again: {memory.memory_allocated() - before} bytes in use, "
          f"{memory.memory_reserved()} kept for reuse")  # fmt: skip
    memory.empty_cache()
    print(f"after empty_cache: {memory.memory_reserved()} kept for reuse")

    # A small share of the memory stands in for a model that is too large for all of it.
    memory.set_per_process_memory_fraction(options.limit_mib * MIB / total)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)).to(device)
    batch = options.batch
    while True:
        memory.reset_peak_memory_stats()
        try:
            loss = train_step(model, batch, device)
            break
        except torch.OutOfMemoryError as error:
            reason = str(error).partition("\n")[0]
        # Only outside of the `except` block are the failed step's tensors free again.
        print(f"batch {batch}: {reason}")
        memory.empty_cache()
        batch //= 2
    print(f"batch {batch}: loss {loss:.3f}")
    peak = memory.max_memory_allocated() / MIB
    memory.set_per_process_memory_fraction(1.0)
    print(f"memory: batch {batch} fits in {options.limit_mib} MiB with a peak of {peak:.1f} MiB")


if __name__ == "__main__":
    main()
