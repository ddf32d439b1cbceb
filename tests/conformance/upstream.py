"""Reach PyTorch's own databases of operators, modules and optimizers.

The only place that imports `torch.testing._internal`. Importing that package
forbids plain writes to `torch.backends` flags for the whole process, which the
other tests of this repository need, so the permission is given back.
"""

import unittest
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

with warnings.catch_warnings():
    # It warns at import that packages are missing which nothing here uses.
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_methods_invocations as invocations
    from torch.testing._internal.autocast_test_lists import AutocastTestLists
    from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db
    from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.opinfo.core import ForeachFuncInfo, OpInfo, SampleInput

setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)

__all__ = [
    "SPARSE_LAYOUTS",
    "AutocastTestLists",
    "ModuleInfo",
    "ModuleInput",
    "OpInfo",
    "OptimizerInfo",
    "SampleInput",
    "dtypes_of",
    "entries",
    "error_cases",
    "foreach_entries",
    "module_db",
    "optim_db",
    "samples",
    "simple_sparse_tensors",
    "sparse_entries",
    "sparse_error_cases",
    "sparse_samples",
    "takes_out",
]

SPARSE_LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}


def entries() -> list[OpInfo]:
    """Return every entry of `op_db`, in upstream's order."""
    return list(invocations.op_db)


def foreach_entries() -> list[OpInfo]:
    """Return the entries for the `torch._foreach_*` functions, which `op_db` leaves out."""
    return [
        *invocations.foreach_unary_op_db,
        *invocations.foreach_binary_op_db,
        *invocations.foreach_pointwise_op_db,
        *invocations.foreach_reduce_op_db,
        *invocations.foreach_other_op_db,
    ]


def dtypes_of(entry: OpInfo) -> list[torch.dtype]:
    """Return the dtypes that CPU takes for `entry`, in a stable order."""
    return sorted(entry.supported_dtypes("cpu"), key=str)


def takes_out(entry: OpInfo) -> bool:
    """Say whether the operator has an `out=` variant that Python can call."""
    return entry.supports_out and not _is_foreach(entry)


def samples(
    entry: OpInfo, dtype: torch.dtype, requires_grad: bool, limit: int
) -> Iterator[SampleInput]:
    """Yield at most `limit` samples on CPU.

    `OpInfo.sample_inputs` wraps the same function with bookkeeping for upstream's own test
    classes, which takes longer than most operators do.
    """
    options: dict[str, Any] = {"noncontiguous": False} if _is_foreach(entry) else {}
    made = entry.sample_inputs_func(entry, "cpu", dtype, requires_grad, **options)
    yield from islice(made, limit)


def error_cases(entry: OpInfo) -> list[SampleInput]:
    """Return the arguments on CPU with which the operator has to raise."""
    if entry.error_inputs_func is None:
        return []
    return [case.sample_input for case in entry.error_inputs_func(entry, "cpu")]


def sparse_entries() -> list[OpInfo]:
    """Return the entries of `op_db` that declare a sparse layout."""
    return [
        entry
        for entry in entries()
        if any(entry.supports_sparse_layout(layout) for layout in SPARSE_LAYOUTS.values())
    ]


def simple_sparse_tensors(layout: torch.layout, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield upstream's sparse tensors on CPU: batched, hybrid, without elements, uncoalesced."""
    case = TestCase.__new__(TestCase)
    yield from case.generate_simple_inputs(layout, device="cpu", dtype=dtype)


def sparse_samples(
    entry: OpInfo, layout: torch.layout, dtype: torch.dtype, requires_grad: bool
) -> Iterator[SampleInput]:
    """Yield samples on CPU; an entry without sparse ones of its own takes single tensors."""
    try:
        yield from entry.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad)
    except unittest.SkipTest:  # the entry declares the layout and has no sample for it
        return
    except NotImplementedError:
        for tensor in simple_sparse_tensors(layout, dtype):
            yield SampleInput(tensor.requires_grad_(requires_grad))


def sparse_error_cases(entry: OpInfo, layout: torch.layout) -> list[SampleInput]:
    """Return the arguments on CPU of this layout with which the operator has to raise."""
    if entry.error_inputs_sparse_func is None:
        return []
    return [case.sample_input for case in entry.error_inputs_sparse("cpu", layout)]


def _is_foreach(entry: OpInfo) -> bool:
    return isinstance(entry, ForeachFuncInfo)
