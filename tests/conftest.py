"""Settings of every test: a clean environment, no network for libraries, one seed."""

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

# A developer's own settings must not decide a test; tests that need one set it themselves.
for name in [
    name for name in os.environ if name.startswith(("TORCHNEURON", "NEURON_", "TORCH_NEURONX_"))
]:
    del os.environ[name]
os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
_graphs = tempfile.TemporaryDirectory(prefix="torchneuron-tests-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _graphs.name
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


@pytest.fixture(autouse=True)
def fixed_seed() -> Iterator[None]:
    """Give every test that uses torch the same random numbers, whatever ran before it."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    state = torch.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.set_rng_state(state)


@pytest.fixture(autouse=True)
def no_kept_graphs() -> Iterator[None]:
    """Compile every graph: no key of torch's cache knows what a test has replaced."""
    if "torch" not in sys.modules:
        yield
        return
    from torch._functorch import config

    with config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture
def settled_memory() -> Callable[..., int]:
    """Count a device's allocated bytes when nothing that is garbage is left to be freed later."""
    import torch

    def allocated(device: int | str | None = None) -> int:
        gc.collect()
        return torch.neuron.memory_allocated(device)

    return allocated
