"""Section A, operators that lose their gradient when a backend registers them."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from behaviour.subject import DEVICE, assert_runs_the_same, with_gradients

COMPOSITE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul": lambda x, w: torch.matmul(x[None], w.t()),
    "einsum": lambda x, w: torch.einsum("ij,kj->ik", x, w),
    "rms_norm": lambda x, w: F.rms_norm(x, (6,), w[0]),
    "layer_norm": lambda x, w: F.layer_norm(x, (6,), w[0], w[1]),
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, w[0], training=True),
    "conv1d": lambda x, w: F.conv1d(x[None], w[:, :5, None], padding="same"),
    "upsample_nearest": lambda x, w: F.interpolate((x @ w.t())[None], scale_factor=2.0),
    "cross_entropy": lambda x, w: F.cross_entropy(x, torch.arange(5, device=x.device) % 6),
    "dropout": lambda x, w: F.dropout(x @ w.t(), 0.3, training=True),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], w[None], w[None]),
    "selu": lambda x, w: F.selu(x),
    "where": lambda x, w: torch.where(x > 0, x, w[:5]),
    "tile": lambda x, w: torch.tile(x, (2, 2)),
    "cumulative_trapezoid": lambda x, w: torch.cumulative_trapezoid(x),
    "norm": lambda x, w: torch.linalg.norm(x) + torch.linalg.vector_norm(w),
    "repeat_interleave": lambda x, w: x.repeat_interleave(2, dim=1),
    "cosine_similarity": lambda x, w: F.cosine_similarity(x, w[:5]),
    "triplet": lambda x, w: F.triplet_margin_loss(x, w[:5], w[1:6]),
    "silu": lambda x, w: F.silu(x @ w),
    "mish": lambda x, w: F.mish(x @ w),
    "channel_shuffle": lambda x, w: F.channel_shuffle((w @ x.t())[None, :, :, None], 3),
    "reshape": lambda x, w: x.t().reshape(3, 10),
}


def test_a26_composite_operators_keep_their_gradient() -> None:
    """gabrieldemarmiesse/torch-mojo-backend PR #401, #406: gradients vanished in silence."""
    for name, op in COMPOSITE.items():
        x = torch.randn(5, 6, requires_grad=True)
        w = torch.randn(6, 6, requires_grad=True)

        def run(x: torch.Tensor, w: torch.Tensor, op: Callable = op) -> torch.Tensor:
            torch.manual_seed(1)
            return op(x, w)

        _, gradients = assert_runs_the_same(with_gradients(run), x, w)
        assert gradients[0] is not None, name
        assert torch.count_nonzero(gradients[0]), name


def test_a26_no_composite_operator_is_registered_without_autograd() -> None:
    """gabrieldemarmiesse/torch-mojo-backend PR #401: the cause, found before a user does."""
    torch.empty(1, device=DEVICE)  # most kernels are registered at the first use
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    assert len(registered) > 500, f"{DEVICE} registers too few kernels for this test to mean much"
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = [op for op in registered if has_kernel(op, "CompositeImplicitAutograd")]
    # An operator that is also registered for the CPU has lost its composite formula there too;
    # the one named below answers yes or no.
    lost = [
        op
        for op in composite
        if op.startswith("aten::")
        and op != "aten::_has_compatible_shallow_copy_type"
        and not has_kernel(op, "CPU")
        and not has_kernel(op, "AutogradPrivateUse1")
    ]
    assert not lost
