"""A user's mistake is one clear error with a hint, and never breaks `import torch`."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from behaviour.subject import DEVICE, SECOND

Script = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.ones(1, device="neuron:99"),
        lambda: torch.ones(1).to("neuron:4"),
        lambda: torch.ones(1, device=DEVICE).to("neuron:64"),
        lambda: torch.neuron.set_device(17),
        lambda: torch.neuron.memory_allocated(4),
        lambda: torch.neuron.get_device_properties(-2),
        lambda: torch.neuron.mem_get_info(9),
        lambda: torch.neuron.synchronize(9),
        lambda: torch.neuron.device(9).__enter__(),
        lambda: torch.Generator(device="neuron:9"),
        lambda: torch.neuron.manual_seed_all("x"),
    ],
)
def test_a_device_that_does_not_exist_is_named(use: Callable[[], Any]) -> None:
    current = torch.neuron.current_device()
    with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
        use()
    assert len(str(caught.value).splitlines()[0]) > 20
    assert torch.neuron.current_device() == current
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_a_wrong_index_tells_how_many_devices_there_are() -> None:
    for use in (lambda: torch.neuron.set_device(9), lambda: torch.ones(1, device="neuron:9")):
        with pytest.raises(RuntimeError) as caught:
            use()
        text = str(caught.value)
        assert "9" in text and "4" in text and "hint:" in text, text


BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "in_place": lambda x, y: x.mul_(y),
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "linear": lambda x, y: torch.nn.functional.linear(x, y),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "out": lambda x, y: torch.add(x, x, out=y),
    "equal": lambda x, y: torch.equal(x, y),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
    "lerp": lambda x, y: torch.lerp(x, x, y),
    "conv": lambda x, y: torch.nn.functional.conv1d(x[None], y[:, :, None]),
    "loss": lambda x, y: torch.nn.functional.mse_loss(x, y),
    "attention": lambda x, y: torch.nn.functional.scaled_dot_product_attention(
        x[None], x[None], y[None]
    ),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("other", ["cpu", SECOND])
def test_tensors_on_two_devices_are_refused(name: str, other: str) -> None:
    x = torch.ones(3, 3, device=DEVICE)
    y = torch.ones(3, 3, device=other)
    for one, two in ((x, y), (y, x)):
        with pytest.raises(RuntimeError) as caught:
            BINARY[name](one, two)
        text = str(caught.value)
        assert "neuron" in text and "device" in text, text
    assert bool((x == 1).all()) and bool((y == 1).all())


def test_the_error_for_two_devices_names_both_and_a_remedy() -> None:
    for other in ("cpu", SECOND):
        with pytest.raises(RuntimeError) as caught:
            torch.ones(2, device=DEVICE) + torch.ones(2, device=other)
        text = str(caught.value)
        assert "neuron:0" in text and other in text and "hint:" in text, text


def test_zero_dimensional_cpu_numbers_may_be_mixed_in() -> None:
    x = torch.ones(3, device=DEVICE)
    assert (x * torch.tensor(2.0)).tolist() == [2.0] * 3
    assert (torch.tensor(2.0) - x).tolist() == [1.0] * 3
    assert x[torch.tensor([0, 2])].tolist() == [1.0, 1.0]
    x[torch.tensor([True, False, True])] = torch.tensor(5.0)
    assert x.tolist() == [5.0, 1.0, 5.0]
    with pytest.raises(RuntimeError, match="device"):
        x * torch.tensor(2.0, device=SECOND)


BAD_VARIABLES = {
    "TORCHNEURON_INSTANCE": ["trn9.huge", "trn2.48xlareg"],
    "TORCHNEURON_STRICT": ["loud"],
    "TORCHNEURON_RUNTIME": ["gpu"],
    "TORCHNEURON_INSTANSE": ["trn2.3xlarge"],
    "NEURON_RT_NUM_CORES": ["many", "-1", "999"],
    "NEURON_RT_VISIBLE_CORES": ["9-3", "0,0", "a", "0-99"],
    "NEURON_LOGICAL_NC_CONFIG": ["7", "two"],
}

TRY_VARIABLES = """
    import json, os, sys
    import torch
    import torchneuron

    def attempt(name, value, write):
        os.environ[name] = value
        torch.manual_seed(0)
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        said = {"count": torch.neuron.device_count(), "available": torch.neuron.is_available()}
        for use in range(2):
            try:
                torch.ones(1, device="neuron")
            except Exception as error:
                said["text"] = str(error)
                said["kinds"] = [cls.__name__ for cls in type(error).__mro__]
        os.write(write, json.dumps(said).encode())

    results = {}
    for name, values in json.loads(sys.stdin.read()).items():
        for value in values:
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    attempt(name, value, write)
                    status = 0
                finally:
                    os._exit(status)
            os.close(write)
            said = b""
            while piece := os.read(read, 65536):
                said += piece
            status = os.waitpid(pid, 0)[1]
            results[f"{name}={value}"] = {"status": status, **json.loads(said or b"{}")}
    print(json.dumps(results))
    """


def test_a_bad_variable_is_one_clear_error_at_first_use(script: Script) -> None:
    source = TRY_VARIABLES.replace("sys.stdin.read()", repr(json.dumps(BAD_VARIABLES)))
    results = json.loads(script(source).stdout.splitlines()[-1])
    assert len(results) == sum(len(values) for values in BAD_VARIABLES.values())
    for setting, said in results.items():
        name, _, value = setting.partition("=")
        assert said["status"] == 0, (setting, said)
        assert said["count"] == 0 and said["available"] is False, (setting, said)
        text = said.get("text", "")
        assert name in text and value in text and "hint:" in text, (setting, text)
        assert "NeuronError" in said["kinds"], (setting, said["kinds"])
    assert "trn2.48xlarge" in results["TORCHNEURON_INSTANCE=trn2.48xlareg"]["text"]
    assert "TORCHNEURON_INSTANCE" in results["TORCHNEURON_INSTANSE=trn2.3xlarge"]["text"]


def test_import_torch_works_whatever_is_set(script: Script) -> None:
    process = script(
        """
        import torch

        torch.manual_seed(1)
        x = torch.randn(3, requires_grad=True)
        x.square().sum().backward()
        assert torch.equal(x.grad, 2 * x.detach())
        print("fine")
        """,
        env={name: values[0] for name, values in BAD_VARIABLES.items()},
        flags=("-W", "error"),
    )
    assert process.stdout.strip() == "fine"
    assert not process.stderr


def test_too_many_visible_cores_name_the_variable(script: Script) -> None:
    process = script(
        """
        import os
        os.environ["TORCHNEURON_INSTANCE"] = "trn2.48xlarge"
        os.environ["NEURON_LOGICAL_NC_CONFIG"] = "1"
        import torch
        try:
            torch.ones(1, device="neuron")
        except Exception as error:
            print(error)
        """
    )
    assert "NEURON_RT_VISIBLE_CORES" in process.stdout
    assert "127" in process.stdout and "hint:" in process.stdout


def test_emulate_refuses_unknown_and_late_choices(script: Script) -> None:
    process = script(
        """
        import torch
        import torchneuron

        def said(**choice):
            try:
                torchneuron.emulate(**choice)
                torch.ones(1, device="neuron")
            except torchneuron.NeuronError as error:
                return str(error)

        text = said(instance="trn2.49xlarge")
        assert "trn2.49xlarge" in text and "trn2.48xlarge" in text and "hint:" in text, text
        torchneuron.emulate(instance="trn2.48xlarge", lnc=2)
        assert torch.neuron.device_count() == 64
        torch.ones(1, device="neuron:63")
        text = said(instance="trn2.3xlarge")
        assert text and "hint:" in text, text
        assert torch.neuron.device_count() == 64
        """
    )
    assert not process.stderr


def test_values_that_mean_the_default_are_no_errors(script: Script) -> None:
    """An empty value counts as unset; 0 cores are all of them in the vendor's runtime."""
    for name, value in (("TORCHNEURON_INSTANCE", ""), ("NEURON_RT_NUM_CORES", "0")):
        source = f"""
            import os
            os.environ[{name!r}] = {value!r}
            import torch
            assert torch.neuron.device_count() == 4, torch.neuron.device_count()
            assert torch.ones(2, device="neuron:3").sum().item() == 2
        """
        script(source)
