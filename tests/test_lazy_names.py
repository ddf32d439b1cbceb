import subprocess
import sys
import textwrap

import pytest

import torchneuron
from torchneuron import autoload
from torchneuron.errors import InstallError, NeuronError


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_alone_loads_neither_torch_nor_the_extension() -> None:
    loaded = run(
        """
        import sys, torchneuron
        torchneuron.explain, torchneuron.NeuronError, torchneuron.get_executed_ops, dir(torchneuron)
        print({"torch", "torchneuron._C", "torchneuron.device"} & set(sys.modules))
        """
    )
    assert loaded.strip() == "set()"


def test_names_that_need_no_device_resolve() -> None:
    from torchneuron import ledger

    assert torchneuron.explain is ledger.explain
    assert torchneuron.clear_op_tracking is ledger.clear_op_tracking
    assert torchneuron.NeuronError is NeuronError


def test_public_names_are_listed() -> None:
    documented = {"doctor", "emulate", "strict", "explain", "Stream", "Event", "synchronize"}
    assert documented | {"memory_allocated", "device_count"} <= set(torchneuron.__all__)
    assert dir(torchneuron) == sorted(torchneuron.__all__)


def test_unknown_name_suggests_the_near_one() -> None:
    with pytest.raises(AttributeError, match=r"`syncronize`; did you mean `synchronize`\?"):
        _ = torchneuron.syncronize


def test_name_of_the_device_registers_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise InstallError("the device `neuron` is not available: nothing is built")

    monkeypatch.setattr(autoload, "activate", refuse)
    monkeypatch.delitem(vars(torchneuron), "memory_reserved", raising=False)
    with pytest.raises(InstallError, match="nothing is built"):
        _ = torchneuron.memory_reserved


def test_version_is_one_that_packaging_understands() -> None:
    assert [part.isdigit() for part in torchneuron.__version__.split(".")] == [True] * 3
