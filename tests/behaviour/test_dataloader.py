"""Data loaders feed the device: workers, pinned batches and batches of the user's own class."""

from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from behaviour.subject import DEVICE


class Squares(Dataset[tuple[torch.Tensor, int]]):
    """Sample i is (a tensor (3,) of i squared, i)."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(i * i)), i


class OnDevice(Squares):
    """The same, computed on the device inside the worker and handed out as CPU tensors."""

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        x = torch.full((3,), float(i), device=DEVICE)
        return (x * x).cpu(), i


class LeftOnDevice(Squares):
    """The same, left on the device, which no other process can read."""

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(i), device=DEVICE), i


class Shards(IterableDataset[int]):
    """A stream in which each worker gives its own part."""

    def __iter__(self) -> Any:
        worker = get_worker_info()
        yield from range(worker.id, 10, worker.num_workers) if worker else range(10)


class Pair(NamedTuple):
    """A batch as a named tuple."""

    images: torch.Tensor
    labels: torch.Tensor


def as_pair(samples: list[tuple[torch.Tensor, int]]) -> Pair:
    """Collate samples into a named tuple."""
    return Pair(torch.stack([x for x, _ in samples]), torch.tensor([i for _, i in samples]))


def assert_epoch_is_complete(loader: DataLoader[Any], *, pinned: bool) -> None:
    """Check every batch of an epoch, on the way to the device and on it."""
    seen: list[int] = []
    for images, labels in loader:
        assert images.is_pinned() == labels.is_pinned() == pinned
        moved = images.to(DEVICE, non_blocking=True)
        assert torch.equal((moved[:, 0].sqrt()).long().cpu(), labels)
        seen += labels.tolist()
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("pin", [False, True])
def test_batches_reach_the_device_without_workers(pin: bool) -> None:
    assert_epoch_is_complete(DataLoader(Squares(), 5, shuffle=True, pin_memory=pin), pinned=pin)
    loader = DataLoader(Squares(), 4, collate_fn=as_pair, pin_memory=pin)
    assert all(isinstance(batch, Pair) for batch in loader)
    assert_epoch_is_complete(loader, pinned=pin)


@pytest.mark.parametrize("dataset", [Squares(), OnDevice()], ids=["plain", "device"])
def test_forked_workers_feed_the_device(dataset: Dataset[Any]) -> None:
    torch.ones(1, device=DEVICE)
    loader = DataLoader(
        dataset,
        4,
        num_workers=2,
        pin_memory=True,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for _ in range(2):
        assert_epoch_is_complete(loader, pinned=True)


def test_spawned_workers_feed_the_device() -> None:
    loader = DataLoader(
        OnDevice(), 4, num_workers=1, pin_memory=True, multiprocessing_context="spawn"
    )
    assert_epoch_is_complete(loader, pinned=True)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_that_a_worker_leaves_on_the_device_are_an_error_here(method: str) -> None:
    loader = DataLoader(
        LeftOnDevice(), 4, num_workers=1, multiprocessing_context=method, timeout=60
    )
    with pytest.raises(RuntimeError, match=r"(?s)memory of neuron:0 to another.*hint: send"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_batches_left_on_the_device_end_a_loop_that_pins_them() -> None:
    loader = DataLoader(
        LeftOnDevice(), 4, num_workers=1, multiprocessing_context="fork", pin_memory=True
    )
    with pytest.raises(RuntimeError, match="Pin memory thread exited"):
        next(iter(loader))


def test_streams_are_shared_out_among_workers() -> None:
    loader = DataLoader(Shards(), 2, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    values = [value for batch in loader for value in batch.to(DEVICE).tolist()]
    assert sorted(values) == list(range(10))


def test_a_worker_that_fails_says_why() -> None:
    class Broken(Squares):
        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            raise KeyError(f"no sample {i}")

    loader = DataLoader(Broken(), 4, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(KeyError, match="no sample 0"):
        next(iter(loader))
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_data_that_lies_on_the_device_is_indexed_there() -> None:
    data = TensorDataset(torch.arange(10, device=DEVICE), torch.arange(10, device=DEVICE) * 2)
    for x, y in DataLoader(data, 4):
        assert x.is_neuron and torch.equal(x * 2, y)


def test_the_same_seed_gives_the_same_order_and_worker_numbers() -> None:
    def epoch() -> list[int]:
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(
            Squares(), 3, shuffle=True, num_workers=1, generator=generator,
            multiprocessing_context="fork",
        )  # fmt: skip
        return [label for _, labels in loader for label in labels.tolist()]

    assert epoch() == epoch() != list(range(12))
