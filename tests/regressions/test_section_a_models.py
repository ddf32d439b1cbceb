"""Section A, silent wrong results seen while a model ran or trained."""

from io import BytesIO
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from behaviour.subject import (
    DEVICE,
    assert_equal_states,
    assert_runs_the_same,
    assert_same,
    moved,
    state_of,
    with_gradients,
)
from behaviour.training import make_net, train


class SampledAttention(nn.Module):
    """Attention over a feature map at integer places computed from the query."""

    def __init__(self, dim: int, points: int) -> None:
        super().__init__()
        self.places = nn.Linear(dim, points * 2)
        self.scores = nn.Linear(dim, points)
        self.out = nn.Linear(dim, dim)

    def forward(self, query: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        size = features.shape[-1]
        places = self.places(query).sigmoid().unflatten(-1, (-1, 2))
        rows, columns = (places * size).long().clamp(0, size - 1).unbind(-1)
        flat = features.flatten(2)
        index = (rows * size + columns).flatten(1)[:, None].expand(-1, flat.shape[1], -1)
        sampled = flat.gather(2, index).unflatten(2, rows.shape[1:])
        mixed = torch.einsum("bcqp,bqp->bqc", sampled, self.scores(query).softmax(-1))
        return query + self.out(mixed)


class TinyGPT(nn.Module):
    """Two causal layers with one weight for embedding and output."""

    def __init__(self, tokens: int = 16, dim: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, dim)
        self.place = nn.Parameter(torch.randn(12, dim) * 0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 64, dropout=0.0, batch_first=True) for _ in range(2)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place[: ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return F.linear(x, self.embed.weight)


def test_a04_sampled_attention_agrees_layer_by_layer() -> None:
    """aws-neuron/aws-neuron-samples #116: sampled attention gave far-off logits, no detections."""
    layers = nn.ModuleList(SampledAttention(8, 4) for _ in range(3))
    query = torch.randn(2, 5, 8, requires_grad=True)
    features = torch.randn(2, 8, 7, 7, requires_grad=True)

    def each_layer(layers: Any, query: torch.Tensor, features: torch.Tensor) -> list[torch.Tensor]:
        outputs = []
        for layer in layers:
            query = layer(query, features)
            outputs.append(query)
        return outputs

    assert_runs_the_same(with_gradients(each_layer), layers, query, features)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a05_attention_on_parts_of_one_tensor(dtype: torch.dtype) -> None:
    """aws-neuron/aws-neuron-sdk #1323: one attention block was wrong at every precision."""

    def attend(packed: torch.Tensor) -> list[torch.Tensor]:
        q, k, v = packed.chunk(3, dim=1)
        scores = (q @ k.transpose(-1, -2)) / 4
        left, middle, right = packed.split([2, 2, 2], dim=1)
        return [
            scores.softmax(-1) @ v,
            F.scaled_dot_product_attention(left, middle, right),
            F.scaled_dot_product_attention(left, middle, right, is_causal=True),
        ]

    for batch in range(1, 9):
        packed = torch.randn(batch, 6, 10, 16, dtype=dtype, requires_grad=True)
        assert_runs_the_same(with_gradients(attend), packed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a07_loaded_weights_give_finite_outputs(dtype: torch.dtype) -> None:
    """aws-neuron/aws-neuron-sdk #612: outputs were NaN only with weights from a checkpoint."""
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).to(dtype)
    info = torch.finfo(dtype)
    limits = torch.tensor([info.max / 16, -info.max / 16, info.tiny / 4, 1.0])
    with torch.no_grad():
        net[2].weight[0] = limits.to(dtype)
    saved = BytesIO()
    torch.save(net.state_dict(), saved)
    saved.seek(0)

    loaded = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).to(DEVICE, dtype)
    loaded.load_state_dict(torch.load(saved, map_location=DEVICE))
    x = torch.randn(3, 4, dtype=dtype)
    expected = net(x)
    for result in (loaded(x.to(DEVICE)), moved(net)(x.to(DEVICE))):
        assert_same(result, expected)
        assert torch.isfinite(result).all()
    assert_equal_states(state_of(loaded), state_of(net))


@pytest.mark.filterwarnings("ignore:.*nested tensor:UserWarning")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "dense"])
def test_a08_padding_mask_leaves_other_rows_finite(training: bool, nested: bool) -> None:
    """aws-neuron/aws-neuron-sdk #903: a padding mask made every output NaN."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).train(training)
    x = torch.randn(3, 6, 16)
    padding = torch.arange(6)[None] >= torch.tensor([6, 4, 1])[:, None]
    whole_row = padding.clone()
    whole_row[2] = True
    additive = torch.zeros(3, 6).masked_fill(padding, float("-inf"))

    def encode(encoder: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        with torch.set_grad_enabled(training):
            return encoder(x, src_key_padding_mask=mask).detach()

    for mask in (padding, additive, whole_row):
        result = assert_runs_the_same(encode, encoder, x, mask)
        assert torch.isfinite(result[:2]).all()


def test_a31_reading_the_loss_changes_nothing() -> None:
    """huggingface/optimum-neuron #792: the loss became NaN when it was logged every step."""

    def weights(every: int | None) -> dict[str, torch.Tensor]:
        torch.manual_seed(11)
        net = make_net(0, DEVICE)
        seen = []

        def read(step: int, loss: torch.Tensor, _: nn.Module) -> None:
            if every is not None and step % every == 0:
                seen.append(loss.item())

        train(net, torch.optim.AdamW(net.parameters(), lr=0.01), range(10), read=read)
        assert all(value == value for value in seen)
        return state_of(net)

    silent = weights(None)
    for every in (1, 7):
        assert_equal_states(weights(every), silent)


