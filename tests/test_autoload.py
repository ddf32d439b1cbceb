"""Start-up: when the device is registered, when it is not, and that `import torch` always works."""

import functools
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from behaviour.script import run_script
from device.forking import fork_server

Script = Callable[..., CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run a script in a process that has torch and has loaded no backend yet."""
    return functools.partial(fork_server(loaded=False).run, folder=tmp_path)


@pytest.fixture
def fresh_script(tmp_path: Path) -> Script:
    """Run a script in a process that has not imported torch."""
    return functools.partial(run_script, folder=tmp_path)


STATUS = """
import torch
torch._import_device_backends()
from torchneuron import autoload
status = autoload.status()
print(status.state, "|", status.reason)
assert hasattr(torch, "neuron") == (status.state == "registered")
assert torch.ones(2).sum().item() == 2
"""


def test_import_torch_is_enough(fresh_script: Script) -> None:
    process = fresh_script(STATUS.replace("torch._import_device_backends()", ""))
    assert process.stdout == "registered | \n" and process.stderr == ""


def test_importing_the_package_imports_no_torch_and_registers_nothing(fresh_script: Script) -> None:
    fresh_script(
        """
        import sys, torchneuron
        from torchneuron import autoload, config, errors
        torchneuron.__version__, torchneuron.NeuronError
        assert "torch" not in sys.modules
        assert autoload.status().state == "not started"
        """
    )


def test_a_name_that_needs_the_device_registers_it(fresh_script: Script) -> None:
    fresh_script(
        """
        import sys, torchneuron
        assert torchneuron.device_count() == 4
        assert sys.modules["torch"].neuron.is_available()
        """
    )


def test_a_name_registers_where_torch_loads_no_backends(script: Script) -> None:
    script(
        """
        import torch, torchneuron
        from torchneuron import autoload
        assert autoload.status().state == "not started" and not hasattr(torch, "neuron")
        torchneuron.Stream
        assert autoload.status().state == "registered" and torch.neuron.is_available()
        """
    )


def test_off_switch_keeps_the_device_away(script: Script) -> None:
    process = script(
        STATUS
        + """
import torchneuron
try:
    torchneuron.Stream
except torchneuron.NeuronError as error:
    assert "TORCHNEURON=0" in str(error)
else:
    raise AssertionError
assert torch.accelerator.current_accelerator() is None
""",
        env={"TORCHNEURON": "0"},
    )
    assert process.stdout.startswith("off | TORCHNEURON=0") and process.stderr == ""


def test_a_bad_switch_counts_as_unset_and_speaks_at_first_use(script: Script) -> None:
    process = script(
        STATUS
        + """
from torchneuron.errors import ConfigError
try:
    torch.ones(1, device="neuron")
except ConfigError as error:
    assert "TORCHNEURON has the value `perhaps`" in str(error)
else:
    raise AssertionError
""",
        env={"TORCHNEURON": "perhaps"},
    )
    assert process.stderr == ""


CUDA = """
import torch
torch.backends.cuda.is_built = lambda: True
torch.cuda.device_count = lambda: 1
"""


def with_cuda(source: str) -> str:
    """Return a script that sees one CUDA device when start-up looks."""
    return CUDA + source


def test_beside_cuda_nothing_is_registered(script: Script) -> None:
    process = script(
        with_cuda(STATUS + "assert torch._C._get_privateuse1_backend_name() == 'privateuseone'")
    )
    assert process.stdout.startswith("waiting | CUDA") and process.stderr == ""


def test_beside_cuda_a_name_that_needs_the_device_registers_it(script: Script) -> None:
    script(
        with_cuda(
            STATUS
            + """
import torchneuron
from torchneuron.device import patches
torchneuron.emulate("trn2.3xlarge")
assert autoload.status().state == "registered"
assert torch.ones(2, device="neuron").sum().item() == 2
states = {row.name: row.state for row in patches.rows()}
assert states["grad-scaler"] == states["fork-rng"] == "skipped: switched off"
"""
        )
    )


def test_beside_cuda_the_switch_registers_it(script: Script) -> None:
    process = script(with_cuda(STATUS), env={"TORCHNEURON": "1"})
    assert process.stdout.startswith("registered")


def test_beside_cuda_and_a_trainium_it_is_registered(script: Script) -> None:
    trainium = "import torchneuron.autoload as a; a.trainium_visible = lambda: True\n"
    assert script(with_cuda(trainium + STATUS)).stdout.startswith("registered")


def broken(what: str) -> str:
    """Return a script whose start-up meets something broken in our installation."""
    return f"import sys, types\n{what}\n{STATUS}{REFUSED}"


REFUSED = """
autoload.autoload()
import torchneuron
try:
    torchneuron.Stream
except torchneuron.NeuronError as error:
    assert error.__cause__ is status.cause is not None
    print(error)
else:
    raise AssertionError
"""


BUILD_INFO = """
fake = types.ModuleType("torchneuron._build_info")
fake.TORCH_VERSION = {version!r}
sys.modules["torchneuron._build_info"] = fake
"""


def test_another_torch_version_is_one_warning_with_the_pip_line(script: Script) -> None:
    process = script(broken(BUILD_INFO.format(version="2.12.1+cpu")))
    assert process.stdout.startswith("failed")
    assert process.stderr.count("RuntimeWarning") == 1
    for expected in ("torch 2.12.1", "torch 2.13.0", "hint: pip install torch==2.12.1"):
        assert expected in process.stderr


def test_another_build_of_the_same_torch_version_is_fine(script: Script) -> None:
    source = "import sys, types" + BUILD_INFO.format(version="2.13.0+cu130") + STATUS
    assert script(source).stdout.startswith("registered")


def test_unbuilt_extension_is_one_warning(script: Script) -> None:
    process = script(broken("sys.modules['torchneuron._build_info'] = None"))
    assert process.stderr.count("RuntimeWarning") == 1 and "is not built" in process.stderr
    assert "pip install ." in process.stderr


BAD_LOADER = """
import importlib.abc, importlib.machinery
class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            return importlib.machinery.ModuleSpec(name, self)
    def exec_module(self, module):
        raise {error}
sys.meta_path.insert(0, Broken())
"""


def test_broken_extension_is_one_warning_with_its_cause(script: Script) -> None:
    error = "ImportError('undefined symbol: _ZN2at4_ops')"
    process = script(broken(BAD_LOADER.format(name="torchneuron._C", error=error)))
    assert process.stderr.count("RuntimeWarning") == 1
    for expected in ("does not load: undefined symbol", "hint: pip install --force-reinstall"):
        assert expected in process.stderr


def test_an_exception_of_any_kind_is_one_warning(script: Script) -> None:
    error = "ZeroDivisionError('a fault of ours')"
    process = script(broken(BAD_LOADER.format(name="torchneuron.device", error=error)))
    assert process.stderr.count("RuntimeWarning") == 1
    assert "ZeroDivisionError: a fault of ours" in process.stderr


def test_warnings_as_errors_do_not_break_import_torch(script: Script) -> None:
    errors = "import warnings; warnings.simplefilter('error', RuntimeWarning)\n"
    process = script(errors + broken(BUILD_INFO.format(version="2.12.1")))
    assert process.stdout.startswith("failed") and "torch 2.12.1" in process.stderr


def test_import_in_a_thread(fresh_script: Script) -> None:
    fresh_script(
        """
        import threading
        def work():
            import torch
            assert torch.ones(2, device="neuron").sum().item() == 2
        thread = threading.Thread(target=work)
        thread.start(); thread.join()
        import torch
        assert torch.neuron.is_available()
        with torch.autocast("neuron"):
            x = torch.ones(2, 2, device="neuron")
            assert (x @ x).dtype == torch.bfloat16
        """
    )


def test_a_name_is_used_while_another_thread_imports_torch(fresh_script: Script) -> None:
    fresh_script(
        """
        import sys, threading, time
        import torchneuron
        thread = threading.Thread(target=lambda: __import__("torch"))
        thread.start()
        while "torch" not in sys.modules:
            time.sleep(0.001)
        assert torchneuron.device_count() == 4
        thread.join()
        """
    )


def test_activation_from_many_threads_registers_once(script: Script) -> None:
    script(
        """
        import threading, torch
        from torchneuron import autoload
        failures = []
        def work():
            try:
                autoload.activate()
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failures and torch.neuron.is_available()
        """
    )


NO_SOCKETS = """
import socket
def refuse(*arguments, **options):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


def test_no_network_at_import_and_use(fresh_script: Script) -> None:
    fresh_script(
        NO_SOCKETS
        + """
import torch, torchneuron
x = torch.ones(4, 4, device="neuron", requires_grad=True)
(x @ x).sum().backward()
with torchneuron.strict("dtype"), torchneuron.explain():
    x.sum().item()
"""
    )


def test_torch_logs_takes_our_name(fresh_script: Script) -> None:
    process = fresh_script(STATUS, env={"TORCH_LOGS": "+torchneuron"})
    assert process.stdout.startswith("registered")


def test_entry_function_is_quick(script: Script) -> None:
    """Guard the order of magnitude; the benchmark holds the gate of 30 ms."""
    process = script(
        """
        import time
        begin = time.process_time()
        from torchneuron.autoload import autoload
        autoload()
        print(time.process_time() - begin)
        """
    )
    assert float(process.stdout) < 1.0
