"""The section of docs/reference/ops.md on operators with sparse tensors: how each would run there.

Every operator that PyTorch's CPU has for a sparse layout is listed; one that nothing is known of
here ends the generation.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

KEYS = {"SparseCPU": "COO", "SparseCsrCPU": "compressed"}
MEMBERS = "its members, nothing to compute"
VALUES = "as the dense operator, on the values"
ROWS = "rows gathered, combined and added up by row"
JOINED = "on the values where the places are the same, else on the host"
HOST = "host: how many entries there will be, only the data knows"
SOLVE = "host: one row after the other"
_FORMS = {
    MEMBERS: (
        "_coalesced_ _dimI _dimV _indices _nnz _pin_memory _values ccol_indices cat clone "
        "_sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors col_indices copy "
        "copy_sparse_to_sparse crow_indices dense_dim empty empty_like indices is_coalesced "
        "is_pinned permute resize resize_as_sparse row_indices sparse_dim sparse_resize "
        "sparse_resize_and_clear unsqueeze values view_as_complex view_as_real zeros"
    ),
    VALUES: (
        "_conj_physical abs angle any asin asinh atan atanh ceil conj_physical deg2rad div erf "
        "erfinv expm1 fill floor floor_divide frac isinf isnan isneginf isposinf log1p nan_to_num "
        "native_norm neg norm normal pow rad2deg relu round sgn sign signbit sin sinh sqrt tan "
        "tanh threshold_backward trunc zero"
    ),
    ROWS: (
        "_sparse_csr_prod _sparse_csr_sum _sparse_log_softmax _sparse_log_softmax_backward_data "
        "_sparse_mask_projection _sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward "
        "_sparse_softmax _sparse_softmax_backward_data _sparse_sum_backward _to_dense addmm addmv "
        "bmm mm mv select select_copy sparse_mask sparse_sampled_addmm sum"
    ),
    JOINED: "add mul sub",
    HOST: (
        "_coalesce _sparse_broadcast_to _sparse_sparse_matmul _to_sparse _to_sparse_bsc "
        "_to_sparse_bsr _to_sparse_csc _to_sparse_csr hspmm index_select narrow_copy sspaddmm"
    ),
    SOLVE: "triangular_solve",
}
FORM = {name: form for form, names in _FORMS.items() for name in names.split()}
NOTE = """\
A program takes no sparse tensor; it takes the members of one, with room for a fixed number of
entries (`torchneuron.sparse.matrix(tensor, capacity=...)`), and `torchneuron.sparse.mm` multiplies
with them. What runs eagerly runs PyTorch's CPU kernel on the device's memory here; the table says
what it would be on the chip. Single elements are slow to gather there (1.35 GB/s of bfloat16) and
to scatter (0.8 GB/s); adding whole rows by index is not (99 GB/s; all three measured by others:
README of whn09/xpu-perf for Neuron, 2026-09-01). The vendor's package has no statement on sparse
tensors for PyTorch, and its JAX page says that they are not supported: the target
`torch_neuronx_2_33` refuses them by the category `sparse`."""


class Row(NamedTuple):
    """One operator: its name, the layouts that have it, and how it would run."""

    name: str
    layouts: str
    form: str


def rows() -> list[Row]:
    """Return a row for each operator with a kernel for a sparse layout; in-place ones with theirs.

    Raises:
        ValueError: PyTorch has one that is not in the table, or the table one that it has not.
    """
    found: dict[str, set[str]] = {}
    for name, layout in _kernels():
        base = name if name in FORM else name.removesuffix("_")
        found.setdefault(base, set()).add(layout)
    if found.keys() != FORM.keys():
        raise ValueError(
            f"sparse operators without a form, or without a kernel: "
            f"{sorted(found.keys() ^ FORM.keys())}"
        )
    return [Row(name, ", ".join(sorted(found[name])), FORM[name]) for name in sorted(found)]


def _kernels() -> Iterator[tuple[str, str]]:
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        for key, layout in KEYS.items():
            if namespace == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                yield rest.partition(".")[0], layout
