"""Forks, threads, signals and the end of the process never crash or lose work."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from behaviour.subject import DEVICE, assert_equal_states, state_of
from behaviour.training import make_net, train

Script = Callable[..., CompletedProcess[str]]


def test_a_forked_child_computes_and_differentiates(script: Script) -> None:
    process = script(
        """
        import os
        import torch

        def work(scale):
            x = torch.full((64, 64), 0.5, device="neuron", requires_grad=True)
            (x @ x * scale).sum().backward()
            return x.grad.sum().item()

        kept = torch.arange(10, device="neuron:1")
        expected = work(2.0)
        allocated = torch.neuron.memory_allocated()
        children = []
        for generation in range(3):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    assert work(2.0) == expected
                    assert kept.sum().item() == 45
                    kept.zero_()
                    assert torch.neuron.memory_allocated() == allocated
                    torch.neuron.empty_cache()
                    assert work(2.0) == expected
                    status = 0
                finally:
                    os._exit(status)
            children.append(pid)
        for pid in children:
            status = os.waitpid(pid, 0)[1]
            assert status == 0, status
        assert kept.sum().item() == 45
        assert work(2.0) == expected
        print("three children")
        """
    )
    assert "three children" in process.stdout


def test_a_child_forked_before_first_use_computes(script: Script) -> None:
    script(
        """
        import os
        import torch

        for use_parent in (False, True):
            if use_parent:
                torch.ones(1, device="neuron")
            pid = os.fork()
            if pid == 0:
                x = torch.ones(3, device="neuron", requires_grad=True)
                x.square().sum().backward()
                os._exit(0 if x.grad.tolist() == [2.0] * 3 else 1)
            assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_threads_train_at_once_as_one_after_another() -> None:
    # Building a net seeds the CPU's generator, which all threads share.
    nets = [make_net(seed, f"{DEVICE}:{seed % 4}") for seed in range(8)]
    for net in nets:
        net.dropout.p = 0.0

    def run(seed: int) -> dict[str, torch.Tensor]:
        net = copy.deepcopy(nets[seed])
        train(net, torch.optim.AdamW(net.parameters(), lr=0.01), range(12))
        return state_of(net)

    # In a new thread too: torch keeps a thread count for each, a pinning DataLoader changes that of
    # the threads to come, and sums depend on it.
    with ThreadPoolExecutor(1) as thread:
        serial = list(thread.map(run, range(8)))
    barrier = threading.Barrier(8)

    def together(seed: int) -> dict[str, torch.Tensor]:
        barrier.wait()
        return run(seed)

    with ThreadPoolExecutor(8) as threads:
        for one, other in zip(threads.map(together, range(8)), serial, strict=True):
            assert_equal_states(one, other)


def test_a_tensor_may_die_in_another_thread(settled_memory: Callable[..., int]) -> None:
    before = settled_memory()
    held: list[torch.Tensor] = []

    def make() -> None:
        held.extend(torch.full((100,), float(i), device=DEVICE) for i in range(50))

    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    assert [t[0].item() for t in held] == list(range(50))
    killer = threading.Thread(target=held.clear)
    killer.start()
    killer.join()
    assert torch.neuron.memory_allocated() == before


def test_each_thread_has_its_own_current_device() -> None:
    seen: dict[int, Any] = {}
    barrier = threading.Barrier(4)

    def work(index: int) -> None:
        torch.neuron.set_device(index)
        barrier.wait()
        x = torch.ones(2, device=DEVICE, requires_grad=True)
        (x * index).sum().backward()
        seen[index] = (str(x.grad.device), torch.neuron.current_device(), x.grad.tolist())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {i: (f"neuron:{i}", i, [float(i)] * 2) for i in range(4)}
    assert torch.neuron.current_device() == 0


ALIVE = """
    import atexit, os, signal, sys, threading, time
    import torch

    def work(seconds):
        x = torch.randn(64, 64, device="neuron", requires_grad=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            y = (x @ x).relu().softmax(-1)
            y.sum().backward()
            x.grad = None
            y.cpu()

    def start(daemon, seconds):
        threading.Thread(target=work, args=(seconds,), daemon=daemon).start()

    keep = [torch.ones(1000, device="neuron") for _ in range(10)]
    keep.append(torch.ones(1000).pin_memory())
    keep.append(torch.Stream("neuron").record_event())
    keep.append(torch.Generator(device="neuron:1"))
    graph = torch.ones(3, device="neuron", requires_grad=True).exp()
    atexit.register(lambda: torch.ones(3, device="neuron").sum().item())
    {end}
    """
