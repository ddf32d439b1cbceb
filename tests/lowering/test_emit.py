"""Values and literals: what the program's own numbers are after a round trip through XLA."""

import math
from collections.abc import Callable

import pytest
import torch

from torchneuron.lowering import emit as e
from torchneuron.lowering.emit.module import Module
from torchneuron.lowering.emit.types import DTYPES
from torchneuron.runtime import xla


def run(body: Callable[..., e.Value], *tensors: torch.Tensor) -> torch.Tensor:
    """Run what `body` writes on these inputs."""
    inputs = [(tuple(each.shape), each.dtype) for each in tensors]
    with e.for_host(), Module.build(inputs) as builder:
        builder.finish([body(*builder.arguments)])
    executable = xla.compile_module(builder.module.text())
    buffers = [xla.import_dlpack(torch._C._to_dlpack(each.contiguous())) for each in tensors]
    (array,) = executable(buffers)
    return torch.from_dlpack(xla.export_dlpack(array, None))


# XLA:CPU hands out one-byte floats in no form that torch takes; these travel as bits.
PORTABLE = [dtype for dtype in DTYPES if not (dtype.is_floating_point and dtype.itemsize == 1)]


@pytest.mark.parametrize("dtype", PORTABLE, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 2), (9, 1)], ids=str)
def test_literals_keep_every_number(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).remainder(2).reshape(shape).to(dtype)
    assert torch.equal(run(lambda: e.literal(tensor)), tensor)


@pytest.mark.parametrize("dtype", PORTABLE, ids=str)
def test_full_of_one_number(dtype: torch.dtype) -> None:
    assert torch.equal(run(lambda: e.full((2, 3), 1, dtype)), torch.full((2, 3), 1, dtype=dtype))


def test_special_numbers() -> None:
    tensor = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 1e-45])
    found = run(lambda: e.literal(tensor))
    assert torch.equal(found.view(torch.int32), tensor.view(torch.int32))
    assert run(lambda: e.full((), -math.inf, torch.bfloat16)).item() == -math.inf
    assert run(lambda: e.full((), -1, torch.uint8)).item() == 255


def test_operators_broadcast_and_take_numbers() -> None:
    a, b = torch.randn(3, 1), torch.randn(4)
    torch.testing.assert_close(run(lambda a, b: 2 - a * b, a, b), 2 - a * b)
    torch.testing.assert_close(run(lambda a, b: 1 / (a + b), a, b), 1 / (a + b))
    assert torch.equal(run(lambda a, b: (a < b) | (a >= 1), a, b), (a < b) | (a >= 1))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.bool),
        (torch.complex64, torch.float32),
        (torch.int32, torch.complex64),
        (torch.float32, torch.bfloat16),
        (torch.bool, torch.int64),
        (torch.int64, torch.uint8),
    ],
    ids=str,
)
def test_conversions(source: torch.dtype, target: torch.dtype) -> None:
    tensor = torch.tensor([0.0, 0.25, 1.0, 3.0, 200.0]).to(source)
    expected = tensor.real if source.is_complex else tensor.to(target)
    assert torch.equal(run(lambda x: x.to(target), tensor), expected)


def test_the_text_of_a_module_depends_on_nothing_but_the_graph() -> None:
    def text(file: str) -> str:
        with Module.build([((2,), torch.float32)]) as builder:
            with builder.at("add", file, 3):
                result = builder.arguments[0] + 1
            builder.finish([result])
        return builder.module.text()

    assert text("one.py") == text("other.py")
    assert "one.py" not in text("one.py")


def test_a_module_names_source_lines_when_asked_and_has_a_portable_form() -> None:
    with Module.build([((2,), torch.float32)]) as builder:
        with builder.at("add", "train.py", 3):
            result = e.erf(builder.arguments[0] + 1)
        builder.finish([result])
    assert '"train.py":3' in builder.module.text(with_places=True)
    assert builder.module.portable().startswith(b"ML\xefR")
