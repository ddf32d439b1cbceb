"""Other processes use the device, and share what can be shared."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
import torch

from behaviour.subject import DEVICE

Script = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_train_on_the_device(method: str, script: Script) -> None:
    process = script(
        f"""
        import torch
        import torch.multiprocessing as mp

        def work(rank, results):
            torch.manual_seed(rank)
            torch.neuron.set_device(rank)
            x = torch.randn(4, device="neuron", requires_grad=True)
            x.square().sum().backward()
            assert torch.equal(x.grad, 2 * x.detach())
            assert x.device.index == rank
            results.put((rank, x.tolist()))

        if __name__ == "__main__":
            torch.ones(1, device="neuron")
            context = mp.get_context("{method}")
            results = context.Queue()
            children = [context.Process(target=work, args=(r, results)) for r in range(2)]
            for child in children:
                child.start()
            got = dict(results.get(timeout=60) for _ in children)
            for child in children:
                child.join(60)
                assert child.exitcode == 0, child.exitcode
            for rank, values in got.items():
                torch.manual_seed(rank)
                assert values == torch.randn(4).tolist()
            print("trained", sorted(got))
        """
    )
    assert "trained [0, 1]" in process.stdout


def test_a_pool_maps_over_cpu_tensors(script: Script) -> None:
    process = script(
        """
        import torch
        import torch.multiprocessing as mp

        def square(x):
            return (x.to("neuron") ** 2).cpu()

        if __name__ == "__main__":
            with mp.get_context("fork").Pool(2) as pool:
                results = pool.map(square, [torch.full((3,), float(i)) for i in range(6)])
            print([int(r[0]) for r in results])
        """
    )
    assert "[0, 1, 4, 9, 16, 25]" in process.stdout


def test_a_child_that_fails_reports_its_cause(script: Script) -> None:
    process = script(
        """
        import torch
        import torch.multiprocessing as mp

        def work(rank):
            torch.ones(2, device="neuron") @ torch.ones(3, device="neuron")

        if __name__ == "__main__":
            try:
                mp.spawn(work, nprocs=1)
            except mp.ProcessRaisedException as error:
                print("child said:", "size" in str(error))
        """
    )
    assert "child said: True" in process.stdout


def test_what_cannot_be_sent_is_an_error_where_it_can_be_caught(script: Script) -> None:
    process = script(
        """
        import torch
        import torch.multiprocessing as mp
        from concurrent.futures import ProcessPoolExecutor

        def fill(queue):
            queue.put([torch.ones(2, device="neuron")])
            queue.put(torch.zeros(0, device="neuron"))
            queue.put("whole")

        def caught(act):
            try:
                return act()
            except RuntimeError as error:
                assert "hint: send `tensor.cpu()`" in str(error)
                return "refused"

        if __name__ == "__main__":
            context = mp.get_context("fork")
            queue = context.Queue()
            child = context.Process(target=fill, args=(queue,))
            child.start()
            print("queue", *(caught(lambda: queue.get(timeout=60)) for _ in range(3)))
            child.join()
            x = torch.ones(2, device="neuron")
            print("simple queue", caught(lambda: context.SimpleQueue().put(x)))
            print("empty", caught(lambda: context.SimpleQueue().put(x.new_empty(0))))
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                print("executor", caught(lambda: pool.submit(print, x).result(60)))
                print("usable", pool.submit(abs, -2).result(60))
        """
    )
    said = process.stdout.splitlines()
    assert "queue refused refused whole" in said
    assert {"simple queue refused", "empty refused", "executor refused", "usable 2"} <= set(said)


def test_sharing_memory_keeps_values_and_writes() -> None:
    x = torch.arange(4.0, device=DEVICE)
    try:
        shared = x.share_memory_()
    except (RuntimeError, NotImplementedError) as error:
        assert "neuron" in str(error)
        return
    assert shared is x and x.is_shared()
    x += 1
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert x.device.type == DEVICE


def test_pinned_and_shared_host_tensors_reach_the_device() -> None:
    shared = torch.arange(4.0).share_memory_()
    assert shared.to(DEVICE).tolist() == [0.0, 1.0, 2.0, 3.0]
    shared.copy_(torch.ones(4, device=DEVICE))
    assert shared.is_shared() and shared.tolist() == [1.0] * 4
