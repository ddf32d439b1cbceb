"""Sparse tensors leave the process and come back: files, pickles, copies, other processes."""

import copy
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE, FIRST, SECOND
from sparse.subject import LAYOUTS, NEURON, assert_equal, dense, members, sparse

Script = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("weights_only", [True, False])
def test_saved_and_loaded_where_asked(
    layout: torch.layout, weights_only: bool, tmp_path: Path
) -> None:
    tensor = sparse(layout)
    path = tmp_path / "saved.pt"
    torch.save({"a": tensor.to(DEVICE), "b": tensor.to(SECOND)}, path)
    places: list[tuple[Any, str]] = [
        (None, FIRST), ("cpu", "cpu"), (SECOND, SECOND), (torch.device(DEVICE), FIRST),
    ]  # fmt: skip
    for place, expected in places:
        loaded = torch.load(path, map_location=place, weights_only=weights_only)
        assert str(loaded["a"].device) == expected
        assert {str(member.device) for member in members(loaded["a"])} == {expected}
        if expected != "cpu":
            assert_equal(loaded["a"], tensor)
    assert str(torch.load(path)["b"].device) == SECOND


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_copies_are_tensors_of_their_own(layout: torch.layout) -> None:
    tensor = sparse(layout)
    there = tensor.to(DEVICE)
    makers: list[Callable[[torch.Tensor], torch.Tensor]] = [
        copy.deepcopy,
        torch.Tensor.clone,
        lambda x: pickle.loads(pickle.dumps(x)),
    ]
    for make in makers:
        made = make(there)
        assert_equal(made, tensor)
        members(made)[-1].zero_()
        assert_equal(there, tensor)
    leaf = there.detach().requires_grad_()
    assert copy.deepcopy(leaf).requires_grad


def test_a_module_with_a_sparse_buffer() -> None:
    net = nn.Module()
    matrix = sparse(torch.sparse_csr)
    net.register_buffer("matrix", matrix)
    net.to(DEVICE)
    assert_equal(net.matrix, matrix)
    file = BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    assert_equal(torch.load(file)["matrix"], matrix)
    assert_equal(copy.deepcopy(net).matrix, matrix)
    assert net.cpu().matrix.device.type == "cpu"


def test_sparse_optimizer_state_is_saved() -> None:
    weight = nn.Parameter(torch.ones(4, 2, device=DEVICE))
    weight.grad = dense(4, 2).to(DEVICE).to_sparse(1)
    optimizer = torch.optim.SparseAdam([weight])
    optimizer.step()
    file = BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "grad": weight.grad}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded["grad"].device == NEURON
    assert loaded["optimizer"]["state"][0]["exp_avg"].device == NEURON


def test_saved_bytes_name_no_module_of_ours() -> None:
    file = BytesIO()
    torch.save([sparse(layout).to(DEVICE) for layout in LAYOUTS], file)
    assert b"torchneuron" not in file.getvalue()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_use_sparse_tensors(method: str, script: Script) -> None:
    process = script(
        f"""
        import torch
        import torch.multiprocessing as mp

        def work(rank, results):
            matrix = torch.eye(4).to_sparse_csr().to(f"neuron:{{rank}}")
            other = torch.full((4, 2), float(rank), device=matrix.device)
            results.put((matrix @ other).sum().item())

        if __name__ == "__main__":
            # The parent's aliases are there when it forks.
            torch.eye(3, device="neuron").to_sparse() * 2
            context = mp.get_context("{method}")
            results = context.Queue()
            children = [context.Process(target=work, args=(r, results)) for r in range(2)]
            for child in children:
                child.start()
            print("sums", sorted(results.get(timeout=60) for _ in children))
            for child in children:
                child.join(60)
                assert child.exitcode == 0
        """
    )
    assert "sums [0.0, 8.0]" in process.stdout


def test_what_cannot_be_sent_is_an_error(script: Script) -> None:
    process = script(
        """
        import torch
        import torch.multiprocessing as mp

        if __name__ == "__main__":
            for tensor in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
                try:
                    mp.get_context("fork").SimpleQueue().put(tensor.to("neuron"))
                except RuntimeError as error:
                    print("hint: send `tensor.cpu()`" in str(error))
        """
    )
    assert process.stdout.split() == ["True", "True"]
