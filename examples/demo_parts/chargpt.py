"""Part 2: a character GPT on the sources of Python's own standard library."""

import math
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo_parts import pace
from demo_parts.outcome import Outcome, Setting
from demo_parts.progress import Progress

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
TEXT_LIMIT = 4_000_000
STRETCH = 4096
WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 96, 3, 4, 64, 32
LEARNING_RATE, WARM_UP = 3e-3, 40
NUM_JUDGED = 16
PROMPT = "\ndef "


@dataclass(frozen=True, slots=True)
class Scale:
    """How long to train and what must come out of it."""

    steps: int
    goal: float
    sample: int


FULL = Scale(steps=600, goal=2.0, sample=240)
QUICK = Scale(steps=40, goal=3.5, sample=40)


def run(setting: Setting) -> Outcome:
    """Train on nine tenths of the text, judge the loss on the rest, write a sample."""
    scale = QUICK if setting.quick else FULL
    train, test = split(encode(read_sources()))
    pace.reset_peak(setting.device)
    start = time.monotonic()
    trainer = Trainer(train, setting.device, setting.seed, scale.steps)
    before = trainer.judge(test)
    with Progress("chargpt", scale.steps) as progress:
        for done in range(1, scale.steps + 1):
            loss = trainer.step()
            if progress.is_due(done):
                progress.update(done, f"loss {loss.item():.3f}")
    after = trainer.judge(test)
    seconds = time.monotonic() - start
    peak = pace.peak_bytes(setting.device)
    sample = trainer.write(PROMPT, scale.sample, setting.seed)
    speed = pace.compare(
        lambda device: Trainer(train, device, setting.seed, scale.steps).step,
        setting.device,
        rounds=1 if setting.quick else 4,
    )
    stopped = f"chargpt stopped at a held-out loss of {after:.2f}, not under its goal {scale.goal}"
    return Outcome(
        title="chargpt: character GPT on Python's library",
        steps=scale.steps,
        seconds=seconds,
        pace=speed,
        peak_bytes=peak,
        result=f"held-out loss {before:.2f} -> {after:.2f} (ln {len(CHARACTERS)} = "
        f"{math.log(len(CHARACTERS)):.2f})",
        goal=f"under {scale.goal}",
        shortfall="" if after < scale.goal else stopped,
        sample=sample,
    )


def read_sources() -> str:
    """Return the running Python's top-level library modules, in the order of their names.

    Raises:
        SystemExit: this Python's library is not kept as readable sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    # Files with a leading underscore include generated tables of the build.
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)
    if len(text) < TEXT_LIMIT // 8:
        raise SystemExit(f"demo: found only {len(text)} characters of Python sources in {folder}")
    return text[:TEXT_LIMIT]


def encode(text: str) -> Tensor:
    """Return the positions in `CHARACTERS` of a text, int64 [n]; other characters are left out."""
    table = torch.full((128,), -1)
    table[torch.tensor([ord(character) for character in CHARACTERS])] = torch.arange(
        len(CHARACTERS)
    )
    codes = table[
        torch.frombuffer(bytearray(text.encode("ascii", "ignore")), dtype=torch.uint8).long()
    ]
    return codes[codes >= 0]


def split(text: Tensor) -> tuple[Tensor, Tensor]:
    """Return (train, test): every tenth stretch of `STRETCH` characters is for the test."""
    stretches = text[: len(text) // (10 * STRETCH) * 10 * STRETCH].view(-1, 10, STRETCH)
    return stretches[:, :9].flatten(), stretches[:, 9].flatten()


class Rotary(nn.Module):
    """Turn pairs of features by angles that grow with the position (arXiv:2104.09864)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(CONTEXT)[:, None] * frequencies
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, heads, time, width] to the same shape."""
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


class Block(nn.Module):
    """One transformer layer: causal attention, then a two-layer network, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.turn = Rotary(WIDTH // HEADS)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, time, WIDTH] to the same shape."""
        batch, length, _ = x.shape
        heads = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(
            self.turn(q), self.turn(k), v, is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        result: Tensor = x + self.mlp(self.norm_2(x))
        return result


class CharGPT(nn.Module):
    """A GPT over characters; output weights are tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(CHARACTERS), WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, codes: Tensor) -> Tensor:
        """Return scores float32 [batch, time, vocabulary] of codes int64 [batch, time]."""
        return functional.linear(self.norm(self.blocks(self.embed(codes))), self.embed.weight)


class Trainer:
    """The model, the text and the optimizer on one device; `step()` trains one batch."""

    def __init__(
        self,
        text: Tensor,
        device: torch.device,
        seed: int,
        num_steps: int,
        *,
        compiled: bool = False,
    ) -> None:
        torch.manual_seed(seed)
        self._device = device
        self._text = text
        self._model = CharGPT().to(device)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.1
        )
        self._scores = torch.compile(self._model) if compiled else self._model
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer,
            lambda step: min((step + 1) / WARM_UP, max(0.02, 1 - step / num_steps)),
        )
        self._order = torch.Generator().manual_seed(seed)

    def step(self) -> Tensor:
        """Train on one random batch and return its loss, a 0-dim tensor on the device."""
        loss = self._loss(self._text, self._order)
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        return loss.detach()

    @torch.no_grad()
    def judge(self, text: Tensor) -> float:
        """Return the mean loss in nats per character over windows of a text, always the same."""
        order = torch.Generator().manual_seed(0)
        return sum(self._loss(text, order).item() for _ in range(NUM_JUDGED)) / NUM_JUDGED

    @torch.no_grad()
    def write(self, prompt: str, length: int, seed: int) -> str:
        """Return the prompt continued by `length` sampled characters."""
        generator = torch.Generator(self._device).manual_seed(seed)
        codes = encode(prompt)[None].to(self._device)
        for _ in range(length):
            scores = self._model(codes[:, -CONTEXT:])[:, -1] / 0.7
            chosen = torch.multinomial(scores.softmax(-1), 1, generator=generator)
            codes = torch.cat([codes, chosen], dim=1)
        return "".join(CHARACTERS[code] for code in codes[0].tolist())

    def _loss(self, text: Tensor, order: torch.Generator) -> Tensor:
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1), generator=order)
        windows = text[starts + torch.arange(CONTEXT + 1)].to(self._device)
        scores = self._scores(windows[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())
