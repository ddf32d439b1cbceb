"""Section D, developing without hardware."""

import importlib.metadata
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn

from behaviour.subject import DEVICE, FIRST, assert_runs_the_same, with_gradients

Script = Callable[..., CompletedProcess[str]]

QUICK_START = """
    import glob
    import torch

    assert not glob.glob("/dev/neuron*"), "this machine has a Trainium: the test shows nothing"
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model.to("neuron")
    x = torch.randn(16, 4, device="neuron")
    y = x.sum(1, keepdim=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for call in (model, torch.compile(model)):
        for _ in range(20):
            optimizer.zero_grad()
            loss = (call(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[20] < losses[0], losses
    properties = torch.neuron.get_device_properties()
    assert properties.emulated and properties.runtime == "host", properties
    print(torch.neuron.get_device_name())
    """


@pytest.mark.slow
def test_d01_the_quick_start_runs_without_a_device_or_a_home(script: Script) -> None:
    """aws-neuron-sdk #910, #942, #944, #458: nothing could be tried on a laptop.

    Nor in a bare job of a CI, which has no home to keep programs in.
    """
    done = script(
        QUICK_START,
        env={"HOME": "/proc/none", "XDG_CACHE_HOME": None, "TORCHNEURON_CACHE_DIR": None},
    )
    assert done.stdout == "neuron trn2 (emulated)\n"
    assert done.stderr.count("a compiled program cannot be kept") == 1
    assert done.stderr.endswith("set TORCHNEURON_CACHE_DIR to a directory that can be written\n")


def test_d02_a_missing_driver_is_one_sentence(script: Script) -> None:
    """aws-neuron/aws-neuron-sdk #902: first use ended in a status code of the driver."""
    done = script(
        """
        import torch
        assert torch.ones(2).sum().item() == 2
        torch.ones(2, device="neuron")
        """,
        env={"TORCHNEURON_RUNTIME": "nrt"},
        returncode=1,
    )
    said = done.stderr.partition("RuntimeUnavailableError: ")[2].splitlines()
    assert said[0].startswith("TORCHNEURON_RUNTIME=nrt is not available: ")
    assert said[0].endswith("[NRN902]")
    assert said[2] == "hint: unset TORCHNEURON_RUNTIME, or set it to host"
    assert len(said) == 3


def test_d02_doctor_fails_for_a_missing_runtime(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """aws-neuron/aws-neuron-sdk #902: the next step, and an exit code that scripts can read."""
    from torchneuron.cli import main

    assert main(["doctor"]) == 0
    monkeypatch.setenv("TORCHNEURON_RUNTIME", "nrt")
    capsys.readouterr()
    assert main(["doctor"]) == 3
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "FAIL  runtime  " in line]
    assert "TORCHNEURON_RUNTIME=nrt is not available" in line
    assert line.endswith("-> unset TORCHNEURON_RUNTIME, or set it to host")


def test_d04_doctor_says_how_to_load_without_autoload(script: Script) -> None:
    """pytorch/pytorch #180712: with autoload off the device error did not help.

    The error itself is PyTorch's, raised before anything of ours is imported.
    """
    done = script(
        """
        import torch
        try:
            torch.device("neuron")
        except RuntimeError as error:
            assert "neuron" in str(error)
        else:
            raise AssertionError("registered although autoload is off")

        import torchneuron
        report = str(torchneuron.doctor())
        (line,) = [line for line in report.splitlines() if line.startswith("WARN  device  ")]
        print(line)
        assert torchneuron.device_count() > 0
        assert torch.ones(2, device=torch.device("neuron")).sum().item() == 2
        """,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert (
        "unset TORCH_DEVICE_BACKEND_AUTOLOAD, or call `torchneuron.device_count()`" in done.stdout
    )


def test_d05_one_installation_brings_everything() -> None:
    """Lightning-AI/pytorch-lightning #15172: a library's CI has no hardware and installs by pip.

    tests/install builds the wheel and installs it, test_d01 runs in a bare environment; here is
    what the package asks pip for and what makes PyTorch find it.
    """
    metadata = importlib.metadata.distribution("torchneuron")
    needed = [each for each in metadata.requires or [] if "extra ==" not in each]
    names = {each.partition("=")[0].partition(">")[0].strip() for each in needed}
    assert names <= {"torch", "jaxlib", "numpy", "ml_dtypes", "ml-dtypes"}
    groups = {(point.group, point.name) for point in metadata.entry_points}
    assert ("torch_dynamo_backends", "neuron") in groups
    assert any(group == "torch.backends" for group, _ in groups)


DTYPES = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]
FIXED_POINT = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_d07_every_dtype_goes_to_the_device_and_back() -> None:
    """aws-neuron/aws-neuron-sdk #446, #872: a tensor could not be moved, or moving crashed."""
    bits = torch.arange(128, dtype=torch.uint8)
    moved_over = set()
    for dtype in sorted(set(DTYPES) - FIXED_POINT, key=str):
        try:
            x = (bits % 2 if dtype == torch.bool else bits).view(dtype)
        except (RuntimeError, NotImplementedError):
            continue  # types of less than a byte, which PyTorch gives no storage
        for copy in (x.to(DEVICE), x.to(FIRST, non_blocking=True), x[4:].to(DEVICE)):
            assert str(copy.device) == FIRST and copy.dtype == dtype
            assert torch.equal(copy.cpu().view(torch.uint8), x.view(torch.uint8)[-copy.nbytes :])
        moved_over.add(dtype)
    assert len(moved_over) >= 20


