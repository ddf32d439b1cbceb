"""Compile operators of PyTorch's database on the device and compare with CPU eager.

    python -m compile.operators [--all] [--jobs=2] [NAME ...]       (in tests/)
    TORCHNEURON_EAGER=lowered python -m compile.operators --eager ...

What does not agree is printed. Each sample goes the whole way: AOTAutograd, decompositions,
lowering, XLA, and back into the device's memory; its gradients too, where the operator has any.
"""

import functools
import json
import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch.utils import _pytree as pytree

from conformance import upstream
from conformance.judge import seed
from conformance.scenarios import UNINITIALISED
from torchneuron import ledger
from torchneuron.compile.backend import compile_graph, partition_joint
from torchneuron.compile.options import Options
from torchneuron.ledger import HostFallback
from torchneuron.lowering.decompose import decompositions

DTYPE = torch.float32
# Their entries set the seed inside the function that is traced; test_backend compares draws.
SEEDED_INSIDE = frozenset(
    "bernoulli cauchy exponential geometric log_normal multinomial normal normal.in_place "
    "normal.number_mean rand_like randint randint_like randn randn_like uniform "
    "nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d "
    "nn.functional.multi_head_attention_forward "
    "nn.functional.alpha_dropout nn.functional.feature_alpha_dropout.with_train "
    "nn.functional.feature_alpha_dropout.without_train nn.functional.rrelu pca_lowrank svd_lowrank "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d".split()
)
# Its gradient is the exponential of a difference of logarithms, which takes digits on both sides.
TOLERANCES = {"logcumsumexp": 2e-3}


def label(entry: Any) -> str:
    """Name an entry as `operator.variant`."""
    variant = entry.variant_test_name
    return f"{entry.name}.{variant}" if variant else str(entry.name)


def entries() -> dict[str, Any]:
    """Return the entries that take float32 and do not set the seed themselves."""
    found = {label(entry): entry for entry in upstream.entries() if DTYPE in entry.dtypes}
    return {name: entry for name, entry in found.items() if name not in SEEDED_INSIDE}


def samples(entry: Any, count: int) -> Iterator[Any]:
    """Yield an entry's first samples with gradients wanted where it has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed(torch.device("cpu"))
        grad = bool(entry.supports_autograd)
        for sample in upstream.samples(entry, DTYPE, grad, count):
            if not sample.kwargs.get("dropout_p"):  # attention with dropout sets the seed as well
                yield sample


def check(entry: Any, sample: Any, *, compiled: bool = True) -> list[str]:
    """Compare one sample; return the calls that ran on the host.

    Not compiled, the operator runs eagerly: of use in a process with TORCHNEURON_EAGER=lowered.

    Raises:
        AssertionError: The results or gradients differ.
    """
    fallbacks: list[str] = []
    remove = ledger.add_sink(
        lambda event: fallbacks.append(event.op) if isinstance(event, HostFallback) else None
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(7)
            expected = _outcome(_plain, entry, sample, "cpu")
            torch.manual_seed(7)
            actual = _outcome(_compiled if compiled else _plain, entry, sample, "neuron")
    finally:
        remove()
    for one, other in zip(actual, expected, strict=True):
        if isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype, f"dtype {one.dtype}, not {other.dtype}"
            if entry.name in UNINITIALISED:
                assert one.shape == other.shape
                continue
            rtol = TOLERANCES.get(entry.name, 1e-4)
            torch.testing.assert_close(one.cpu(), other, equal_nan=True, rtol=rtol, atol=2e-5)
        else:
            assert one == other, f"{one}, not {other}"
    return sorted(set(fallbacks))


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def _compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    def compile_one(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        return compile_graph(graph, Options())

    return aot_function(
        fn,
        fw_compiler=compile_one,
        bw_compiler=compile_one,
        decompositions=decompositions(),
        partition_fn=partition_joint,
    )


def _outcome(transform: Callable[..., Any], entry: Any, sample: Any, device: str) -> list[Any]:
    """Return the results and the gradients of all float tensors among the sample's arguments."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    moved = [_moved(leaf, device) for leaf in leaves]
    places = [i for i, leaf in enumerate(moved) if isinstance(leaf, torch.Tensor)]

    def fn(*tensors: torch.Tensor) -> list[Any]:
        filled = list(moved)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return pytree.tree_leaves(entry.op(first, *args, **kwargs))

    tensors = [moved[place] for place in places]
    results = list(transform(fn)(*tensors))
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    roots = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    detached = [r.detach() if isinstance(r, torch.Tensor) else r for r in results]
    if not roots or not wanted:
        return detached
    seeds = [_ramp(root) for root in roots]
    return detached + list(torch.autograd.grad(roots, wanted, seeds, allow_unused=True))


def _moved(leaf: Any, device: str) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
    return torch.device(device) if isinstance(leaf, torch.device) or leaf == "cpu" else leaf


def _ramp(like: torch.Tensor) -> torch.Tensor:
    values = torch.linspace(0.5, 1.5, like.numel()).reshape(like.shape)
    return values.to(like.dtype).to(like.device)


def outcome_of(name: str, count: int, compiled: bool) -> tuple[str, str, list[str]]:
    """Check an entry: name, outcome, details.

    The outcome is `lowered`, `eager in part` (with the calls), or an error's class (with its text).
    """
    entry, calls = entries()[name], set()
    try:
        for sample in samples(entry, count):
            calls.update(check(entry, sample, compiled=compiled))
    except Exception as error:  # noqa: BLE001 (each outcome is a line of the answer)
        return name, type(error).__name__, [" ".join(str(error).split())[:200]]
    return name, "eager in part" if calls else "lowered", sorted(calls)


def sweep(
    names: list[str], count: int, *, compiled: bool, jobs: int = 1
) -> list[tuple[str, str, list[str]]]:
    """Check entries whose name begins with one of these (all if none), in so many processes."""
    wanted = [
        name for name in entries() if not names or any(name.startswith(each) for each in names)
    ]
    checked = functools.partial(outcome_of, count=count, compiled=compiled)
    if jobs == 1:
        return [checked(name) for name in wanted]
    # Nothing has used the device yet: a child of this process may.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(checked, wanted, chunksize=8))


def main(arguments: list[str]) -> None:
    """Print what is not lowered or differs, then the counts; with --json all outcomes as data."""
    names = [each for each in arguments if not each.startswith("-")]
    jobs = [int(each.removeprefix("--jobs=")) for each in arguments if each.startswith("--jobs=")]
    outcomes = sweep(
        names,
        30 if "--all" in arguments else 1,
        compiled="--eager" not in arguments,
        jobs=jobs[0] if jobs else 1,
    )
    if "--json" in arguments:
        print(json.dumps(outcomes))  # noqa: T201
        return
    for name, outcome, details in outcomes:
        if outcome != "lowered":
            print(f"{name}: {outcome}: {', '.join(details)}")  # noqa: T201
    print(dict(Counter(outcome for _, outcome, _ in outcomes)))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
