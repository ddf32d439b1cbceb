"""Two hundred steps of anything keep the device's allocated bytes flat."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from behaviour.subject import DEVICE
from behaviour.training import BATCH, CLASSES, batch, make_net

STEPS = 200
SETTLED = 3
Check = Callable[..., None]


@pytest.fixture
def assert_flat(settled_memory: Callable[..., int]) -> Check:
    """Run a step many times and check that nothing it allocates stays."""

    def check(step: Callable[[int], object], *, steps: int = STEPS) -> None:
        settled_memory()
        allocated, reserved = [], []
        for i in range(steps):
            step(i)
            allocated.append(torch.neuron.memory_allocated())
            reserved.append(torch.neuron.memory_reserved())
        assert set(allocated[SETTLED:]) == {allocated[SETTLED]}, sorted(set(allocated))
        assert reserved[-1] == reserved[steps // 2]

    return check


def test_training_keeps_memory_flat(assert_flat: Check) -> None:
    net = make_net(0, DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)

    def step(i: int) -> None:
        images, labels = batch(i, DEVICE)
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    assert_flat(step)


def test_caught_exceptions_keep_memory_flat(assert_flat: Check) -> None:
    net = make_net(0, DEVICE)

    def step(i: int) -> None:
        images, labels = batch(i, DEVICE)
        scores = net(images)
        wrong: list[Callable[[], object]] = [
            lambda: scores @ scores,
            lambda: F.cross_entropy(scores, labels + 100),
            lambda: scores[:, CLASSES + 1],
            lambda: torch.linalg.cholesky(-scores.T @ scores),
            lambda: torch.empty(2**40, device=DEVICE),
            lambda: scores.backward(),
            lambda: images.to("neuron:99"),
        ]
        with pytest.raises((RuntimeError, IndexError)):
            wrong[i % len(wrong)]()
        scores.sum().backward()

    assert_flat(step)


def test_graphs_that_are_dropped_keep_memory_flat(assert_flat: Check) -> None:
    weight = torch.randn(32, 32, device=DEVICE, requires_grad=True)

    def step(i: int) -> None:
        hidden = weight
        for _ in range(5):
            hidden = torch.tanh(hidden @ weight)
        if i % 3 == 0:
            (gradient,) = torch.autograd.grad(hidden.sum(), weight, create_graph=True)
            gradient.square().sum().backward()
            weight.grad = None
        elif i % 3 == 1:
            hidden.sum().backward(retain_graph=True)
            weight.grad = None

    assert_flat(step)


def test_views_out_and_resize_keep_memory_flat(assert_flat: Check) -> None:
    out = torch.empty(0, device=DEVICE)
    x = torch.randn(64, 64, device=DEVICE)

    def step(i: int) -> None:
        torch.mm(x, x, out=out)
        out.resize_(0)
        out.untyped_storage().resize_(0)
        view = x.t()[::2].view(8, 4, 64) if i % 2 else x[3:, ::5].unfold(0, 2, 1)
        view.clone().set_(x.clone().untyped_storage(), 0, (8, 8))
        x.clone().data = x.clone()
        torch.stack([row for row in x.unbind()]).tolist()

    assert_flat(step)


def test_pinned_batches_keep_memory_flat(assert_flat: Check) -> None:
    data = TensorDataset(torch.randn(BATCH * 10, 3, 8, 8), torch.randint(CLASSES, (BATCH * 10,)))
    loader = DataLoader(data, BATCH, shuffle=True, pin_memory=True)
    net = make_net(0, DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def epoch(_: int) -> None:
        for images, labels in loader:
            assert images.is_pinned()
            optimizer.zero_grad()
            scores = net(images.to(DEVICE, non_blocking=True))
            F.cross_entropy(scores, labels.to(DEVICE, non_blocking=True)).backward()
            optimizer.step()

    assert_flat(epoch, steps=20)


def test_copies_in_every_direction_keep_memory_flat(assert_flat: Check) -> None:
    x = torch.randn(100, device=DEVICE)

    def step(_: int) -> None:
        there = x.to("neuron:1")
        assert torch.equal(there.to(DEVICE), x)
        there.cpu().pin_memory().to(DEVICE, torch.float16, non_blocking=True)
        x.numpy(force=True)
        torch.neuron.empty_cache()

    assert_flat(step)
    other = torch.neuron.memory_allocated(1)
    step(0)
    assert torch.neuron.memory_allocated(1) == other


def test_threads_return_what_they_allocate(assert_flat: Check) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(i: int) -> float:
        x = torch.randn(50, 50, device=DEVICE, requires_grad=True)
        (x @ x).sum().backward()
        return x.grad.sum().item()

    def step(_: int) -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(work, range(4)))

    assert_flat(step, steps=40)