ENDS = {
    "pass": 0,
    "sys.exit(3)": 3,
    "raise RuntimeError('stop')": 1,
    "start(False, 0.5)": 0,
    "os._exit(5)": 5,
    "os.kill(os.getpid(), signal.SIGTERM)": -15,
    "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start(); work(60)": -15,
    "signal.signal(signal.SIGINT, signal.default_int_handler); "
    "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start(); work(60)": -2,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_as_usual_with_all_kinds_of_things_alive(end: str, script: Script) -> None:
    process = script(ALIVE.replace("{end}", end), returncode=ENDS[end])
    for word in ("Fatal", "terminate called", "Segmentation", "Exception ignored"):
        assert word not in process.stderr, process.stderr


def test_daemon_threads_at_work_do_no_harm_at_the_end(script: Script) -> None:
    source = ALIVE.replace("{end}", "start(True, 60); start(True, 60); time.sleep(0.3)")
    process = script(source, returncode=None)
    # Ending a daemon thread inside torch may abort on the CPU too: Python unwinds its C++ frames.
    unwound = "terminate called without an active exception" in process.stderr
    assert process.returncode == (-6 if unwound else 0), process.stderr


def failing_calls(x: torch.Tensor) -> list[Callable[[], Any]]:
    """Return calls that fail inside a kernel, after it has begun."""
    index = torch.tensor([0, 99], device=DEVICE)
    return [
        lambda: x.index_select(0, index),
        lambda: x.gather(0, index[:, None].expand(2, 3)),
        lambda: torch.linalg.inv(torch.zeros(3, 3, device=DEVICE)),
        lambda: torch.linalg.cholesky(-torch.eye(3, device=DEVICE)),
        lambda: torch.multinomial(-x.flatten().abs(), 2),
        lambda: torch.nn.functional.embedding(index, x),
        lambda: x.view(7, 7),
        lambda: torch.cat([x, x[:, :2]]),
        lambda: torch.randint(5, 2, (3,), device=DEVICE),
        lambda: torch.zeros(3, dtype=torch.int64, device=DEVICE).floor_divide(
            torch.zeros(3, dtype=torch.int64, device=DEVICE)
        ),
    ]


def test_an_exception_inside_a_kernel_leaves_all_as_it_was() -> None:
    x = torch.randn(5, 3, device=DEVICE)
    before = x.cpu()
    for call in failing_calls(x):
        allocated = torch.neuron.memory_allocated()
        with pytest.raises((RuntimeError, IndexError)):
            call()
        assert torch.neuron.memory_allocated() == allocated
        assert torch.equal(x.cpu(), before)
        # The CPU's own allocator serves CPU tensors again, and ours serves device tensors.
        assert torch.ones(1000).device.type == "cpu"
        assert torch.neuron.memory_allocated() == allocated
        assert (x + 1).sub(1).device.type == DEVICE


def test_an_exception_in_user_code_under_a_kernel_passes_through() -> None:
    class StopError(Exception):
        """What the user's code raises."""

    x = torch.randn(3, device=DEVICE, requires_grad=True)
    with torch.library._scoped_library("nrn_exit", "DEF") as library:

        def kernel(x: torch.Tensor) -> torch.Tensor:
            raise StopError

        library.define("fails(Tensor x) -> Tensor")
        library.impl("fails", kernel, "CPU")
        with pytest.raises(StopError):
            torch.ops.nrn_exit.fails(x.detach())
    y = x * 2
    y.register_hook(lambda _: (_ for _ in ()).throw(StopError()))
    with pytest.raises(StopError):
        y.sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0] * 3


def test_backward_in_a_fresh_thread_is_its_first_call(script: Script) -> None:
    script(
        """
        import threading
        import torch

        x = torch.ones(4, device="neuron", requires_grad=True)
        y, on_cpu = x * 3, torch.ones(4, requires_grad=True)
        failures = []

        def first(call):
            try:
                call()
            except BaseException as error:
                failures.append(error)

        calls = [
            lambda: y.backward(torch.ones(4, device="neuron"), retain_graph=True),
            lambda: on_cpu.sum().backward(),
            lambda: torch.autograd.grad(y.sum(), x),
        ]
        for call in calls:
            thread = threading.Thread(target=first, args=(call,))
            thread.start()
            thread.join()
        assert not failures, failures
        assert x.grad.tolist() == [3.0] * 4
        assert on_cpu.grad.tolist() == [1.0] * 4
        """
    )
