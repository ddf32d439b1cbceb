"""PyTorch for AWS Trainium on any Linux machine: the device `neuron`, emulated.

`import torch` is enough to have the device. Importing this package loads no torch and registers
nothing; its names are resolved when they are used.
"""

from typing import Any

__version__ = "0.1.0"

_OF_DEVICE = (
    "Event Stream current_device current_stream default_stream device_count empty_cache "
    "get_device_capability get_device_name get_device_properties get_rng_state is_available "
    "manual_seed manual_seed_all max_memory_allocated max_memory_reserved mem_get_info "
    "memory_allocated memory_reserved "
    "memory_snapshot memory_stats memory_summary reset_peak_memory_stats seed set_device "
    "set_per_process_memory_fraction set_rng_state set_stream stream synchronize"
)
_MODULES = {
    **dict.fromkeys(_OF_DEVICE.split(), "torchneuron.device"),
    "emulate": "torchneuron.device.configuration",
    "strict": "torchneuron.device.strict",
    "doctor": "torchneuron.cli.diagnosis",
    "compile_stats": "torchneuron.compile.metrics",
    "get_dynamo_metrics": "torchneuron.compile.metrics",
    "export": "torchneuron.compile.export",
    "NeuronError": "torchneuron.errors",
    **dict.fromkeys(
        ("clear_op_tracking", "explain", "get_executed_ops", "get_fallback_ops"),
        "torchneuron.ledger",
    ),
}

_SUBMODULES = ("sparse",)

__all__ = ["__version__", *sorted((*_MODULES, *_SUBMODULES))]


def __getattr__(name: str) -> Any:
    """Resolve a public name, registering the device first where the name needs it."""
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    module = _MODULES.get(name)
    if module is None:
        from torchneuron.errors import suggestion

        near = suggestion(name, _MODULES) if not name.startswith("_") else ""
        raise AttributeError(f"module `torchneuron` has no attribute `{name}`; {near}".rstrip("; "))
    if module.startswith("torchneuron.device"):
        import_module("torchneuron.autoload").activate()
    globals()[name] = found = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
