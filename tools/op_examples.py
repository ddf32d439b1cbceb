"""Arguments for one call of each ATen overload whose schema alone does not tell them.

`tools/ops_page.py` lowers these calls. An overload that is in no row gets small float32 tensors.
"""

from typing import Any

import torch

from torchneuron.lowering.registry import qualified

Example = tuple[tuple[Any, ...], dict[str, Any]]


def f(*shape: int) -> torch.Tensor:
    """Make a float32 tensor of positive numbers below one."""
    return torch.linspace(0.1, 0.9, max(torch.Size(shape).numel(), 1)).reshape(shape)


def i(*shape: int, top: int = 2) -> torch.Tensor:
    """Make an int64 tensor of valid indices below `top`."""
    return torch.arange(torch.Size(shape).numel()).remainder(top).reshape(shape)


def b(*shape: int) -> torch.Tensor:
    return i(*shape).bool()


def c(*shape: int) -> torch.Tensor:
    return torch.complex(f(*shape), f(*shape))


def n(*shape: int) -> torch.Tensor:
    """Make an int32 tensor, for operators of integers."""
    return i(*shape).int()


X, ROW, IMAGE, VOLUME, SIGNAL = f(2, 4), f(4), f(1, 2, 4, 4), f(1, 2, 4, 4, 4), f(1, 2, 4)
CHANNEL, BAGS = f(2), torch.tensor([0, 1, 1])
MASK2, MASK3 = [True, True], [True, True, True]

