"""Composition root: decide whether this process gets the device `neuron`, and put it together.

PyTorch calls `autoload()` at the end of `import torch` (entry point group `torch.backends`). It
registers the device unless something speaks against it: a switch, another accelerator that is in
use here, another backend that wants the only slot PyTorch has, or a broken installation. Nothing
that happens here breaks `import torch`; what goes wrong is said once, as a warning with its cause,
and `status()` keeps it for `torchneuron doctor`.

`activate()` registers the device later, when a name of `torchneuron` needs it.
"""

import glob
import importlib.metadata
import importlib.util
import logging
import os
import sys
import threading
import warnings
from typing import Any, Literal, NamedTuple

from torchneuron import alias, config
from torchneuron.errors import InstallError, NeuronError

DEVICE_NAME = "neuron"
ENTRY_POINT_GROUP = "torch.backends"
_FREE_SLOT = "privateuseone"
_OUR_METADATA = ("torchneuron-", "torchneuron.egg-info")

_log = logging.getLogger("torchneuron")
_lock = threading.RLock()

State = Literal["not started", "registered", "off", "waiting", "aside", "failed"]


class Status(NamedTuple):
    """Say what start-up decided.

    Attributes:
        state: `registered`; `off` (switched off); `waiting` (another accelerator is used here,
            the device comes when a name of torchneuron needs it); `aside` (another backend has or
            wants the slot); `failed`; `not started` (torch is not imported, or does not load
            backends).
        reason: One sentence, "" for `registered`.
        cause: The exception behind `failed`.
        alias: Why `import torch_neuronx` does not find torchneuron, "" where it does.
        hint: What to do about it, "" where nothing needs doing.
    """

    state: State = "not started"
    reason: str = "torch is not imported, or TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set"
    cause: BaseException | None = None
    alias: str = "the device is not registered"
    hint: str = "`torchneuron doctor` says what was looked at"


_status = Status()


def status() -> Status:
    """Return what start-up decided. Imports nothing and changes nothing. Stability: E."""
    return _status


def autoload() -> None:
    """Register the device if nothing speaks against it; the entry point that PyTorch calls.

    Never raises. Stability: S.
    """
    with _lock:
        if _status.state != "not started":
            return
        _attempt(asked=False)
        decided = status()
        if decided.state == "failed":
            _warn(f"the device `neuron` is not available: {decided.reason}", decided.hint)
        elif decided.state == "aside":
            _warn(f"TorchNeuron stands aside: {decided.reason}", decided.hint)


def activate() -> None:
    """Register the device now, because something needs it; returns at once if it is there.

    Imports torch if nobody has.

    Raises:
        InstallError: The device cannot be registered; the message says why.

    Stability: E.
    """
    if _status.state == "registered":
        return
    try:
        import torch  # before the lock is taken: whoever imports torch now will want it
    except ImportError as error:
        raise InstallError(
            f"the device `neuron` needs PyTorch: {error}", hint="pip install torch==2.13.0"
        ) from error
    with _lock:
        if status().state not in ("registered", "failed"):
            _attempt(asked=True)
        decided = status()
        if decided.state != "registered":
            raise InstallError(
                f"the device `neuron` is not available: {decided.reason}", hint=decided.hint
            ) from decided.cause
        # Answers that torch may have kept from before the device was there.
        torch.get_device_module.cache_clear()


def _attempt(*, asked: bool) -> None:
    """Decide, register if nothing speaks against it, and keep the outcome; never raise."""
    try:
        _record(_decide(asked=asked) or _register())
    except Exception as error:  # noqa: BLE001 (the caller warns or raises, with this as cause)
        if isinstance(error, NeuronError):
            _record(Status("failed", error.message, error, hint=error.hint))
        else:
            _record(Status("failed", f"{type(error).__name__}: {error}", error))


