"""Settle the emulated instance, once, at the first use of the device.

The extension calls `resolve` when it first needs to know how many devices there are. Until then
settings can change: the environment, or `emulate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torchneuron import _C, config
from torchneuron.config import Config
from torchneuron.errors import InstanceError, LateConfigurationError, RuntimeUnavailableError

if TYPE_CHECKING:  # `import torch` pays for what is imported here; first use pays for the rest
    from torchneuron.chips import EmulatedInstance

_RUNTIMES = ("auto", "host")

_chosen_instance: str | None = None
_chosen_lnc: int | None = None
_settled: EmulatedInstance | None = None
_when_settled: list[Callable[[Config, EmulatedInstance], None]] = []


def emulate(instance: str | None = None, lnc: int | None = None) -> None:
    """Choose the emulated instance; possible until the device is first used.

    Args:
        instance: Name such as `trn2.48xlarge`; `torchneuron chips` lists them. Left out, the
            one that TORCHNEURON_INSTANCE names.
        lnc: Physical cores per logical core, 1 or 2. Left out, the one that
            NEURON_LOGICAL_NC_CONFIG names.

    Raises:
        LateConfigurationError: The device has been used.
        InstanceError: The instance is unknown or not emulated.
        CoreSelectionError: The instance does not offer that LNC or the visible cores.
        ConfigError: Another setting does not make sense.

    Example:
        >>> torchneuron.emulate(instance="trn2.48xlarge")
        >>> torch.neuron.device_count()
        64

    Stability: E.
    """
    global _chosen_instance, _chosen_lnc
    if _C.is_configured():
        raise LateConfigurationError(
            f"emulate(instance={instance!r}, lnc={lnc!r}) comes too late: {describe()} is in use",
            hint="call it before the first use of the device, or set TORCHNEURON_INSTANCE",
        )
    _work_out(config.load(), instance, lnc)
    _chosen_instance, _chosen_lnc = instance, lnc


def resolve() -> tuple[int, int, str]:
    """Return the number of devices, the bytes of memory of each, and the instance's name.

    Raises:
        ConfigError: A setting does not make sense.
        RuntimeUnavailableError: A runtime was asked for by name and is not there.
    """
    global _settled
    settings = config.load()
    if settings.runtime not in _RUNTIMES:
        raise RuntimeUnavailableError(
            f"TORCHNEURON_RUNTIME={settings.runtime} is not available: "
            "this version has the emulation (`host`) only",
            hint="unset TORCHNEURON_RUNTIME, or set it to host",
        )
    _settled = _work_out(settings, _chosen_instance, _chosen_lnc)
    for act in _when_settled:
        act(settings, _settled)
    return _settled.device_count, _settled.hbm_bytes_per_core, _settled.name


def when_settled(act: Callable[[Config, EmulatedInstance], None]) -> None:
    """Call `act` with the settings and the instance when they are settled."""
    _when_settled.append(act)


def settled() -> EmulatedInstance:
    """Return the emulated instance, settling it if that has not happened.

    Raises:
        ConfigError: A setting does not make sense.
        RuntimeUnavailableError: A runtime was asked for by name and is not there.
    """
    _C.configure()
    if _settled is None:
        raise RuntimeUnavailableError(
            "the device was configured by something else than torchneuron"
        )
    return _settled


def describe() -> str:
    """Return the words for the instance in messages."""
    return f"the emulated {settled().name}"


def _work_out(settings: Config, instance: str | None, lnc: int | None) -> EmulatedInstance:
    from torchneuron import chips

    try:
        return chips.resolve(
            instance=settings.instance if instance is None else instance,
            lnc=settings.lnc if lnc is None else lnc,
            visible_cores=settings.visible_cores,
            num_cores=settings.num_cores,
        )
    except InstanceError as error:
        if instance is not None:
            raise
        raise InstanceError(
            f"TORCHNEURON_INSTANCE={settings.instance}: {error.message}", hint=error.hint
        ) from error