_ROWS: list[tuple[str, tuple[Any, ...]]] = [
    # -- activation, comparison
    ("glu", (X, 1)),
    ("glu_backward", (f(2, 2), X, 1)),
    ("rrelu_with_noise_backward", (X, X, X, 0.1, 0.3, False, False)),
    ("clamp", (X, 0.2, 0.8)),
    ("clamp.Tensor", (X, X, X)),
    ("where.self", (b(2, 4), X, X)),
    ("where.ScalarSelf", (b(2, 4), 1.0, X)),
    ("where.ScalarOther", (b(2, 4), X, 1.0)),
    ("where.Scalar", (b(2, 4), 1.0, 0.0)),
    ("masked_fill.Scalar", (X, b(2, 4), 0.0)),
    ("masked_fill.Tensor", (X, b(2, 4), f())),
    ("div.Tensor_mode", (X, X)),
    ("div.Scalar_mode", (X, 2.0)),
    ("bitwise_not", (n(2, 4),)),
    (
        "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_left_shift.Tensor "
        "bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor",
        (n(2, 4), n(2, 4)),
    ),
    (
        "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar bitwise_left_shift.Tensor_Scalar "
        "bitwise_right_shift.Tensor_Scalar __lshift__.Scalar __rshift__.Scalar",
        (n(2, 4), 1),
    ),
    (
        "bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor "
        "bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Scalar_Tensor",
        (1, n(2, 4)),
    ),
    ("polygamma", (1, X)),
    ("round.decimals", (X,)),
    # -- complex
    ("view_as_real _conj imag", (c(2, 4),)),
    ("view_as_complex", (f(4, 2),)),
    ("_fft_c2c", (c(2, 4), [1], 0, True)),
    ("_fft_r2c", (X, [1], 0, True)),
    ("_fft_c2r", (c(2, 3), [1], 0, 4)),
    # -- reductions, softmax, scans
    (
        "sum.dim_IntList mean.dim logsumexp amax amin count_nonzero.dim_IntList any.dims all.dims",
        (X, [1]),
    ),
    ("prod.dim_int any.dim all.dim max.dim min.dim argmax argmin _safe_softmax", (X, 1)),
    ("cumsum cumprod cummax cummin logcumsumexp median.dim nanmedian.dim", (X, 1)),
    ("var.dim", (X, [1])),
    ("var.correction var_mean.correction std.correction std_mean.correction", (X, [1])),
    ("linalg_vector_norm", (X, 2)),
    ("_softmax _log_softmax", (X, 1, False)),
    ("_softmax_backward_data _log_softmax_backward_data", (X, X, 1, torch.float32)),
    # -- attention, norms
    (
        "_scaled_dot_product_flash_attention_for_cpu",
        (f(1, 2, 4, 8), f(1, 2, 4, 8), f(1, 2, 4, 8)),
    ),
    (
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        (*[f(1, 2, 4, 8)] * 5, f(1, 2, 4), 0.0, False),
    ),
    ("native_layer_norm", (X, [4], ROW, ROW, 1e-5)),
    ("native_layer_norm_backward", (X, X, [4], f(2, 1), f(2, 1), ROW, ROW, MASK3)),
    ("rms_norm", (X, [4], ROW)),
    ("_fused_rms_norm", (X, [4], ROW, 1e-5)),
    ("_fused_rms_norm_backward", (X, X, [4], f(2, 1), ROW, MASK2)),
    ("native_group_norm", (IMAGE, CHANNEL, CHANNEL, 1, 2, 16, 1, 1e-5)),
    (
        "native_group_norm_backward",
        (IMAGE, IMAGE, f(1, 1), f(1, 1), CHANNEL, 1, 2, 16, 1, MASK3),
    ),
    ("native_batch_norm", (IMAGE, *[CHANNEL] * 4, False, 0.1, 1e-5)),
    ("_native_batch_norm_legit_functional", (IMAGE, *[CHANNEL] * 4, True, 0.1, 1e-5)),
    ("_native_batch_norm_legit.no_stats", (IMAGE, CHANNEL, CHANNEL, True, 0.1, 1e-5)),
    (
        "_native_batch_norm_legit_no_training _batch_norm_no_update "
        "_batch_norm_with_update_functional",
        (IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL, 0.1, 1e-5),
    ),
    (
        "native_batch_norm_backward",
        (IMAGE, IMAGE, *[CHANNEL] * 5, True, 1e-5, MASK3),
    ),
    (
        "batch_norm_backward",
        (IMAGE, IMAGE, *[CHANNEL] * 5, True, 1e-5, MASK3, torch.empty(0, dtype=torch.uint8)),
    ),
    # -- casts, creation
    ("_to_copy", (X,)),
    ("prims.convert_element_type", (X, torch.float16)),
    ("view.dtype view_copy.dtype", (X, torch.int32)),
    ("empty.memory_format ones zeros", ([2, 4],)),
    ("full", ([2, 4], 1.0)),
    ("new_full", (X, [2, 4], 1.0)),
    ("new_ones new_zeros new_empty", (X, [2, 4])),
    ("empty_strided empty_permuted", ([2, 4], [4, 1])),
    ("empty_permuted", ([2, 4], [0, 1])),
    ("new_empty_strided", (X, [2, 4], [4, 1])),
    ("arange", (4,)),
    ("arange.start arange.start_step", (1, 4)),
    ("eye", (3,)),
    ("eye.m", (3, 4)),
    ("scalar_tensor", (1.0,)),
    # -- index, scatter
    ("index.Tensor _unsafe_index.Tensor", (X, [i(3)])),
    ("index_select", (X, 0, i(3))),
    ("gather", (X, 0, i(2, 4))),
    ("take", (X, i(3))),
    ("embedding", (f(5, 4), i(3))),
    ("embedding_dense_backward", (f(3, 4), i(3), 5, -1, False)),
    ("_embedding_bag _embedding_bag_forward_only", (f(5, 4), i(3), i(2))),
    (
        "_embedding_bag_backward",
        (X, i(3), i(2), BAGS, i(2), i(2), 5, False, 0, False, None),
    ),
    ("_embedding_bag_per_sample_weights_backward", (X, f(5, 4), i(3), i(2), BAGS, 0)),
    ("index_put _unsafe_index_put", (X, [i(2)], f(2, 4))),
    ("put", (X, i(3), f(3))),
    ("scatter.src scatter_add", (X, 0, i(2, 4), X)),
    ("scatter.value", (X, 0, i(2, 4), 1.0)),
    ("scatter.reduce", (X, 0, i(2, 4), X)),
    ("scatter.value_reduce", (X, 0, i(2, 4), 2.0)),
    ("scatter_reduce.two", (X, 0, i(2, 4), X, "sum")),
    ("index_add index_copy", (X, 0, i(2), X)),
    ("index_fill.int_Scalar", (X, 0, i(2), 1.0)),
    ("index_fill.int_Tensor", (X, 0, i(2), f())),
    ("index_reduce", (X, 0, i(2), X, "amax")),
    ("masked_scatter", (X, b(2, 4), X)),
    ("masked_scatter_backward", (X, b(2, 4), [4])),
    # -- products, losses
    ("mm", (f(2, 3), f(3, 4))),
    ("bmm", (f(2, 3, 4), f(2, 4, 5))),
    ("mv", (X, ROW)),
    ("dot vdot", (ROW, ROW)),
    ("_int_mm", (torch.ones(32, 8, dtype=torch.int8), torch.ones(8, 8, dtype=torch.int8))),
    ("addmm", (f(2, 4), f(2, 3), f(3, 4))),
    ("addmv", (f(2), X, ROW)),
    ("baddbmm", (f(2, 3, 5), f(2, 3, 4), f(2, 4, 5))),
    ("addbmm", (f(3, 5), f(2, 3, 4), f(2, 4, 5))),
    ("_trilinear", (X, X, X, [], [], [], [1])),
    ("_cdist_forward", (X, X, 2.0, None)),
    ("_cdist_backward", (f(2, 2), X, X, 2.0, f(2, 2))),
    ("_pdist_forward", (X,)),
    ("_pdist_backward", (f(1), X, 2.0, f(1))),
    ("nll_loss_forward", (X, i(2), None, 1, -100)),
    ("nll_loss_backward", (f(), X, i(2), None, 1, -100, f())),
    ("nll_loss2d_forward", (IMAGE, i(1, 4, 4), None, 1, -100)),
    ("nll_loss2d_backward", (f(), IMAGE, i(1, 4, 4), None, 1, -100, f())),
    # -- convolution, pooling, resampling, padding
    ("convolution", (IMAGE, f(2, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    (
        "convolution_backward",
        (IMAGE, IMAGE, f(2, 2, 3, 3), [2], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, MASK3),
    ),
    ("max_pool2d_with_indices avg_pool2d", (IMAGE, [2, 2])),
    ("max_pool3d_with_indices avg_pool3d", (VOLUME, [2, 2, 2])),
    (
        "max_pool2d_with_indices_backward",
        (f(1, 2, 2, 2), IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False, i(1, 2, 2, 2)),
    ),
    (
        "max_pool3d_with_indices_backward",
        (
            *(f(1, 2, 2, 2, 2), VOLUME, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False),
            i(1, 2, 2, 2, 2),
        ),
    ),
    ("avg_pool2d_backward", (f(1, 2, 2, 2), IMAGE, [2, 2], [2, 2], [0, 0], False, True, None)),
    (
        "avg_pool3d_backward",
        (f(1, 2, 2, 2, 2), VOLUME, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None),
    ),
    ("_adaptive_avg_pool2d adaptive_max_pool2d", (IMAGE, [2, 2])),
    ("_adaptive_avg_pool3d adaptive_max_pool3d", (VOLUME, [2, 2, 2])),
    ("_adaptive_avg_pool2d_backward", (f(1, 2, 2, 2), IMAGE)),
    ("_adaptive_avg_pool3d_backward", (f(1, 2, 2, 2, 2), VOLUME)),
    ("adaptive_max_pool2d_backward", (f(1, 2, 2, 2), IMAGE, i(1, 2, 2, 2))),
    ("adaptive_max_pool3d_backward", (f(1, 2, 2, 2, 2), VOLUME, i(1, 2, 2, 2, 2))),
    ("adaptive_avg_pool1d avg_pool1d", (SIGNAL, [2])),
    ("_upsample_bilinear2d_aa _upsample_bicubic2d_aa", (IMAGE, [2, 2], False)),
    (
        "_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward",
        (f(1, 2, 2, 2), [2, 2], [1, 2, 4, 4], False),
    ),
    ("upsample_bilinear2d.vec", (IMAGE, [8, 8], False, None)),
    ("upsample_nearest2d.vec", (IMAGE, [8, 8], None)),
    ("grid_sampler_2d", (IMAGE, f(1, 2, 2, 2), 0, 0, False)),
    ("col2im", (f(1, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])),
    ("constant_pad_nd", (X, [1, 1])),
    ("reflection_pad1d replication_pad1d", (SIGNAL, [1, 1])),
    ("reflection_pad1d_backward replication_pad1d_backward", (f(1, 2, 6), SIGNAL, [1, 1])),
    ("reflection_pad2d replication_pad2d", (IMAGE, [1] * 4)),
    ("reflection_pad2d_backward replication_pad2d_backward", (f(1, 2, 6, 6), IMAGE, [1] * 4)),
    ("reflection_pad3d replication_pad3d", (VOLUME, [1] * 6)),
    (
        "reflection_pad3d_backward replication_pad3d_backward",
        (f(1, 2, 6, 6, 6), VOLUME, [1] * 6),
    ),
    # -- shape
    ("narrow_copy", (X, 1, 1, 2)),
    ("select.int", (X, 0, 1)),
    ("split.Tensor unsafe_split.Tensor", (X, 2, 1)),
    ("split_with_sizes split_with_sizes_copy unsafe_split_with_sizes", (X, [1, 3], 1)),
    ("cat stack", ([X, X],)),
    ("slice_scatter", (X, f(2, 2), 1, 0, 2)),
    ("select_scatter", (X, ROW, 0, 1)),
    ("slice_backward", (f(2, 2), [2, 4], 1, 0, 2, 1)),
    ("select_backward", (ROW, [2, 4], 0, 1)),
    ("diagonal_scatter", (X, f(2))),
    ("view view_copy reshape _unsafe_view", (X, [4, 2])),
    ("_reshape_alias", (X, [4, 2], [2, 1])),
    ("as_strided as_strided_copy", (X, [2, 2], [4, 1])),
    ("as_strided_scatter", (X, f(2, 2), [2, 2], [4, 1])),
    ("expand", (f(1, 4), [2, 4])),
    ("permute permute_copy", (X, [1, 0])),
    ("squeeze.dim", (f(1, 4), 0)),
    ("squeeze.dims", (f(1, 4), [0])),
    ("unsqueeze", (X, 0)),
    ("transpose.int", (X, 0, 1)),
    ("repeat", (X, [2, 1])),
    ("flip", (X, [1])),
    ("roll", (X, [1], [1])),
    ("unfold", (X, 1, 2, 1)),
    # -- order
    ("topk kthvalue", (X, 2)),
    ("searchsorted.Tensor", (ROW, X)),
    ("searchsorted.Scalar", (ROW, 0.5)),
    ("bucketize.Tensor", (X, ROW)),
    ("bucketize.Scalar", (0.5, ROW)),
]
_NAMED: dict[str, dict[str, Any]] = {
    "_to_copy": {"dtype": torch.float16},
    "div.Tensor_mode": {"rounding_mode": "floor"},
    "div.Scalar_mode": {"rounding_mode": "floor"},
    "round.decimals": {"decimals": 2},
    "scatter.reduce": {"reduce": "add"},
    "scatter.value_reduce": {"reduce": "multiply"},
    "sort.stable": {"stable": True},
    "prims.iota": {
        **{"start": 0, "step": 1, "dtype": torch.int64},
        **{"device": torch.device("cpu"), "requires_grad": False},
    },
}
_ENDS, _COLUMNS = torch.tensor([0, 2, 3]), torch.tensor([0, 3, 1])  # of a sparse matrix (2, 4)
_FREE_ROWS: dict[str, tuple[Any, ...]] = {
    "sort.stable": (X,),
    "prims.iota": (4,),
    "torchneuron.csr_mm": (_ENDS, _COLUMNS, f(3), f(4, 2)),
    "torchneuron.csr_mm_transposed": (_ENDS, _COLUMNS, f(3), f(2, 2), 4),
    "torchneuron.csr_sampled": (_ENDS, _COLUMNS, f(2, 2), f(4, 2)),
}


def examples() -> dict[str, Example]:
    """Return arguments by overload: `namespace.operator.overload`."""
    rows = [(name, args) for names, args in _ROWS for name in names.split()]
    found = {}
    for name, args in [*rows, *_FREE_ROWS.items()]:
        parts = qualified(name).split(".")
        full = ".".join(parts if len(parts) == 3 else [*parts, "default"])
        found[full] = (args, _NAMED.get(name, {}))
    return found
