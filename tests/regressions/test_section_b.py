"""Section B, missing operators and what a fallback to the CPU does to them."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from behaviour.subject import (
    DEVICE,
    assert_runs_the_same,
    assert_same,
    moved,
    outcome,
    with_gradients,
)


@pytest.mark.filterwarnings("ignore:.*nested tensor:UserWarning")
def test_b04_attention_fast_path_agrees_with_the_slow_one() -> None:
    """Ascend/pytorch #51, pytorch/pytorch #103818, #103419: fast path chosen for a wrong device."""
    import torchneuron

    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2).eval()
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])

    @torch.no_grad()
    def run(
        encoder: nn.Module, attention: nn.Module, x: torch.Tensor, padding: torch.Tensor
    ) -> Any:
        return [
            encoder(x),
            encoder(x, src_key_padding_mask=padding),
            attention(x, x, x, need_weights=False)[0],
            attention(x, x, x, key_padding_mask=padding)[0],
        ]

    was_on = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(True)
        torchneuron.clear_op_tracking()
        fast = assert_runs_the_same(run, encoder, attention, x, padding)
        executed = torchneuron.get_executed_ops()
        assert any("_transformer_encoder_layer_fwd" in op for op in executed)
        assert any("_native_multi_head_attention" in op for op in executed)
        assert not torchneuron.get_fallback_ops()
        torch.backends.mha.set_fastpath_enabled(False)
        slow = assert_runs_the_same(run, encoder, attention, x, padding)
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)
    fast[1], slow[1] = (result[~padding.to(DEVICE)] for result in (fast[1], slow[1]))
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_b05_sorting_handles_ties_and_special_values(dtype: torch.dtype) -> None:
    """aws-neuron/aws-neuron-sdk #868: sort and argsort crashed."""
    x = torch.randint(5, (4, 9)).to(dtype)
    if dtype.is_floating_point:
        x[0, 3], x[1, 2], x[2, 5] = math.nan, math.inf, -math.inf

    orders = list(itertools.product((0, 1), (False, True)))

    def order(x: torch.Tensor) -> list[Any]:
        return [
            [tuple(x.sort(dim=d, descending=down, stable=True)) for d, down in orders],
            x.argsort(-1),
            x.argsort(dim=-1, descending=True, stable=True),
            tuple(x.topk(3)),
            tuple(x.topk(2, dim=0, largest=False)),
            tuple(x.kthvalue(2, dim=1)),
            tuple(x.median(dim=0)),
            x.median(),
            torch.unique(x, return_inverse=True, return_counts=True),
            torch.unique(x, dim=1),
            torch.unique_consecutive(x),
            torch.msort(x),
            torch.searchsorted(torch.arange(5, device=x.device).to(x.dtype), x),
        ]

    assert_runs_the_same(order, x)


def test_b07_scatter_takes_computed_indices() -> None:
    """aws-neuron/aws-neuron-sdk #790: scatter along an axis was not supported."""
    x, source = torch.randn(6, 5), torch.randn(6, 5, requires_grad=True)

    def scatter(x: torch.Tensor, source: torch.Tensor) -> list[torch.Tensor]:
        index = source.argsort(dim=1)
        rows = (source.detach().abs() * 3).long() % 6
        results = [
            x.scatter(1, index, source),
            x.scatter(1, index, 2.5),
            x.scatter_add(0, rows, source),
            x.index_add(0, rows[:, 0], source),
            x.index_copy(1, index[0], source),
            torch.zeros_like(x).masked_scatter(index > 2, source),
        ]
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            results.append(x.scatter_reduce(0, rows, source, reduce, include_self=False))
        return results

    assert_runs_the_same(with_gradients(scatter), x, source)


def test_b08_result_shapes_may_depend_on_data() -> None:
    """aws-neuron/aws-neuron-sdk #698, #564, #802: nonzero and its kin were not supported."""
    x = torch.randint(-2, 3, (5, 6)).float()

    def select(x: torch.Tensor) -> list[Any]:
        repeats = x.abs().sum(1).long()
        return [
            x.nonzero(),
            x.nonzero(as_tuple=True),
            torch.argwhere(x > 0),
            x.masked_select(x > 0),
            x[x < 0],
            x.unique(),
            x.repeat_interleave(repeats, dim=0),
            torch.bincount(x.long().flatten() + 2),
            torch.combinations(x.flatten()[:4]),
            (x > 9).nonzero(),
        ]

    assert_runs_the_same(select, x)
    assert_runs_the_same(select, torch.zeros(0, 6))


