"""Tell how a result on a device differs from CPU's."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from conformance.placement import CPU, members

_SAME_SIZE_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `values_only` when everything but the numbers agrees."""

    text: str
    values_only: bool = False


def difference(
    expected: Any, actual: Any, device: torch.device, *, exact: bool, where: str = "result"
) -> Difference | None:
    """Compare two results, the first of them computed on CPU.

    Args:
        expected: Nested tuples, lists and dicts of tensors and plain values.
        actual: The same from the device under test.
        device: Where the tensors of `actual` have to be if those of `expected` are on CPU.
        exact: Ask for equal bits (any NaN equals any NaN); else for
            `torch.testing.assert_close` at its default tolerances. A kind of
            exception has to agree in both cases.
        where: Path of the value, for the message.

    Returns:
        The first difference, or None.
    """
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        found = _metadata(expected, actual, device, where)
        return found or _values(expected, actual, exact, where)
    if type(expected) is not type(actual):
        return Difference(f"{where}: {_name(expected)} expected, {_name(actual)} found")
    if isinstance(expected, PackedSequence):
        # Batch sizes stay on CPU wherever the data is.
        expected, actual = (
            {**part._asdict(), "batch_sizes": part.batch_sizes.tolist()}
            for part in (expected, actual)
        )
    if isinstance(expected, dict):
        if expected.keys() != actual.keys():
            return Difference(f"{where}: keys {list(expected)} expected, {list(actual)} found")
        pairs = [(f"{where}[{key!r}]", expected[key], actual[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if len(expected) != len(actual):
            return Difference(f"{where}: length {len(expected)} expected, {len(actual)} found")
        rows = zip(expected, actual, strict=True)
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(rows)]
    else:
        return _plain(expected, actual, device, exact, where)
    by_severity: Difference | None = None
    for path, one, other in pairs:
        found = difference(one, other, device, exact=exact, where=path)
        if found and not found.values_only:
            return found
        by_severity = by_severity or found
    return by_severity


def same_bits(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Say whether two CPU tensors hold the same bits, any NaN being equal to any NaN."""
    one, other = _plain_memory(expected), _plain_memory(actual)
    if one.numel() == 0 or torch.equal(one.view(torch.uint8), other.view(torch.uint8)):
        return True
    if not one.is_floating_point():
        return False
    integer = _SAME_SIZE_INTEGER[one.element_size()]
    same = one.view(integer) == other.view(integer)
    return bool((same | (_is_nan(one) & _is_nan(other))).all())


def _plain_memory(tensor: torch.Tensor) -> torch.Tensor:
    data = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = data.as_strided((data.numel(),), (1,))  # reshape(-1) keeps the stride of one element
    return torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat


def _is_nan(tensor: torch.Tensor) -> torch.Tensor:
    return torch.isnan(tensor.float() if tensor.element_size() == 1 else tensor)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _metadata(
    expected: torch.Tensor, actual: torch.Tensor, device: torch.device, where: str
) -> Difference | None:
    wanted_device = device if expected.device == CPU else expected.device
    facts: list[tuple[str, Any, Any]] = [
        ("class", type(expected), type(actual)),
        ("device", wanted_device.type, actual.device.type),
        ("dtype", expected.dtype, actual.dtype),
        ("layout", expected.layout, actual.layout),
        ("requires_grad", expected.requires_grad, actual.requires_grad),
        ("is_conj", expected.is_conj(), actual.is_conj()),
        ("is_neg", expected.is_neg(), actual.is_neg()),
        ("is_nested", expected.is_nested, actual.is_nested),
    ]
    if not expected.is_nested:
        facts.append(("shape", tuple(expected.shape), tuple(actual.shape)))
    if expected.layout == torch.strided and not expected.is_nested:
        facts.append(("strides", expected.stride(), actual.stride()))
        facts.append(("storage offset", expected.storage_offset(), actual.storage_offset()))
    if expected.layout == actual.layout and _is_sparse(expected):
        facts += _sparse_facts(expected, actual, wanted_device)
    for fact, wanted, found in facts:
        if wanted != found:
            return Difference(f"{where}: {fact} {wanted} expected, {found} found")
    return None


def _is_sparse(tensor: torch.Tensor) -> bool:
    return tensor.layout not in (torch.strided, torch.jagged, torch._mkldnn)


def _sparse_facts(
    expected: torch.Tensor, actual: torch.Tensor, device: torch.device
) -> list[tuple[str, Any, Any]]:
    facts: list[tuple[str, Any, Any]] = [
        ("sparse dimensions", expected.sparse_dim(), actual.sparse_dim()),
        ("dense dimensions", expected.dense_dim(), actual.dense_dim()),
    ]
    if expected.layout == torch.sparse_coo:
        facts.append(("coalesced", expected.is_coalesced(), actual.is_coalesced()))
    for place, (one, other) in enumerate(zip(members(expected), members(actual), strict=True)):
        facts += [
            (f"dtype of member {place}", one.dtype, other.dtype),
            (f"device of member {place}", device.type, other.device.type),
            (f"shape of member {place}", one.shape, other.shape),
            (f"strides of member {place}", one.stride(), other.stride()),
        ]
    return facts


def _values(
    expected: torch.Tensor, actual: torch.Tensor, exact: bool, where: str
) -> Difference | None:
    if expected.device.type == "meta":
        return None
    try:
        return _moved_values(expected.detach(), actual.detach().cpu(), exact, where)
    except (RuntimeError, NotImplementedError) as error:
        return Difference(f"{where}: reading the values back raised {error}")


def _moved_values(
    expected: torch.Tensor, actual: torch.Tensor, exact: bool, where: str
) -> Difference | None:
    parts = zip(_parts(expected), _parts(actual), strict=True)
    for one, other in parts:
        if one.shape != other.shape:
            return Difference(f"{where}: inner shape {one.shape} expected, {other.shape} found")
        if exact and not same_bits(one, other):
            return Difference(f"{where}: {_largest_gap(one, other)}", values_only=True)
        if not exact:
            try:
                torch.testing.assert_close(other, one, equal_nan=True, check_stride=False)
            except AssertionError as error:
                lines = " ".join(str(error).split())
                return Difference(f"{where}: {lines}", values_only=True)
    return None


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that a sparse or nested tensor consists of."""
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.is_quantized:
        return [tensor.int_repr()]
    return members(tensor) if _is_sparse(tensor) else [tensor]


def _largest_gap(expected: torch.Tensor, actual: torch.Tensor) -> str:
    if expected.dtype == torch.bool or not (expected.is_floating_point() or expected.is_complex()):
        count = int((expected != actual).sum())
        return f"{count} of {expected.numel()} values differ"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    gap = (expected.to(wide) - actual.to(wide)).abs()
    largest = float(gap.nan_to_num(nan=float("inf")).max())
    return f"values differ, by up to {largest:.3g}"


def _plain(
    expected: Any, actual: Any, device: torch.device, exact: bool, where: str
) -> Difference | None:
    if isinstance(expected, torch.device):
        wanted = device.type if expected == CPU else expected.type
        if wanted == actual.type:
            return None
    elif isinstance(expected, float | complex):
        if expected == actual or (expected != expected and actual != actual):
            return None
        if not exact and torch.isclose(torch.tensor(expected), torch.tensor(actual)):
            return None
        return Difference(f"{where}: {expected} expected, {actual} found", values_only=True)
    elif bool(expected == actual):
        return None
    values_only = isinstance(expected, int) and not isinstance(expected, bool)
    return Difference(f"{where}: {expected} expected, {actual} found", values_only)
