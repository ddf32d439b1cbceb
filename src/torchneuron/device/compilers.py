"""What Dynamo, AOTAutograd and Inductor are told about the device, through their own registries.

Each of their modules takes long to import and most programs never do, so each is told when somebody
else has imported it.
"""

from types import ModuleType
from typing import Any, NoReturn

from torchneuron import _C
from torchneuron.device import configuration
from torchneuron.device.amp import is_bf16_supported
from torchneuron.device.current import (
    current_device,
    device,
    device_count,
    is_available,
    set_device,
    synchronize,
)
from torchneuron.device.index import DeviceLike
from torchneuron.device.memory import memory_allocated
from torchneuron.device.on_import import after_import
from torchneuron.device.properties import (
    get_device_capability,
    get_device_name,
    get_device_properties,
)
from torchneuron.device.streams import Event, Stream, current_stream, set_stream, stream
from torchneuron.errors import CompileError

# Their answers do not change, so that a compiled function need not break where it asks.
_CONSTANT = (is_available, device_count, is_bf16_supported, get_device_name, get_device_capability)


def install() -> None:
    """Tell each compiler once it is imported."""
    for function in _CONSTANT:
        vars(function)["_dynamo_marked_constant"] = True
    after_import("torch._dynamo.device_interface", _register_interface)
    after_import("torch._functorch._aot_autograd.utils", _register_generators)
    after_import("torch._inductor.codegen.common", _register_refusal)


def exchange_device(index: int) -> int:
    """Make a device the current one and return which was; a negative index changes nothing."""
    before = current_device()
    set_device(index)
    return before


def _register_interface(module: ModuleType) -> None:
    """Describe the device to Dynamo, under its name and the name of each index."""

    class Worker:
        """Answer in processes that compile for others; nothing here is lost by a fork."""

        set_device = staticmethod(set_device)
        current_device = staticmethod(current_device)
        get_device_properties = staticmethod(get_device_properties)

    members = {
        "__doc__": "Describe the device `neuron` to Dynamo.",
        "Worker": Worker,
        "device": device,
        "Event": Event,
        "Stream": Stream,
        "exchange_device": staticmethod(exchange_device),
        "maybe_exchange_device": staticmethod(exchange_device),
        "get_compute_capability": staticmethod(get_device_capability),
        "is_bf16_supported": staticmethod(_computes_bf16),
        "get_raw_stream": staticmethod(_raw_stream),
        **{
            function.__name__: staticmethod(function)
            for function in (
                *(current_device, set_device, device_count, is_available, synchronize),
                *(stream, current_stream, set_stream, memory_allocated),
            )
        },
    }
    interface = type("NeuronInterface", (module.DeviceInterface,), members)

    def register(count: int) -> None:
        for index in range(count):
            module.register_interface_for_device(f"neuron:{index}", interface)

    module.register_interface_for_device("neuron", interface)
    # To import a compiler is no use of the device: it must not settle how many there are.
    if _C.is_configured():
        register(device_count())
    else:
        configuration.when_settled(lambda _, instance: register(instance.device_count))


def _computes_bf16(including_emulation: bool = False) -> bool:
    return is_bf16_supported()


def _raw_stream(device: DeviceLike = None) -> int:
    return current_stream(device).stream_id


def _register_generators(module: ModuleType) -> None:
    """Let PyTorch replay a draw from a copy of this device's generator."""
    module.register_graphsafe_rng_device_type("neuron")


class _NoInductor:
    """Refuse, wherever Inductor first needs code for the device."""

    supports_caching = False  # asked of the class before one is made

    def __init__(self, *_: Any) -> None:
        self.create()

    @staticmethod
    def create(*_: Any) -> NoReturn:
        """Say which backend there is."""
        raise CompileError(
            "Inductor writes no code for `neuron`",
            hint="torch.compile(model), or torch.compile(model, backend='neuron')",
        )


def _register_refusal(module: ModuleType) -> None:
    module.register_backend_for_device("neuron", *[_NoInductor] * 4)
    # Asked for first; a device without any fails there with a KeyError.
    module.register_device_op_overrides("neuron", module.DeviceOpOverrides())
