"""A program that only uses the CPU behaves the same with us loaded as without us.

Each script runs without us, with us, and with us and a bad setting; some also after the device was
used. What they print must not differ.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from behaviour.script import run_script

AWAY = {"TORCHNEURON": "0"}
LOADED = {"TORCHNEURON": None}
MISTAKEN = {"NEURON_LOGICAL_NC_CONFIG": "seven", "TORCHNEURON_NONSENSE": "1"}

BACKWARD = """
import threading, torch
before = threading.active_count()
x = torch.arange(6.0, requires_grad=True)
(x * x).sum().backward()
print(x.grad.tolist(), threading.active_count() - before)
print(torch._C._is_multithreading_enabled(), torch.get_num_threads())
"""

SYSTEM_THREADS = """
import os, torch
def count():
    return len(os.listdir("/proc/self/task"))
before = count()
x = torch.ones(3, requires_grad=True)
x.sum().backward()
print(count() - before)
"""

FORKED_BACKWARD = """
import os, sys, torch
def gradient():
    x = torch.arange(4.0, requires_grad=True)
    (x ** 3).sum().backward()
    return x.grad.tolist()
print(gradient(), flush=True)
child = os.fork()
if child == 0:
    print(gradient(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""

FORK_FIRST = """
import os, torch
child = os.fork()
if child == 0:
    x = torch.arange(4.0, requires_grad=True)
    x.sum().backward()
    print(x.grad.tolist(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""

THREADED_BACKWARD = """
import threading, torch
results = []
def work():
    x = torch.ones(4, requires_grad=True)
    (x * 3).sum().backward()
    results.append((x.grad.tolist(), torch._C._is_multithreading_enabled()))
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results)
"""

SEEDS = """
import warnings, torch
warnings.simplefilter("error")
generator = torch.manual_seed(7)
print(generator.device, torch.initial_seed(), torch.randn(3).tolist())
with torch.random.fork_rng(devices=[]):
    torch.randn(9)
with torch.random.fork_rng():
    torch.randn(9)
print(torch.randn(2).tolist())
torch.seed()
"""

THREAD_COUNTS = """
import torch
print(torch.get_num_threads(), torch.get_num_interop_threads())
torch.set_num_interop_threads(3)
torch.set_num_threads(2)
print(torch.get_num_threads(), torch.get_num_interop_threads())
"""

WORKERS = """
import torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    loader = DataLoader(torch.arange(12.0).reshape(6, 2), batch_size=2, num_workers=1)
    print([batch.tolist() for batch in loader])
"""

MODES = """
import torch
import torch.utils.checkpoint
with torch.autocast("cpu"):
    print((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
print(torch.get_default_device(), torch.empty(2).device, torch.tensor([1.0]).device)
print(torch.backends.mkldnn.is_available(), torch.cuda.is_available(), torch.cuda.device_count())
x = torch.randn(4, requires_grad=True)
print(torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).requires_grad)
print(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
"""

DATA_PARALLEL = """
import torch
model = torch.nn.Linear(2, 2)
torch.nn.init.ones_(model.weight); torch.nn.init.zeros_(model.bias)
parallel = torch.nn.DataParallel(model)
parallel(torch.ones(4, 2)).sum().backward()
print(parallel.device_ids, sorted(parallel.state_dict()), model.weight.grad.tolist())
print(torch.nn.DataParallel(model, device_ids=[0, 1])(torch.ones(1, 2)).tolist())
try:
    torch.nn.parallel.data_parallel(model, torch.ones(4, 2))
except RuntimeError as error:
    print(error)
"""

# What looks at a process that has just started runs alone, the rest one after another. `continued`
# holds what does not change once the device was used; then backward keeps to the calling thread.
SCRIPTS = {
    "system-threads": SYSTEM_THREADS,
    "fork-first": FORK_FIRST,
    "program": "\n".join([THREAD_COUNTS, BACKWARD, THREADED_BACKWARD, MODES]),
    "continued": "\n".join([FORKED_BACKWARD, SEEDS, DATA_PARALLEL, WORKERS]),
}


def said(source: str, folder: Path, env: dict[str, str | None], timeout_s: float = 90.0) -> str:
    process = run_script(source, folder, env=env, timeout_s=timeout_s)
    assert process.stderr == ""
    return process.stdout


@pytest.fixture(scope="module")
def without_us(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return what a script says without us; each runs once."""
    known: dict[str, str] = {}

    def run(name: str) -> str:
        if name not in known:
            known[name] = said(SCRIPTS[name], tmp_path_factory.mktemp(name), AWAY)
        return known[name]

    return run


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("env", [LOADED, MISTAKEN], ids=["loaded", "mistaken"])
def test_cpu_program_behaves_as_without_us(
    tmp_path: Path, without_us: Callable[[str], str], name: str, env: dict[str, str | None]
) -> None:
    assert said(SCRIPTS[name], tmp_path, env) == without_us(name)


@pytest.mark.parametrize("name", ["fork-first", "continued"])
def test_cpu_program_behaves_alike_after_the_device_was_used(
    tmp_path: Path, without_us: Callable[[str], str], name: str
) -> None:
    use = "import torch\ntorch.ones(2, device='neuron', requires_grad=True).sum().backward()\n"
    assert said(use + SCRIPTS[name], tmp_path, LOADED) == without_us(name)


@pytest.mark.slow
@pytest.mark.parametrize("env", [LOADED, MISTAKEN], ids=["loaded", "mistaken"])
def test_inductor_on_the_cpu_works_as_without_us(
    tmp_path: Path, env: dict[str, str | None]
) -> None:
    source = """
        import os, torch
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.getcwd(), "cache")
        @torch.compile(fullgraph=True)
        def f(x):
            return (x * 2).relu().sum()
        x = torch.arange(-3.0, 4.0, requires_grad=True)
        f(x).backward()
        print(f(x).item(), x.grad.tolist())
    """
    assert said(source, tmp_path, env, 300) == said(source, tmp_path, AWAY, 300)


def test_a_loaded_and_unused_device_is_not_initialized(tmp_path: Path) -> None:
    source = """
        import torch
        torch.manual_seed(0)
        x = torch.randn(4, requires_grad=True)
        x.sum().backward()
        torch.random.get_rng_state(); torch.get_num_threads(); repr(x)
        with torch.autocast("cpu"): x * x
        assert not torch.neuron.is_initialized()
    """
    run_script(source, tmp_path)


def test_fork_after_use_leaves_both_processes_working(tmp_path: Path) -> None:
    source = """
        import os, torch
        x = torch.ones(4, device="neuron", requires_grad=True)
        (x * 2).sum().backward()
        child = os.fork()
        if child == 0:
            y = torch.full((4,), 3.0, device="neuron", requires_grad=True)
            (y * x.detach()).sum().backward()
            ok = y.grad.tolist() == [1.0] * 4 and x.grad.tolist() == [2.0] * 4
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        x.grad = None
        (x * 5).sum().backward()
        assert x.grad.tolist() == [5.0] * 4
    """
    run_script(source, tmp_path)


def test_no_rename_where_autoload_is_off(tmp_path: Path) -> None:
    source = """
        import torch
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert torch.accelerator.current_accelerator() is None
        assert not hasattr(torch.Tensor, "is_neuron")
    """
    run_script(source, tmp_path, env=AWAY)