def _decide(*, asked: bool) -> Status | None:
    """Return why the device must not be registered, None if nothing speaks against it.

    Args:
        asked: Whether something needs the device, rather than PyTorch offering to load it.
    """
    import torch

    switch = config.autoload_switch()
    if switch == "off":
        return Status("off", "TORCHNEURON=0 is set", hint="unset TORCHNEURON")
    rival = _rival()
    if rival and not config.autoload_prefer():
        return _aside(f"{rival} is installed and PyTorch has room for one such backend")
    holder = torch._C._get_privateuse1_backend_name()
    if holder != _FREE_SLOT:
        return _aside(f"the backend `{holder}` is already registered in this process")
    if switch == "auto" and not asked and not trainium_visible():
        other = other_accelerator()
        if other:
            return Status(
                "waiting",
                f"{other} is used on this machine and there is no Trainium; "
                "TORCHNEURON=1 registers the device beside it",
            )
    if rival and not asked:
        _keep_out_later_backends()
    return None


def _aside(reason: str) -> Status:
    hint = (
        "uninstall one of the two, set TORCHNEURON_PREFER=1 to take this one, "
        "or TORCHNEURON=0 to silence this warning"
    )
    return Status("aside", reason, hint=hint)


def _rival() -> str:
    """Return what else wants the slot that PyTorch has for one outside backend, "" if nothing."""
    for name, owner in _other_entry_points():
        return f"the backend `{name}` ({owner})"
    return "torch_neuronx" if alias.spec_elsewhere(alias.NAME) is not None else ""


def _other_entry_points() -> list[tuple[str, str]]:
    """Return name and module of each backend that PyTorch would load besides this one."""
    if not _another_distribution_with_backends():
        return []
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return [(point.name, point.module) for point in points if not _is_ours(point)]


def _another_distribution_with_backends() -> bool:
    """Return whether the entry points of a distribution that is not this one name the group.

    Only looks for the group's name: parsing the entry points of everything that is installed, as
    importlib.metadata does, takes several milliseconds of every `import torch`.
    """
    wanted = f"[{ENTRY_POINT_GROUP}]".encode()
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue  # not there, or a zip file
        for name in names:
            if name.endswith((".dist-info", ".egg-info")) and not name.startswith(_OUR_METADATA):
                if wanted in _read(os.path.join(folder, name, "entry_points.txt")):
                    return True
    return False