def test_a34_gradient_of_a_tied_embedding_repeats() -> None:
    """jax-ml/jax #35409: a tied embedding now and then had NaN in its gradient."""
    ids = torch.randint(16, (4, 8))

    def gradient(weight: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        hidden = F.embedding(ids, weight).tanh()
        loss = F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), ids.flatten())
        return torch.autograd.grad(loss, weight)[0]

    weight = torch.randn(16, 12, requires_grad=True)
    first = assert_runs_the_same(gradient, weight, ids)
    on_device = moved((weight, ids))
    for _ in range(200):
        assert torch.equal(gradient(*on_device), first)


def test_a35_tiny_gpt_learns_its_batch() -> None:
    """huggingface/optimum-neuron #1019: training ran and the loss never fell."""
    model = TinyGPT()
    ids = torch.randint(16, (4, 12))

    def losses(model: nn.Module, ids: torch.Tensor) -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        seen = []
        for _ in range(100):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    on_device = losses(*moved((model, ids)))
    assert on_device == losses(*moved((model, ids), "cpu"))
    assert on_device[0] > 2.0
    assert on_device[-1] < 0.1


class Translator(nn.Module):
    """A small encoder-decoder that generates greedily; token 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True}
        layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.layers = nn.Transformer(16, 2, 2, 2, 32, custom_encoder=encoder, **options)
        self.embed = nn.Embedding(20, 16)
        self.head = nn.Linear(16, 20)

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """Generate 32 tokens for source ids of shape (batch, length)."""
        padding = source == 0
        memory = self.layers.encoder(self.embed(source), src_key_padding_mask=padding)
        tokens = torch.ones(source.shape[0], 1, dtype=torch.long, device=source.device)
        for _ in range(32):
            decoded = self.layers.decoder(
                self.embed(tokens), memory, memory_key_padding_mask=padding
            )
            tokens = torch.cat([tokens, self.head(decoded)[:, -1:].argmax(-1)], dim=1)
        return tokens


@torch.no_grad()
def test_a37_padded_generation_gives_the_same_tokens() -> None:
    """aws-neuron/aws-neuron-sdk #672: padded generation picked other tokens than the CPU."""
    source = torch.randint(2, 20, (3, 9))
    source[1, 5:] = 0
    source[2, 2:] = 0
    tokens = assert_runs_the_same(lambda net, ids: net(ids), Translator().eval(), source)
    assert len(tokens.unique()) > 3
