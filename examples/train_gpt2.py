"""Train a small GPT-2 on one repeated random sequence, with an explicit loop.

What it shows: a learning-rate schedule, gradient clipping, logging and checkpoints on
`neuron`, as in any PyTorch program. A random sequence can only be learnt by heart, so a
clear drop of the loss says that forward, backward and optimizer work together.

A GPT-2 of about 104 million parameters: --layers 4 --heads 8 --width 1024 --context 2048
--vocabulary 50257 --learning-rate 3e-4
"""

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Causal attention and a two-layer network, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, time, width] to the same shape."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        result: Tensor = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return result


class GPT2(nn.Module):
    """Learnt positions, `layers` blocks, output weights tied to the embedding."""

    def __init__(self, vocabulary: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [batch, time, vocabulary] of tokens int64 [batch, time]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.embed(tokens) + self.position(positions))
        return functional.linear(self.norm(x), self.embed.weight)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--out", type=Path, help="folder of checkpoints (default: a new one)")
    return parser.parse_args()


def main() -> None:
    """Train, and save a checkpoint every few steps."""
    options = parse()
    out = options.out or Path(tempfile.mkdtemp(prefix="train_gpt2_"))
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    sizes = (options.vocabulary, options.context, options.layers, options.heads, options.width)
    model = GPT2(*sizes).to(options.device)
    tokens = torch.randint(options.vocabulary, (1, options.context + 1)).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, options.steps - 4))
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], milestones=[4])
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{num_parameters / 1e6:.1f} million parameters on {options.device}")

    losses = []
    for step in range(1, options.steps + 1):
        start = time.perf_counter()
        scores = model(tokens[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        milliseconds = 1e3 * (time.perf_counter() - start)
        print(f"step {step:3}  loss {losses[-1]:.3f}  norm {norm.item():.2f}  "
              f"rate {rate:.1e}  {milliseconds:.0f} ms")  # fmt: skip
        if step % options.checkpoint_every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, out / f"step_{step}.pt")
    chance = math.log(options.vocabulary)
    print(f"{len(list(out.glob('step_*.pt')))} checkpoint(s) in {out}, chance level {chance:.2f}")
    print(f"train_gpt2: loss fell from {losses[0]:.2f} to {losses[-1]:.2f} on {options.device}")


if __name__ == "__main__":
    main()