def _read(path: str) -> bytes:
    """Return what the file holds, nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is_ours(point: importlib.metadata.EntryPoint) -> bool:
    return point.module.partition(".")[0] == "torchneuron"


def _keep_out_later_backends() -> None:
    """Make PyTorch skip the backends that it would load after this one.

    They would ask for the slot that is taken, fail, and break `import torch` with it.
    """
    points = list(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))
    ours = [index for index, point in enumerate(points) if _is_ours(point)]
    later = {point.name for point in points[ours[-1] + 1 :]} if ours else set()
    entry_point: Any = importlib.metadata.EntryPoint
    load = entry_point.load

    def load_unless_kept_out(point: importlib.metadata.EntryPoint) -> Any:
        if point.group != ENTRY_POINT_GROUP or point.name not in later:
            return load(point)
        later.discard(point.name)
        if not later:
            entry_point.load = load
        _log.debug("TORCHNEURON_PREFER=1: the backend `%s` is not loaded", point.name)
        return lambda: None

    if later:
        entry_point.load = load_unless_kept_out


def trainium_visible() -> bool:
    """Return whether the Neuron driver shows a device on this machine."""
    return bool(glob.glob("/dev/neuron[0-9]*"))


def other_accelerator() -> str:
    """Return the name of an accelerator that PyTorch can use here, "" if there is none.

    Asks in the ways that leave the process able to fork (torch/cuda/__init__.py, device_count).
    """
    import torch

    if torch.backends.cuda.is_built() and torch.cuda.device_count() > 0:
        return "CUDA"
    if torch.xpu._is_compiled() and torch.xpu.device_count() > 0:
        return "XPU"
    return "MPS" if torch.backends.mps.is_available() else ""


def _check_build() -> None:
    """Refuse an extension that is absent or was built for another torch.

    Raises:
        InstallError: There is no extension for the torch that is installed.
    """
    import torch

    unbuilt = InstallError(
        "the C++ extension is not built", hint="pip install . (in the source tree)"
    )
    try:
        from torchneuron import _build_info
    except ImportError as error:
        raise unbuilt from error
    if importlib.util.find_spec("torchneuron._C") is None:
        raise unbuilt
    built, found = (
        str(each).partition("+")[0] for each in (_build_info.TORCH_VERSION, torch.__version__)
    )
    if built != found:
        raise InstallError(
            f"it was built for torch {built}, and torch {found} is installed",
            hint=f"pip install torch=={built}",
        )


def _register() -> Status:
    """Register the device with torch and put the parts together.

    Raises:
        InstallError: The extension is missing, broken or for another torch.
    """
    _check_build()
    import torch
    from torch.utils import backend_registration

    other = other_accelerator()
    if not other:
        _start_autograd_engine()
    try:
        from torchneuron import _C
    except ImportError as error:
        raise InstallError(
            f"the C++ extension does not load: {error}",
            hint=f"pip install --force-reinstall torch=={torch.__version__.partition('+')[0]}, "
            "then install torchneuron again",
        ) from error
    from torchneuron import device, ledger
    from torchneuron.device import (
        amp,
        announce,
        compilers,
        configuration,
        frames,
        patches,
        refusals,
    )
    from torchneuron.device.compiler_replacements import set_compile_backend
    from torchneuron.device.on_import import after_import

    backend_registration.rename_privateuse1_backend(DEVICE_NAME)
    torch._register_device_module(DEVICE_NAME, device)
    for name in [name for name in sys.modules if name.startswith("torchneuron.device.")]:
        # `import torch.neuron.memory` must find the module, not load a second one.
        sys.modules[f"torch.{DEVICE_NAME}{name.removeprefix('torchneuron.device')}"] = sys.modules[
            name
        ]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    _C.set_configure(configuration.resolve)
    configuration.when_settled(refusals.settle)
    configuration.when_settled(_lower_eager)
    _C.set_library_prefixes(frames.library_folders())
    torch.set_autocast_dtype(DEVICE_NAME, amp.DEFAULT_AUTOCAST_DTYPE)
    ledger.attach(_C)
    ledger.add_sink(announce.announce)
    # load_cache_artifacts imports this module for the artifact that it registers.
    after_import("torch._functorch._aot_autograd.autograd_cache", _register_artifacts)
    set_compile_backend(lambda: importlib.import_module("torchneuron.compile.backend").neuron)
    compilers.install()
    patches.apply(skip=frozenset({"grad-scaler", "fork-rng"}) if other else frozenset())
    return Status("registered", "", alias=alias.install(), hint="")


def _register_artifacts(_: object) -> None:
    importlib.import_module("torchneuron.compile.register")


def _lower_eager(settings: config.Config, _: object) -> None:
    """Have eager operators run as programs where that is asked for."""
    if settings.eager == "lowered":
        from torchneuron import _C

        def run(name: str, arguments: list[Any]) -> list[Any] | None:
            # Imported at the first operator: it imports parts of torch that are slow to load.
            lowered = importlib.import_module("torchneuron.eager.lowered")
            made: list[Any] | None = lowered.run(name, arguments)
            return made

        _C.set_lowered(run)


def _start_autograd_engine() -> None:
    """Run one tiny backward on the CPU while autograd knows no neuron device.

    The engine counts devices when it starts. Started later, it would give every CPU program one
    thread per neuron device and could not run in a forked child (torch/csrc/autograd/engine.cpp).
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        # A scalar without a given gradient: checking the shape of one would import sympy.
        torch.zeros((), device="cpu", requires_grad=True).backward()


def _record(decided: Status) -> None:
    global _status
    _status = decided
    _log.debug("start-up: %s %s", decided.state, decided.reason)


def _warn(message: str, hint: str) -> None:
    """Warn once; where warnings are errors, log instead, since `import torch` must go on."""
    text = f"{message}\n\nhint: {hint}"
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        _log.warning(text)
