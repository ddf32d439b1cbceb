"""The operations that `bench_eager_ops.py` measures; each builder makes them for one device."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Case = Callable[[], object]
Build = Callable[[torch.device], Case]


def _random(device: torch.device, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)


def _unary(op: Callable[[Tensor], object], *shape: int) -> Build:
    def build(device: torch.device) -> Case:
        x = _random(device, *shape)
        return lambda: op(x)

    return build


def _binary(op: Callable[[Tensor, Tensor], object], *shape: int) -> Build:
    def build(device: torch.device) -> Case:
        x, y = _random(device, *shape), _random(device, *shape)
        return lambda: op(x, y)

    return build


def _addmm(device: torch.device) -> Case:
    bias, x, y = _random(device, 32), _random(device, 32, 32), _random(device, 32, 32)
    return lambda: torch.addmm(bias, x, y)


def _layer_norm(rows: int, width: int) -> Build:
    def build(device: torch.device) -> Case:
        x, weight, bias = _random(device, rows, width), *_random(device, 2, width)
        return lambda: functional.layer_norm(x, (width,), weight, bias)

    return build


def _linear(rows: int, width: int) -> Build:
    def build(device: torch.device) -> Case:
        x, weight = _random(device, rows, width), _random(device, width, width)
        bias = _random(device, width)
        return lambda: functional.linear(x, weight, bias)

    return build


def _where(device: torch.device) -> Case:
    x, y = _random(device, 16), _random(device, 16)
    mask = x > 0.5
    return lambda: torch.where(mask, x, y)


def _empty(device: torch.device) -> Case:
    return lambda: torch.empty(16, device=device)


def _zeros(device: torch.device) -> Case:
    return lambda: torch.zeros(16, device=device)


def _sdpa(heads: int, length: int) -> Build:
    def build(device: torch.device) -> Case:
        q, k, v = _random(device, 3, 1, heads, length, 32)
        return lambda: functional.scaled_dot_product_attention(q, k, v)

    return build


def _conv(device: torch.device) -> Case:
    images, weight = _random(device, 1, 8, 16, 16), _random(device, 16, 8, 3, 3)
    return lambda: functional.conv2d(images, weight, padding=1)


def _index_select(device: torch.device) -> Case:
    x, index = _random(device, 64, 16), torch.arange(0, 64, 4).to(device)
    return lambda: torch.index_select(x, 0, index)


def _backward(device: torch.device) -> Case:
    x = _random(device, 16).requires_grad_()

    def step() -> None:
        x.grad = None
        (x * x).sum().backward()

    return step


SMALL: dict[str, Build] = {
    "add_ 1": _binary(Tensor.add_, 1),
    "add 16": _binary(torch.add, 16),
    "mul scalar 16": _unary(lambda x: x * 2.5, 16),
    "sub 16": _binary(torch.sub, 16),
    "mm 32x32": _binary(torch.mm, 32, 32),
    "addmm 32x32": _addmm,
    "layer_norm 8x64": _layer_norm(8, 64),
    "softmax 8x64": _unary(lambda x: torch.softmax(x, -1), 8, 64),
    "gelu 8x64": _unary(functional.gelu, 8, 64),
    "linear 8x64": _linear(8, 64),
    "sum 16": _unary(torch.sum, 16),
    "mean dim 8x64": _unary(lambda x: x.mean(1), 8, 64),
    "cat 2x16": _binary(lambda x, y: torch.cat((x, y)), 16),
    "where 16": _where,
    "view": _unary(lambda x: x.view(4, 4), 16),
    "transpose": _unary(lambda x: x.transpose(0, 1), 8, 64),
    "slice": _unary(lambda x: x[2:6], 8, 64),
    "permute": _unary(lambda x: x.permute(1, 0, 2), 4, 4, 4),
    "expand": _unary(lambda x: x.expand(8, 64), 1, 64),
    "contiguous copy 8x64": _unary(lambda x: x.t().contiguous(), 8, 64),
    "clone 16": _unary(torch.clone, 16),
    "empty 16": _empty,
    "zeros 16": _zeros,
    "item": _unary(Tensor.item, 1),
    "copy_ 16": _binary(Tensor.copy_, 16),
    "sdpa 4x16x32": _sdpa(4, 16),
    "conv2d 3x3": _conv,
    "index_select 16 of 64": _index_select,
    "add 1M": _binary(torch.add, 2**20),
    "add_ 1M": _unary(lambda x: x.add_(1.0), 2**20),
    "relu 1M": _unary(torch.relu, 2**20),
    "cumsum 16": _unary(lambda x: x.cumsum(0), 16),
    "atan 16": _unary(torch.atan, 16),
    "frac 16": _unary(torch.frac, 16),
    "logaddexp 16": _binary(torch.logaddexp, 16),
    "tril 8x8": _unary(torch.tril, 8, 8),
    "trace 8x8": _unary(torch.trace, 8, 8),
    "backward 16": _backward,
    "atan 64K": _unary(torch.atan, 2**16),
    "frac 1M": _unary(torch.frac, 2**20),
    "sgn_ 1": _unary(Tensor.sgn_, 1),
}

# The same operations over sizes: where the cost of a call ends and that of its work begins.
SIZES: dict[str, Build] = {
    **{f"add {size}": _binary(torch.add, size) for size in (256, 2**12, 2**16, 2**18)},
    **{f"add_ {size}": _binary(Tensor.add_, size) for size in (256, 2**12, 2**16)},
    **{f"mm {size}x{size}": _binary(torch.mm, size, size) for size in (8, 128, 512)},
    **{
        f"softmax {rows}x256": _unary(lambda x: torch.softmax(x, -1), rows, 256)
        for rows in (1, 64, 1024)
    },
    **{f"layer_norm {rows}x256": _layer_norm(rows, 256) for rows in (1, 64, 1024)},
    **{f"linear {rows}x256": _linear(rows, 256) for rows in (1, 64, 512)},
    **{f"sdpa 8x{length}x32": _sdpa(8, length) for length in (8, 64, 256)},
    **{f"clone {size}": _unary(torch.clone, size) for size in (2**12, 2**16, 2**20)},
    **{f"sum {size}": _unary(torch.sum, size) for size in (2**12, 2**20)},
}