@pytest.mark.filterwarnings("ignore")
def test_d07_layouts_are_kept_or_refused_clearly() -> None:
    """aws-neuron/aws-neuron-sdk #446, #872: the same for each layout of a tensor."""
    x = torch.arange(36.0).reshape(1, 4, 3, 3)
    last = x.to(memory_format=torch.channels_last).to(DEVICE)
    assert last.is_contiguous(memory_format=torch.channels_last)
    z = torch.complex(x, -x).conj()
    assert torch.equal(z.to(DEVICE).cpu(), z) and torch.equal(z.imag.to(DEVICE).cpu(), z.imag)
    assert torch.tensor(3.0).to(DEVICE).item() == 3 and torch.zeros(0, 3).to(DEVICE).shape == (0, 3)
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged).to(DEVICE)
    assert jagged.layout == torch.jagged and str(jagged.values().device) == FIRST

    square = torch.eye(4)
    for other in (square.to_sparse(), square.to_sparse_csr(), square.to_sparse_bsr((2, 2))):
        assert other.to(DEVICE).layout == other.layout
        assert torch.equal(other.to(DEVICE).to_dense().cpu(), square)
    with pytest.raises(NotImplementedError, match="mkldnn layout: neuron"):
        square.to_mkldnn().to(DEVICE)


@pytest.mark.filterwarnings("ignore")
def test_d07_nested_tensors_move_and_quantized_ones_are_refused_clearly() -> None:
    """aws-neuron/aws-neuron-sdk #446, #872: what goes to the device arrives there whole."""
    x = torch.arange(12.0).reshape(3, 4)
    there = torch.nested.nested_tensor([x, x[:2]]).to(DEVICE)
    assert torch.equal(there.unbind()[1].cpu(), x[:2])
    with pytest.raises(NotImplementedError, match="hint: .*dequantize"):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).to(DEVICE)


def test_d07_modules_keep_what_they_share() -> None:
    """aws-neuron/aws-neuron-sdk #446, #872: the same for whole modules."""
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False))
    net[2].weight = net[0].weight
    net.register_buffer("scale", torch.tensor(2.0))
    x = torch.randint(5, (3,))

    def run(net: Any, x: torch.Tensor) -> torch.Tensor:
        return net(x) * net.scale

    assert_runs_the_same(with_gradients(run), net, x)
    assert net.to(DEVICE)[2].weight is net[0].weight
    assert nn.LazyLinear(2).to(DEVICE)(torch.ones(1, 3, device=DEVICE)).shape == (1, 2)


def test_d07_parameters_without_data_are_refused_clearly() -> None:
    """aws-neuron/aws-neuron-sdk #872: a module made on `meta` has nothing to move."""
    with pytest.raises(NotImplementedError, match=r"to_empty\(\)"):
        nn.Linear(3, 2, device="meta").to(DEVICE)
    net = nn.Linear(3, 2, device="meta").to_empty(device=DEVICE)
    net.load_state_dict(nn.Linear(3, 2).state_dict())
    assert str(net.weight.device) == FIRST
