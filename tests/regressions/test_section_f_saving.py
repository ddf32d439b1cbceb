"""Section F, saving, loading and sending tensors of this device."""

from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE, FIRST, SECOND, assert_equal_states, state_of
from behaviour.training import make_net, train

Script = Callable[..., CompletedProcess[str]]


def test_f11_the_device_index_survives_saving(script: Script, tmp_path: Path) -> None:
    """pytorch/pytorch PR #98920, #108123: loaded tensors lost their device index."""
    path = tmp_path / "saved.pt"
    x = torch.arange(5.0, device=SECOND)
    torch.save({"x": x, "view": x[2:], "weight": nn.Parameter(x)}, path)
    loaded = torch.load(path)
    for value in loaded.values():
        assert str(value.device) == SECOND
    assert isinstance(loaded["weight"], nn.Parameter)
    loaded["x"][3] = -1
    assert loaded["view"].tolist() == [2.0, -1.0, 4.0]
    script(
        """
        import torch

        assert torch.neuron.device_count() == 1
        try:
            torch.load("saved.pt")
        except RuntimeError as error:
            assert "map_location" in str(error), error
            assert "1" in str(error), error
        else:
            raise SystemExit("loaded onto a device that does not exist")
        for place in ("neuron", "cpu", {"neuron:1": "neuron:0"}):
            assert torch.load("saved.pt", map_location=place)["x"].tolist() == [0, 1, 2, 3, 4]
        """,
        env={"NEURON_RT_NUM_CORES": "1"},
    )


class Scaled(torch.Tensor):
    """A tensor subclass that a checkpoint may hold."""


def test_f13_safe_loading_of_everything_a_checkpoint_holds(tmp_path: Path) -> None:
    """pytorch/pytorch #124763, #157884: `weights_only` refused tensors of such backends."""
    net = make_net(0, DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    train(net, optimizer, range(2))
    net.register_buffer("extra", torch.arange(4, device=SECOND)[::2])
    path = tmp_path / "checkpoint.pt"
    state = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "subclass": torch.ones(3, device=DEVICE).as_subclass(Scaled),
        "half": torch.ones(2, 2, dtype=torch.bfloat16, device=DEVICE).t(),
        "empty": torch.empty(0, 3, device=DEVICE),
        "conj": torch.ones(2, dtype=torch.complex64, device=DEVICE).mul(1j).conj(),
    }
    torch.save(state, path)
    places: list[tuple[Any, str]] = [
        (None, FIRST),
        ("cpu", "cpu"),
        (SECOND, SECOND),
        (torch.device(DEVICE), FIRST),
        ({FIRST: SECOND, SECOND: "cpu"}, SECOND),
        (lambda storage, location: storage.neuron(2), "neuron:2"),
    ]
    with torch.serialization.safe_globals([Scaled]):
        for place, expected in places:
            loaded = torch.load(path, weights_only=True, map_location=place)
            assert str(loaded["net"]["conv.weight"].device) == expected
            assert type(loaded["subclass"]) is Scaled
            assert loaded["half"].stride() == (1, 2)
            assert loaded["empty"].shape == (0, 3)
            assert loaded["conj"].tolist() == [-1j, -1j]
            assert isinstance(loaded["net"], OrderedDict)
            again = {k: v.cpu() for k, v in loaded["net"].items()}
            assert_equal_states(again, state_of(net))
            saved, read = optimizer.state_dict()["state"], loaded["optimizer"]["state"]
            for key, entry in saved.items():
                assert all(torch.equal(read[key][k].cpu(), v.cpu()) for k, v in entry.items())


