"""The probes of `torchneuron doctor`: each looks at one thing and says it in one line."""

import ctypes.util
import glob
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchneuron import autoload, chips, config
from torchneuron.chips import EmulatedInstance
from torchneuron.errors import ArgumentError, NeuronError
from torchneuron.targets import load_target

Level = Literal["OK", "WARN", "FAIL", "INFO"]

_LIBNRT = Path("/opt/aws/neuron/lib/libnrt.so.1")
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PYTHONS = ((3, 11), (3, 15))


@dataclass(frozen=True, slots=True)
class Probe:
    """Hold what one probe found; `remedy` is empty where nothing needs to be done."""

    level: Level
    subject: str
    reason: str
    remedy: str = ""


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def python() -> Probe:
    """Look at the interpreter."""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if _PYTHONS[0] <= sys.version_info[:2] < _PYTHONS[1]:
        return Probe("OK", "python", found)
    return Probe("WARN", "python", f"{found} is outside 3.11 to 3.14", "use a tested Python")


def system() -> Probe:
    """Look at the operating system and the processor."""
    found = f"{platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        return Probe("WARN", "system", f"{found} is not supported", "use a Linux container or WSL2")
    tested = platform.machine() == "x86_64"
    return Probe("OK" if tested else "INFO", "system", found if tested else f"{found}: not tested")


def torch_version() -> Probe:
    """Look at the installed PyTorch and at the one that the extension was built for."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        return Probe("FAIL", "torch", f"cannot be imported: {error}", "pip install torch==2.13.0")
    found = str(torch.__version__)
    built = _built_for()
    if built is None:
        return Probe("INFO", "torch", f"{found}; what the extension was built for is unknown")
    if found.partition("+")[0] != built:
        reason = f"{found} is installed, the extension was built for {built}"
        return Probe("FAIL", "torch", reason, f"pip install torch=={built}")
    return Probe("OK", "torch", f"{found}, as built for")


def _built_for() -> str | None:
    try:
        from torchneuron import _build_info
    except ImportError:
        return None
    return str(_build_info.TORCH_VERSION).partition("+")[0]


def extension() -> Probe:
    """Look whether the compiled extension is there and loads."""
    status = autoload.status()
    if status.state == "registered":
        return Probe("OK", "extension", "loaded")
    if importlib.util.find_spec("torchneuron._C") is None:
        return Probe("FAIL", "extension", "is not built", "pip install . (in the source tree)")
    if status.state == "failed":
        return Probe(
            "FAIL", "extension", status.reason, "pip install --force-reinstall torchneuron"
        )
    return Probe("INFO", "extension", f"present, not loaded: {status.reason}")


def entry_point() -> Probe:
    """Look whether `import torch` finds this package."""
    points = importlib.metadata.entry_points(group=autoload.ENTRY_POINT_GROUP)
    if not any(point.module.partition(".")[0] == "torchneuron" for point in points):
        reason = "`import torch` does not find torchneuron: it is not installed as a package"
        return Probe("WARN", "entry point", reason, "pip install . (in the source tree)")
    if not config.torch_autoload_enabled():
        reason = "TORCH_DEVICE_BACKEND_AUTOLOAD keeps PyTorch from loading backends"
        return Probe("WARN", "entry point", reason, "unset TORCH_DEVICE_BACKEND_AUTOLOAD")
    return Probe("OK", "entry point", "`import torch` loads torchneuron")


def other_backends() -> Probe:
    """Look for other packages that want PyTorch's slot for an outside device."""
    points = importlib.metadata.entry_points(group=autoload.ENTRY_POINT_GROUP)
    others = sorted(p.name for p in points if p.module.partition(".")[0] != "torchneuron")
    if not others:
        return Probe("OK", "other backends", "none")
    reason = f"{', '.join(others)}: PyTorch has one slot for such a device"
    return Probe("WARN", "other backends", reason, "uninstall one, or set TORCHNEURON_PREFER=1")


def vendor_package() -> Probe:
    """Look for a real torch_neuronx, and at the alias that stands in for it."""
    version = _version("torch-neuronx")
    if version is not None:
        reason = f"version {version} is installed; torchneuron stands aside"
        return Probe("WARN", "torch_neuronx", reason, "uninstall one, or set TORCHNEURON_PREFER=1")
    missing = autoload.status().alias
    said = f"no alias: {missing}" if missing else "the alias serves `import torch_neuronx`"
    return Probe("INFO", "torch_neuronx", f"not installed; {said}")


def accelerators() -> Probe:
    """Look for a device that PyTorch itself supports."""
    if importlib.util.find_spec("torch") is None:
        return Probe("INFO", "accelerators", "unknown without torch")
    return Probe("INFO", "accelerators", autoload.other_accelerator() or "no CUDA, XPU or MPS")


def trainium() -> Probe:
    """Look for the device files of a Trainium."""
    found = sorted(glob.glob("/dev/neuron[0-9]*"))
    if not found:
        return Probe("INFO", "Trainium", "no /dev/neuron* on this machine: everything is emulated")
    return Probe("WARN", "Trainium", f"{len(found)} device files, not used: this version emulates")


