"""Which devices may meet in indexing: indices may come from the CPU, what is indexed may not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from behaviour.subject import DEVICE, FIRST, SECOND

INDICES = {
    "numbers": torch.tensor([2, 0]),
    "mask": torch.tensor([True, False, True, False]),
    "matrix": torch.tensor([[0, 1], [3, 3]]),
}


def data(device: str) -> torch.Tensor:
    return torch.arange(8.0, device=device).reshape(4, 2)


def put(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    x[index] = values
    return x


# Each takes what is indexed, the index and the values.
READS: dict[str, Callable[..., Any]] = {
    "getitem": lambda x, i, v: x[i],
    "index": lambda x, i, v: torch.ops.aten.index(x, [i]),
    "unsafe": lambda x, i, v: torch.ops.aten._unsafe_index(x, [i]),
    "second": lambda x, i, v: x.t()[:, i],
}
WRITES: dict[str, Callable[..., Any]] = {
    "setitem": put,
    "index-put": lambda x, i, v: x.index_put((i,), v),
    "index-put-in-place": lambda x, i, v: x.index_put_((i,), v),
    "accumulate": lambda x, i, v: x.index_put_((i,), v, accumulate=True),
    "impl": lambda x, i, v: torch.ops.aten._index_put_impl_(x, [i], v),
    "unsafe-put": lambda x, i, v: torch.ops.aten._unsafe_index_put(x, [i], v),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("access", [*READS, *WRITES])
def test_indices_may_be_on_the_cpu_for_a_neuron_tensor(access: str, index: torch.Tensor) -> None:
    fn = (READS | WRITES)[access]
    if access.startswith("unsafe"):
        index = index.long()  # it takes no masks
    values = torch.tensor([5.0, 6.0])
    expected = fn(data("cpu"), index, values)
    for place in ("cpu", FIRST):
        result = fn(data(FIRST), index.to(place), values.to(FIRST))
        assert result.device == torch.device(FIRST) and torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("access", [*READS, *WRITES])
def test_neuron_indices_of_a_cpu_tensor_are_refused(access: str, index: torch.Tensor) -> None:
    x = data("cpu")
    with pytest.raises(RuntimeError, match=r"(?s)same device.*neuron:0.*hint: "):
        (READS | WRITES)[access](x, index.to(DEVICE), torch.zeros(2))
    assert torch.equal(x, data("cpu"))


@pytest.mark.parametrize("access", [*READS, *WRITES])
def test_indices_of_another_core_are_refused(access: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)same device.*neuron:.*hint: "):
        (READS | WRITES)[access](
            data(FIRST), torch.tensor([1], device=SECOND), torch.zeros(2, device=FIRST)
        )


@pytest.mark.parametrize("access", WRITES)
@pytest.mark.parametrize(("self_device", "values_device"), [("cpu", FIRST), (FIRST, "cpu")])
def test_values_are_where_the_tensor_is(access: str, self_device: str, values_device: str) -> None:
    x = data(self_device)
    index = torch.tensor([0, 1])
    with pytest.raises(RuntimeError, match=r"(?s)same device.*hint: "):
        WRITES[access](x, index, torch.ones(2, 2, device=values_device))
    assert torch.equal(x.cpu(), data("cpu"))


@pytest.mark.parametrize("access", WRITES)
def test_a_value_of_no_dimension_may_be_on_the_cpu(access: str) -> None:
    index = torch.tensor([0, 1])
    expected = WRITES[access](data("cpu"), index, torch.tensor(9.0))
    result = WRITES[access](data(FIRST), index, torch.tensor(9.0))
    assert torch.equal(result.cpu(), expected)


def test_a_cpu_tensor_of_no_dimension_is_not_moved_by_its_index() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)same device.*hint: "):
        torch.ops.aten.index(torch.tensor(1.0), [torch.tensor([True], device=DEVICE)])


def test_gradients_through_an_index_on_the_cpu() -> None:
    x = torch.ones(4, 2, device=DEVICE, requires_grad=True)
    x[torch.tensor([1, 1, 2])].sum().backward()
    assert x.grad.tolist() == [[0, 0], [2, 2], [1, 1], [0, 0]]