def test_f13_mapped_files_load_onto_the_device(tmp_path: Path) -> None:
    """pytorch/pytorch #124763: `mmap=True` and the older file format."""
    path = tmp_path / "saved.pt"
    x = torch.randn(100)
    torch.save(x.to(DEVICE), path)
    for place, expected in ((None, FIRST), (DEVICE, FIRST), (SECOND, SECOND), ("cpu", "cpu")):
        loaded = torch.load(path, mmap=True, map_location=place)
        assert str(loaded.device) == expected
        assert torch.equal(loaded.cpu(), x)
    torch.save(x.to(SECOND), path, _use_new_zipfile_serialization=False)
    loaded = torch.load(path)
    assert str(loaded.device) == SECOND
    assert torch.equal(loaded.cpu(), x)


def test_f13_safe_loading_of_sparse_tensors(tmp_path: Path) -> None:
    """pytorch/pytorch #124763, #157884: the same for each sparse layout."""
    path = tmp_path / "sparse.pt"
    square = torch.eye(4) * 3
    layouts = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
    made = [square.to_sparse(layout=layout) for layout in layouts]
    made += [square.to_sparse_bsr((2, 2)), square.to_sparse_bsc((2, 2))]
    torch.save([tensor.to(SECOND) for tensor in made], path)
    for place, expected in ((None, SECOND), ("cpu", "cpu"), (DEVICE, FIRST)):
        loaded = torch.load(path, weights_only=True, map_location=place)
        for got, want in zip(loaded, made, strict=True):
            assert str(got.device) == expected
            assert got.layout == want.layout
            assert torch.equal(got.to_dense().cpu(), square)


def test_f14_safetensors_load_onto_an_index(tmp_path: Path) -> None:
    """huggingface/safetensors #674, #578, #477: a device with an index was refused."""
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model

    path = str(tmp_path / "weights.safetensors")
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.ones(2).bfloat16()}
    save_file({name: value.to(SECOND) for name, value in tensors.items()}, path)
    for place, expected in ((DEVICE, FIRST), (SECOND, SECOND), ("cpu", "cpu")):
        loaded = load_file(path, device=place)
        assert loaded.keys() == tensors.keys()
        for name, value in tensors.items():
            assert str(loaded[name].device) == expected
            assert torch.equal(loaded[name].cpu(), value)
    with safe_open(path, framework="pt", device=SECOND) as file:
        assert torch.equal(file.get_slice("a")[1:].cpu(), tensors["a"][1:])
    net, again = make_net(0, SECOND), make_net(1, SECOND)
    save_model(net, path)
    load_model(again, path, device=SECOND)
    assert_equal_states(state_of(again), state_of(net))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_f17_a_tensor_sent_to_a_process_arrives_or_is_refused(method: str, script: Script) -> None:
    """pytorch/pytorch #170636, PR #196295: sending a device tensor was not supported."""
    process = script(
        f"""
        import torch
        import torch.multiprocessing as mp

        def receive(inbox, outbox):
            outbox.put(inbox.get(timeout=60).cpu().tolist())

        if __name__ == "__main__":
            context = mp.get_context("{method}")
            inbox, outbox = context.Queue(), context.Queue()
            x = torch.arange(3.0).to("neuron")
            try:
                from multiprocessing.reduction import ForkingPickler
                ForkingPickler.dumps(x)
            except (RuntimeError, NotImplementedError, TypeError) as error:
                assert "neuron" in str(error), error
                print("refused:", error)
            else:
                child = context.Process(target=receive, args=(inbox, outbox))
                child.start()
                inbox.put(x)
                assert outbox.get(timeout=60) == [0.0, 1.0, 2.0]
                child.join(60)
                assert child.exitcode == 0, child.exitcode
                print("arrived")
        """
    )
    assert "arrived" in process.stdout or "refused: " in process.stdout


def test_f13_saved_bytes_name_no_module_of_ours() -> None:
    """pytorch/pytorch #157884: a checkpoint must open where this package is not installed."""
    saved = BytesIO()
    torch.save({"x": torch.ones(2, device=DEVICE), "net": make_net(0, DEVICE).state_dict()}, saved)
    assert b"torchneuron" not in saved.getvalue()
    assert b"torch_neuronx" not in saved.getvalue()