def libnrt() -> Probe:
    """Look for the vendor's runtime library."""
    found = str(_LIBNRT) if _LIBNRT.exists() else ctypes.util.find_library("nrt")
    return Probe("INFO", "libnrt", found or "not found; the emulation does not need it")


def compiler() -> Probe:
    """Look for the vendor's compiler."""
    found = shutil.which("neuronx-cc")
    return Probe("INFO", "neuronx-cc", found or "not on PATH; the emulation does not need it")


def jaxlib() -> Probe:
    """Look for jaxlib without importing it."""
    version = _version("jaxlib")
    if version is None:
        return Probe("WARN", "jaxlib", "not installed; torch.compile needs it, eager does not")
    return Probe("INFO", "jaxlib", version)


def host_memory() -> Probe:
    """Look at the memory of the machine and at the limit of its control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    said = f"{_gib(total)}, {_gib(free)} free"
    for path in _MEMORY_LIMITS:
        text = Path(path).read_text().strip() if Path(path).exists() else "max"
        if text.isdigit() and int(text) < total:
            said += f", limited to {_gib(int(text))} by the control group"
            break
    return Probe("INFO", "host memory", said)


def host_cores() -> Probe:
    """Look at how many processor cores the process may use."""
    usable = len(os.sched_getaffinity(0))
    return Probe("INFO", "host cores", f"{usable} of {os.cpu_count()}")


def emulated_instance() -> EmulatedInstance:
    """Return the instance that the process has, or would have at first use of the device.

    Raises:
        ConfigError: A setting is bad.
    """
    if autoload.status().state == "registered":
        from torchneuron.device import configuration, is_initialized

        if is_initialized():
            return configuration.settled()
    settings = config.load()
    return chips.resolve(
        settings.instance, settings.lnc, settings.visible_cores, settings.num_cores
    )


def instance() -> Probe:
    """Look at the emulated instance."""
    try:
        view = emulated_instance()
    except NeuronError as error:
        return Probe("FAIL", "instance", error.message.replace("\n", "; "), error.hint)
    said = (
        f"{view.name}: {view.device_count} devices of {_gib(view.hbm_bytes_per_core)} "
        f"({view.chip.title}, LNC {view.lnc}), emulated"
    )
    return Probe("OK", "instance", said)


def target() -> Probe:
    """Look at the target whose refusals `strict` applies."""
    try:
        settings = config.load()
        found = load_target(settings.target)
    except ArgumentError as error:
        return Probe("FAIL", "target", error.message, error.hint)
    except NeuronError:
        return Probe("INFO", "target", "unknown until the settings are mended")
    return Probe("OK", "target", f"{found.title}, {len(found.refusals)} rows, {settings.strict}")


def device() -> Probe:
    """Look whether the device is registered."""
    status = autoload.status()
    if status.state == "registered":
        return Probe("OK", "device", "`neuron` is registered")
    level: Level = "FAIL" if status.state == "failed" else "WARN"
    remedies = {
        "off": "unset TORCHNEURON",
        "waiting": "set TORCHNEURON=1, or use a name of torchneuron that needs the device",
        "aside": "uninstall the other backend, or set TORCHNEURON_PREFER=1",
        "failed": "mend what the reason names, then start the program again",
        "not started": "pip install . (in the source tree), then `import torch`",
    }
    if status.state == "not started" and not config.torch_autoload_enabled():
        remedies["not started"] = (
            "unset TORCH_DEVICE_BACKEND_AUTOLOAD, or call `torchneuron.device_count()`, "
            "which registers it"
        )
    reason = f"`neuron` is not registered: {status.reason}"
    return Probe(level, "device", reason, remedies.get(status.state, ""))


def chosen_runtime() -> Probe:
    """Look whether the runtime that was asked for is there."""
    name, reason = runtime()
    if name != "none":
        return Probe("OK", "runtime", name)
    try:
        config.load()
    except NeuronError:
        return Probe("INFO", "runtime", "unknown until the settings are mended")
    return Probe("FAIL", "runtime", reason, "unset TORCHNEURON_RUNTIME, or set it to host")


PROBES: tuple[Callable[[], Probe], ...] = (
    python,
    system,
    torch_version,
    extension,
    entry_point,
    other_backends,
    vendor_package,
    accelerators,
    trainium,
    libnrt,
    compiler,
    jaxlib,
    host_memory,
    host_cores,
    instance,
    target,
    chosen_runtime,
    device,
)


def runtime() -> tuple[str, str]:
    """Return the runtime that executes and why it was taken."""
    try:
        asked = config.load().runtime
    except NeuronError as error:
        return "none", f"the settings are not usable: {error.message.partition(chr(10))[0]}"
    if asked == "host":
        return "host (emulated)", "TORCHNEURON_RUNTIME=host asks for it"
    if asked != "auto":
        return "none", f"TORCHNEURON_RUNTIME={asked} is not available in this version"
    if autoload.trainium_visible():
        return "host (emulated)", "this version has no other, although a Trainium is visible"
    return "host (emulated)", "TORCHNEURON_RUNTIME=auto, and no Trainium is visible"
