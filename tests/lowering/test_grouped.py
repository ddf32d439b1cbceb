"""Products by group equal a loop over the groups, whatever the groups are."""

import pytest
import torch

from torchneuron.lowering import decompose, grouped

# Where each of four groups of sixteen rows ends.
GROUPS = {
    "even": [4, 8, 12, 16],
    "one": [16, 16, 16, 16],
    "last": [0, 0, 0, 16],
    "empty_between": [3, 3, 11, 16],
    "ends_early": [2, 5, 5, 9],
    "nothing": [0, 0, 0, 0],
}


def loop(rows: torch.Tensor, weight: torch.Tensor, ends: list[int]) -> torch.Tensor:
    made = rows.new_zeros(rows.shape[0], weight.shape[2])
    begin = 0
    for group, end in enumerate(ends):
        made[begin:end] = rows[begin:end] @ weight[group]
        begin = end
    return made


@pytest.mark.parametrize("ends", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_equal_a_loop(ends: list[int], dtype: torch.dtype) -> None:
    rows, weight = torch.randn(16, 5), torch.randn(4, 5, 3)
    made = grouped.rows_by_group(rows, weight, torch.tensor(ends, dtype=dtype))
    torch.testing.assert_close(made, loop(rows, weight, ends))


@pytest.mark.parametrize("ends", GROUPS.values(), ids=GROUPS)
def test_gradients_equal_a_loop(ends: list[int]) -> None:
    rows = torch.randn(16, 5, requires_grad=True)
    weight = torch.randn(4, 5, 3, requires_grad=True)
    gradient = torch.randn(16, 3)
    loop(rows, weight, ends).backward(gradient)
    offs = torch.tensor(ends)
    backward = grouped._FOREIGN["transformers.grouped_mm_fallback_backward"]
    made = backward(rows.detach(), weight.detach(), offs, gradient)
    torch.testing.assert_close(made, (rows.grad, weight.grad))


@pytest.mark.parametrize(("num_rows", "num_groups"), [(1, 4), (7, 1), (0, 3), (5, 8), (33, 2)])
def test_any_number_of_rows_and_groups(num_rows: int, num_groups: int) -> None:
    rows, weight = torch.randn(num_rows, 5), torch.randn(num_groups, 5, 3)
    ends = torch.randint(num_rows + 1, (num_groups,)).sort().values
    made = grouped.rows_by_group(rows, weight, ends)
    torch.testing.assert_close(made, loop(rows, weight, ends.tolist()))


@pytest.mark.parametrize("ends", [GROUPS["even"], GROUPS["empty_between"]])
@pytest.mark.parametrize(
    ("left", "right"),
    [((16, 8), (4, 8, 24)), ((4, 24, 8), (8, 16)), ((24, 16), (16, 8)), ((4, 8, 16), (4, 16, 8))],
    ids=["rows", "columns", "inner", "batches"],
)
def test_each_form_of_grouped_mm_equals_the_cpus(
    left: tuple[int, ...], right: tuple[int, ...], ends: list[int]
) -> None:
    one, other = torch.randn(left).bfloat16(), torch.randn(right).bfloat16()
    is_batched = len(left) == len(right) == 3
    offs = None if is_batched else torch.tensor(ends, dtype=torch.int32)
    expected = torch._grouped_mm(one, other, offs=offs)
    made = grouped.grouped_mm(one, other, offs)
    assert made.dtype == expected.dtype and made.shape == expected.shape
    torch.testing.assert_close(made, expected, rtol=2e-2, atol=2e-2)


def test_operators_of_a_loaded_library_are_taken_apart() -> None:
    import transformers.integrations.moe  # noqa: F401 (its import registers the operators)

    names = {str(target) for target in grouped.foreign()}
    assert "transformers.grouped_mm_fallback.default" in names
    assert torch.ops.aten._grouped_mm.default in decompose.decompositions()


def test_compiled_groups_stay_in_the_program() -> None:
    import torchneuron

    def fn(rows: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(rows, weight, offs=offs).float().square().sum()

    rows = torch.randn(16, 8).bfloat16().requires_grad_()
    weight = torch.randn(4, 8, 24).bfloat16().requires_grad_()
    offs = torch.tensor(GROUPS["empty_between"], dtype=torch.int32)
    fn(rows, weight, offs).backward()
    moved = [each.detach().to("neuron").requires_grad_() for each in (rows, weight)]
    torch._dynamo.reset()
    with torchneuron.explain() as report:
        torch.compile(fn, backend="neuron")(*moved, offs.to("neuron")).backward()
    report.assert_no("host_fallback")
    for one, other in zip(moved, (rows, weight), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=5e-2, atol=5e-2)


def test_the_number_of_rows_may_be_dynamic() -> None:
    import transformers.integrations.moe  # noqa: F401 (its import registers the operators)

    import torchneuron

    def fn(rows: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return torch.ops.transformers.grouped_mm_fallback(rows, weight, offs)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    call = torch.compile(fn, backend="neuron", dynamic=True)
    weight = torch.randn(4, 8, 24)
    with torchneuron.explain() as report:
        for num_rows in (5, 9, 16):
            rows, ends = torch.randn(num_rows, 8), [2, 2, 4, num_rows]
            inputs = [each.to("neuron") for each in (rows, weight, torch.tensor(ends))]
            torch.testing.assert_close(call(*inputs).cpu(), loop(rows, weight, ends))
    report.assert_no("host_fallback")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 1