def test_b10_embedding_options_and_batch_sizes() -> None:
    """aws-neuron/aws-neuron-sdk #609, #861, #580: embedding broke with another batch size."""
    for options in (
        {},
        {"padding_idx": 2},
        {"max_norm": 1.0},
        {"padding_idx": -1, "scale_grad_by_freq": True},
        {"max_norm": 0.5, "norm_type": 1.0, "scale_grad_by_freq": True},
    ):
        for batch in (1, 4, 3, 0):
            table = nn.Embedding(10, 6, **options)
            ids = torch.randint(10, (batch, 7))
            assert_runs_the_same(
                with_gradients(lambda table, ids: [table(ids) * 1.5, table.weight * 1]), table, ids
            )
    bags = [nn.EmbeddingBag(10, 6, mode=mode) for mode in ("sum", "mean", "max")]
    ids, offsets = torch.randint(10, (9,)), torch.tensor([0, 2, 2, 7])
    for bag in bags:
        assert_runs_the_same(with_gradients(lambda b, i, o: b(i, o)), bag, ids, offsets)


def test_b14_cross_entropy_with_every_option() -> None:
    """microsoft/DirectML #447: cross entropy had no backward."""
    scores = torch.randn(6, 5, 3, requires_grad=True)
    labels = torch.randint(5, (6, 3))
    labels[1] = -100
    weight = torch.rand(5)
    soft = torch.randn(6, 5, 3).softmax(1)

    def losses(scores: torch.Tensor, labels: Any, soft: Any, weight: Any) -> list[torch.Tensor]:
        results = []
        for reduction, smoothing in itertools.product(("mean", "sum", "none"), (0.0, 0.1)):
            options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
            results.append(F.cross_entropy(scores, labels, **options))
            results.append(F.cross_entropy(scores, labels, weight=weight, **options))
            results.append(F.cross_entropy(scores, soft, weight=weight, **options))
        results.append(F.cross_entropy(scores, labels.clamp(min=0), ignore_index=2))
        results.append(F.nll_loss(scores.log_softmax(1), labels, weight))
        return results

    assert_runs_the_same(with_gradients(losses), scores, labels, soft, weight)


def optimizers() -> list[tuple[type[torch.optim.Optimizer], dict[str, Any]]]:
    """Return each optimizer class that takes dense gradients, with needed arguments."""
    classes = [
        value
        for name, value in vars(torch.optim).items()
        if isinstance(value, type)
        and issubclass(value, torch.optim.Optimizer)
        and name not in {"Optimizer", "SparseAdam"}
    ]
    assert len(classes) >= 14
    return [(cls, {"lr": 0.01}) for cls in classes]


def same(actual: Any, expected: Any) -> bool:
    """Whether a device result equals a CPU result exactly."""
    return isinstance(actual, torch.Tensor) and torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize(
    "mode", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"fused": False}], ids=str
)
def test_b16_every_optimizer_in_every_mode(mode: dict[str, bool]) -> None:
    """microsoft/DirectML #604: foreach operators were missing, so Adam and SGD failed."""

    def learn(cls: Any, options: dict[str, Any], weight: torch.Tensor) -> torch.Tensor:
        weights = [weight, torch.ones(3, 2, device=weight.device, requires_grad=True)]
        optimizer = cls(weights, **options)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (weights[0] @ weights[1]).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return weights[0].detach() + weights[1].detach().sum()

    ran = 0
    for cls, options in optimizers():
        weight = torch.randn(4, 3, requires_grad=True)
        expected = outcome(learn, cls, {**options, **mode}, *moved((weight,), "cpu"))
        ran += isinstance(expected, torch.Tensor)
        actual = outcome(learn, cls, {**options, **mode}, *moved((weight,)))
        if not mode and not same(actual, expected):
            # Without a choice the device takes the list functions where the CPU takes a loop.
            expected = learn(cls, {**options, "foreach": True}, *moved((weight,), "cpu"))
        assert_same(actual, expected)
    assert ran >= (4 if "fused" in mode else 12)


def test_b17_normalization_backward() -> None:
    """microsoft/DirectML #678: group norm had no backward."""
    for affine, batch in itertools.product((True, False), (1, 3)):
        layers = [
            nn.GroupNorm(2, 4, affine=affine),
            nn.InstanceNorm2d(4, affine=affine, track_running_stats=True),
            nn.BatchNorm2d(4, affine=affine),
            nn.BatchNorm2d(4, affine=affine).eval(),
            nn.LayerNorm([4, 5, 5], elementwise_affine=affine),
            nn.RMSNorm([5, 5], elementwise_affine=affine),
            nn.LocalResponseNorm(2),
        ]
        for layer in layers:
            x = torch.randn(batch, 4, 5, 5, requires_grad=True)

            def run(layer: nn.Module, x: torch.Tensor) -> list[Any]:
                return [layer(x), layer(x.transpose(2, 3)), *layer.buffers()]

            assert_runs_the_same(with_gradients(run), layer, x)


DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16),
]
MATRIX: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + x,
    "sub": lambda x: x - x,
    "div": lambda x: x / x,
    "pow": lambda x: x**2,
    "exp": torch.exp,
    "matmul": lambda x: x @ x,
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": lambda x: x.prod(0),
    "cumsum": lambda x: x.cumsum(1),
    "std": torch.std,
    "amax": torch.amax,
    "argmax": torch.argmax,
    "sort": lambda x: tuple(x.sort(stable=True)),
    "clamp": lambda x: x.clamp(0, 1),
    "softmax": lambda x: x.softmax(-1),
    "less": lambda x: x < x.t(),
    "equal": lambda x: x == x.t(),
    "bitwise_and": lambda x: x & x,
    "shift": lambda x: x << 1,
    "where": lambda x: torch.where(x == x, x, x.t()),
    "index": lambda x: x[torch.tensor([2, 0], device=x.device)],
    "cat": lambda x: torch.cat([x, x.t()]),
    "tril": torch.tril,
    "roll": lambda x: x.roll(1, 0),
    "conv1d": lambda x: F.conv1d(x[None], x[:, :, None]),
    "max_pool": lambda x: F.max_pool2d(x[None], 2),
    "relu": F.relu,
    "inverse": torch.linalg.inv,
    "svdvals": torch.linalg.svdvals,
    "fft": torch.fft.fft,
    "nonzero": torch.nonzero,
    "to_float": lambda x: x.to(torch.float32),
    "to_int": lambda x: x.to(torch.int32),
    "item": lambda x: x[1, 2].item(),
    "repr": lambda x: str(x.tolist()),
    "empty": lambda x: torch.zeros_like(x),
    "ones": lambda x: torch.ones(3, dtype=x.dtype, device=x.device),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_b20_each_dtype_is_right_or_refused_alike(dtype: torch.dtype) -> None:
    """torch-xpu-ops and Ascend skip lists: complex and float64 failed as a block."""
    x = (torch.eye(4) * 3 + torch.randint(0, 2, (4, 4))).to(dtype)
    for name, op in MATRIX.items():
        expected = outcome(op, x.clone())
        actual = outcome(op, x.to(DEVICE))
        try:
            assert_same(actual, expected)
        except AssertionError as error:
            raise AssertionError(f"{name} of {dtype}") from error


def test_b22_named_tensors_are_refused_as_on_the_cpu() -> None:
    """pytorch/pytorch #104401: names got lost in a fallback; PyTorch 2.13 itself dropped them."""
    for device in ("cpu", DEVICE):
        x = torch.zeros(2, 3, device=device)
        with pytest.raises(TypeError, match="names"):
            torch.zeros(2, 3, names=("batch", "feature"), device=device)
        with pytest.raises(AttributeError, match="refine_names"):
            x.refine_names("batch", "feature")


@pytest.mark.filterwarnings("ignore:.*quantize:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_b23_quantized_tensors_work() -> None:
    """pytorch/pytorch #111464: quantized tensors did not exist on a custom device."""
    x = torch.randn(4, 6)

    def quantize(x: torch.Tensor) -> list[torch.Tensor]:
        whole = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
        scales = torch.full((4,), 0.05, dtype=torch.float64, device=x.device)
        zeros = torch.zeros(4, dtype=torch.int64, device=x.device)
        rows = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
        return [whole.dequantize(), whole.int_repr(), rows.dequantize(), rows.int_repr()]

    assert_runs_the_same(quantize, x)


@pytest.mark.filterwarnings("ignore:.*nested:UserWarning")
def test_b25_jagged_nested_tensors_and_attention() -> None:
    """pytorch/pytorch #148659: a nested tensor's storage was refused for its device."""
    rows = [torch.randn(n, 8, requires_grad=True) for n in (3, 5, 2)]

    def attend(*rows: torch.Tensor) -> list[torch.Tensor]:
        nested = torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
        heads = (nested * 2).unflatten(-1, (2, 4)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads)
        return [mixed.transpose(1, 2).flatten(-2).values(), nested.to_padded_tensor(0.0)]

    assert_runs_the_same(with_gradients(attend), *rows)
    strided = torch.nested.nested_tensor([row.detach() for row in rows], device=DEVICE)
    assert strided.device.type == torch.device(DEVICE).type
    for got, want in zip(strided.unbind(), rows, strict=True):
        assert torch.equal(got.cpu(), want)


def test_b26_convolution_backward_over_shapes() -> None:
    """aws-neuron/aws-neuron-sdk #1295: a 7x7 strided convolution had no backward, 3x3 had one."""
    cases = [
        *((kernel, 1 + kernel % 3, 1, 1, "zeros") for kernel in range(1, 12)),
        *((3, stride, dilation, 2, "zeros") for stride in (1, 2, 3) for dilation in (1, 2, 5)),
        *((2, 1, dilation, 4, "zeros") for dilation in (8, 16, 32)),
        *((5, 2, 1, 4, mode) for mode in ("reflect", "replicate", "circular")),
        (7, 2, 1, 1, "zeros"),
    ]
    for kernel, stride, dilation, groups, mode in cases:
        size = max(12, dilation * (kernel - 1) + 2)
        layer = nn.Conv2d(
            4, 8, kernel, stride, kernel // 2, dilation, groups=groups, padding_mode=mode
        )
        x = torch.randn(2, 4, size, 12 if dilation == 1 else size, requires_grad=True)
        assert_runs_the_same(with_gradients(lambda layer, x: layer(x)), layer, x)
    for layer, shape in (
        (nn.Conv1d(4, 4, 7, 3, padding=2, dilation=2), (2, 4, 40)),
        (nn.Conv3d(2, 4, 3, 2, padding=1), (1, 2, 6, 6, 6)),
        (nn.ConvTranspose2d(4, 6, 5, 3, padding=1, output_padding=1, groups=2), (2, 4, 5, 5)),
    ):
        x = torch.randn(shape, requires_grad=True)
        assert_runs_the_same(with_gradients(lambda layer, x: layer(x)), layer, x)


class PinnedPair:
    """A batch of a user's own class that knows how to pin itself."""

    def __init__(self, samples: list[tuple[torch.Tensor, int]]) -> None:
        self.images = torch.stack([image for image, _ in samples])
        self.labels = torch.tensor([label for _, label in samples])

    def pin_memory(self) -> "PinnedPair":
        """Pin both tensors; the method takes no device, as the documentation shows it."""
        self.images = self.images.pin_memory()
        self.labels = self.labels.pin_memory()
        return self


def test_b29_loader_pins_batches_of_a_custom_class() -> None:
    """pytorch/pytorch #196801, #116403: `pin_memory()` of a batch was called in a wrong way."""
    samples = [(torch.full((3,), float(i)), i) for i in range(8)]
    loader = torch.utils.data.DataLoader(
        samples, batch_size=4, collate_fn=PinnedPair, pin_memory=True
    )
    seen = []
    for batch in loader:
        assert isinstance(batch, PinnedPair)
        assert batch.images.is_pinned() and batch.labels.is_pinned()
        images = batch.images.to(DEVICE, non_blocking=True)
        assert torch.equal(images[:, 0].cpu(), batch.labels.float())
        seen += batch.labels.tolist()
    assert seen == list(range(8))
