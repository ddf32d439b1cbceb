"""Every setting of torchneuron, and the only place that reads the environment.

`load()` is called at the first use of the device, never at `import torch`: a bad value is one clear
error there. The three questions that start-up itself asks (`autoload_switch`, `autoload_prefer`,
`autoload_alias`) never raise; they treat a bad value as unset and leave the error to `load()`.
An empty value counts as unset. Stability: S for the vendor's variables, E for the others.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torchneuron.errors import ConfigError, UnknownVariableError, suggestion

PREFIX = "TORCHNEURON"
MAX_CORE_INDEX = 4095
# Read by setup.py and by nothing at run time; known here so that it is not called a mistake.
BUILD_VARIABLES = ("TORCHNEURON_SANITIZE",)

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_SIZE_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}

Value = bool | int | str | tuple[int, ...] | None


class _BadValueError(ValueError):
    """Carry the reason, and a near miss where there is one, from a parser to `_value_of`."""

    def __init__(self, reason: str, near: str = "") -> None:
        super().__init__(reason)
        self.near = near


def _flag(text: str) -> bool:
    if text.lower() in _ON | _OFF:
        return text.lower() in _ON
    raise _BadValueError("it is neither on nor off")


def _text(text: str) -> str:
    return text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _count(text: str) -> int:
    if not _is_number(text):
        raise _BadValueError("it is not a whole number")
    return int(text)


def _lnc(text: str) -> int:
    if text not in {"1", "2"}:
        raise _BadValueError("a logical core is made of one or two physical cores")
    return int(text)


def _size(text: str) -> int:
    number = text.rstrip("kKmMgGtTiIbB")
    unit = text[len(number) :].upper().removesuffix("B")
    if not _is_number(number) or unit not in _SIZE_UNITS:
        raise _BadValueError("it is not a number of bytes")
    return int(number) * _SIZE_UNITS[unit]


def _cores(text: str) -> tuple[int, ...]:
    """Parse the vendor's list of cores, such as `0-3,5`, to its indices in the written order."""
    cores: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not _is_number(low) or (dash and not _is_number(high)):
            raise _BadValueError(f"`{part.strip()}` is neither a core nor a range of cores")
        first, last = int(low), int(high) if dash else int(low)
        if last < first:
            raise _BadValueError(f"the range `{part.strip()}` runs backwards")
        if last > MAX_CORE_INDEX:
            raise _BadValueError(f"no instance has a core {last}")
        cores.extend(range(first, last + 1))
    if len(set(cores)) != len(cores):
        raise _BadValueError("a core is named twice")
    return tuple(cores)


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise _BadValueError("it is not one of the names", suggestion(text.lower(), choices))
        return text.lower()

    return parse


def _runtime(text: str) -> str:
    if text.lower().startswith("pjrt:") and len(text) > len("pjrt:"):
        return "pjrt:" + text[len("pjrt:") :]
    return _choice("auto", "host", "nrt")(text)


@dataclass(frozen=True, slots=True)
class Setting:
    """Describe one variable: where it lands, how it is read and where it is documented.

    `key` is the name in `Config`; `active` says whether this version acts on it.
    """

    name: str
    key: str
    kind: str
    default: Value
    allowed: str
    description: str
    documented: str
    parse: Callable[[str], Value] = field(repr=False, compare=False)
    active: bool = True
    older_name: str = ""


_OURS = "docs/reference/environment.md"
_RUNTIME_GUIDE = "AWS Neuron SDK, neuron-runtime configuration guide"
_TORCH_PAGE = "AWS Neuron SDK 2.33, torch/reference/env-vars"
_SCRIPTS = "public scripts of users; no vendor page found"
_FLAG = "0 | 1"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "TORCHNEURON", "enabled", "flag", None, "0 (off) | 1 (on also beside CUDA, XPU, MPS)",
        "Whether `import torch` registers the device `neuron`; unset: yes, but on a machine with "
        "another accelerator and no Trainium only once a name of torchneuron needs it.",
        _OURS, _flag,
    ),
    Setting(
        "TORCHNEURON_PREFER", "prefer", "flag", False, _FLAG,
        "Register even where another backend or a real torch_neuronx is installed.",
        _OURS, _flag,
    ),
    Setting(
        "TORCHNEURON_ALIAS", "alias", "flag", True, _FLAG,
        "Let `import torch_neuronx` find torchneuron where no real torch_neuronx is installed.",
        _OURS, _flag,
    ),
    Setting(
        "TORCHNEURON_INSTANCE", "instance", "text", "trn2.3xlarge", "a name of `torchneuron chips`",
        "The emulated instance: chips, cores and memory of each device.",
        _OURS, str.lower,
    ),
    Setting(
        "TORCHNEURON_RUNTIME", "runtime", "choice", "auto", "auto | host | nrt | pjrt:PATH",
        "What executes: `host` is the emulation; `auto` takes a Trainium device where one is "
        "visible and supported, else `host`.",
        _OURS, _runtime,
    ),
    Setting(
        "TORCHNEURON_STRICT", "strict", "choice", "warn", "off | warn | error",
        "What happens when the program does something that the target refuses.",
        _OURS, _choice("off", "warn", "error"),
    ),
    Setting(
        "TORCHNEURON_TARGET", "target", "text", "torch_neuronx_2_33", "a target of "
        "docs/reference/targets.md",
        "The software whose refusals `strict` applies.",
        _OURS, str.lower,
    ),
    Setting(
        "TORCHNEURON_EAGER", "eager", "choice", "direct", "direct | lowered",
        "How single operations run: by PyTorch's CPU kernels or through the compiler.",
        _OURS, _choice("direct", "lowered"),
    ),
    Setting(
        "TORCHNEURON_CACHE_DIR", "cache_dir", "path", None, "a directory",
        "Where compiled programs are kept; unset: `torchneuron` in the user's cache directory.",
        _OURS, _text,
    ),
    Setting(
        "TORCHNEURON_CACHE_MAX_BYTES", "cache_max_bytes", "bytes", 10 * 2**30,
        "a number, also with K, M, G, Ki, Mi, Gi",
        "Size above which the oldest compiled programs are dropped.",
        _OURS, _size,
    ),
    Setting(
        "TORCHNEURON_SHM", "shared_memory", "flag", True, _FLAG,
        "Whether ranks of one host exchange data through shared memory.",
        _OURS, _flag, active=False,
    ),
    Setting(
        "NEURON_RT_VISIBLE_CORES", "visible_cores", "cores", None, "cores such as 0-3,5",
        "Logical cores that the process sees, as device 0, 1, ...; beats NEURON_RT_NUM_CORES.",
        _RUNTIME_GUIDE, _cores,
    ),
    Setting(
        "NEURON_RT_NUM_CORES", "num_cores", "count", None, "0 (all) | a number of cores",
        "How many logical cores the process sees, from core 0.",
        _RUNTIME_GUIDE, _count,
    ),
    Setting(
        "NEURON_LOGICAL_NC_CONFIG", "lnc", "choice", None, "1 | 2",
        "Physical cores per logical core (LNC); unset: the default of the chip.",
        "AWS Neuron SDK, logical-neuroncore-config", _lnc, older_name="NEURON_RT_VIRTUAL_CORE_SIZE",
    ),
    Setting(
        "NEURON_CC_FLAGS", "compiler_flags", "text", None, "flags of neuronx-cc",
        "Extra flags for the Trainium compiler.",
        "AWS Neuron SDK, neuronx-cc reference", _text, active=False,
    ),
    Setting(
        "TORCH_NEURONX_NEFF_CACHE_DIR", "neff_cache_dir", "path", None, "a directory",
        "The vendor's name for the directory of compiled programs.",
        "AWS Neuron SDK, neuron-explorer environment variables", _text,
    ),
    Setting(
        "TORCH_NEURONX_DEBUG_DIR", "debug_dir", "path", "/tmp/neuron_backend", "a directory",
        "Where graphs and programs are written for inspection.",
        _TORCH_PAGE, _text,
    ),
    Setting(
        "TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "preserve_artifacts", "flag", False, _FLAG,
        "Whether what is in the debug directory stays there after execution.",
        _TORCH_PAGE, _flag,
    ),
    Setting(
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "disable_fallback_execution", "flag", True,
        _FLAG,
        "Whether a graph that fails to compile raises (1) or runs eagerly (0).",
        _TORCH_PAGE, _flag,
    ),
    Setting(
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "fallback_only_unimplemented",
        "flag", False, _FLAG,
        "Whether the failure of an implemented operation is an error instead of a run on the host.",
        _SCRIPTS, _flag, active=False,
    ),
    Setting(
        "TORCH_NEURONX_LOG_LEVEL", "log_level", "text", None, "a level name or number",
        "Log level of the vendor's package.",
        _SCRIPTS, _text, active=False,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """Hold the value of every setting, under the `key` names of `SETTINGS`."""

    enabled: bool | None
    prefer: bool
    alias: bool
    instance: str
    runtime: str
    strict: Literal["off", "warn", "error"]
    target: str
    eager: Literal["direct", "lowered"]
    cache_dir: str | None
    cache_max_bytes: int
    shared_memory: bool
    visible_cores: tuple[int, ...] | None
    num_cores: int | None
    lnc: int | None
    compiler_flags: str | None
    neff_cache_dir: str | None
    debug_dir: str
    preserve_artifacts: bool
    disable_fallback_execution: bool
    fallback_only_unimplemented: bool
    log_level: str | None


class SettingRow(NamedTuple):
    """Show one setting: its value as text, where the value comes from, what is wrong with it."""

    name: str
    value: str
    origin: str
    problem: str = ""


def _value_of(setting: Setting, environ: Mapping[str, str]) -> tuple[Value, str]:
    """Return the parsed value and the name of the variable it came from, "" for the default."""
    names = (setting.name, setting.older_name) if setting.older_name else (setting.name,)
    given = {name: environ[name].strip() for name in names if environ.get(name, "").strip()}
    if not given:
        return setting.default, ""
    if len(set(given.values())) > 1:
        pairs = " and ".join(f"{name}={text}" for name, text in given.items())
        raise ConfigError(f"{pairs} contradict each other", hint=f"unset `{setting.older_name}`")
    name, text = next(iter(given.items()))
    try:
        return setting.parse(text), name
    except _BadValueError as error:
        allowed = f"set `{name}` to: {setting.allowed}"
        raise ConfigError(
            f"{name} has the value `{text}`: {error}\nallowed: {setting.allowed}",
            hint=error.near or allowed,
        ) from error


def _unknown(environ: Mapping[str, str]) -> dict[str, UnknownVariableError]:
    """Return an error for each `TORCHNEURON_*` variable that no setting has."""
    known = [setting.name for setting in SETTINGS if setting.name.startswith(PREFIX)]
    # All begin alike, which alone would make them close to each other.
    tails = [name.removeprefix(f"{PREFIX}_") for name in known if name != PREFIX]
    return {
        name: UnknownVariableError(
            f"unknown variable {name} (value `{environ[name]}`): nothing reads it",
            hint=suggestion(name.removeprefix(f"{PREFIX}_"), tails).replace("`", f"`{PREFIX}_", 1)
            or f"known are {', '.join(known)}",
        )
        for name in sorted(environ)
        if name.startswith(f"{PREFIX}_") and name not in known and name not in BUILD_VARIABLES
    }


def load(environ: Mapping[str, str] | None = None) -> Config:
    """Read every setting.

    Args:
        environ: Variables to read instead of those of the process.

    Raises:
        ConfigError: A variable has a value that it does not take.
        UnknownVariableError: A variable `TORCHNEURON_*` does not exist.
    """
    environ = os.environ if environ is None else environ
    for error in _unknown(environ).values():
        raise error
    values: dict[str, Any] = {item.key: _value_of(item, environ)[0] for item in SETTINGS}
    return Config(**values)


def settings(environ: Mapping[str, str] | None = None) -> list[SettingRow]:
    """Return one row per setting, and one per unknown `TORCHNEURON_*` variable; never raise."""
    environ = os.environ if environ is None else environ
    rows = []
    for setting in SETTINGS:
        try:
            value, name = _value_of(setting, environ)
            origin = f"environment ({name})" if name else "default"
            rows.append(SettingRow(setting.name, show(value), origin))
        except ConfigError as error:
            text = environ.get(setting.name) or environ.get(setting.older_name, "")
            rows.append(SettingRow(setting.name, text, "environment", str(error)))
    for name, unknown in _unknown(environ).items():
        rows.append(SettingRow(name, environ[name], "environment", str(unknown)))
    return rows


def bytes_of(text: str) -> int | None:
    """Return a number of bytes that may have a unit, as `1Gi`; None where it is none."""
    try:
        return _size(text.strip())
    except _BadValueError:
        return None


def show(value: Value) -> str:
    """Return a value as the text that a person would set."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(str(core) for core in value)
    return str(value)


def _lenient_flag(name: str) -> bool | None:
    try:
        return _flag(os.environ.get(name, "").strip())
    except _BadValueError:
        return None


def autoload_switch() -> Literal["on", "off", "auto"]:
    """Return what TORCHNEURON asks of start-up; a bad value is `auto` here. Never raises."""
    flag = _lenient_flag("TORCHNEURON")
    return "auto" if flag is None else "on" if flag else "off"


def autoload_prefer() -> bool:
    """Return whether TORCHNEURON_PREFER asks to register beside another backend. Never raises."""
    return _lenient_flag("TORCHNEURON_PREFER") is True


def autoload_alias() -> bool:
    """Return whether the `torch_neuronx` alias is wanted (TORCHNEURON_ALIAS). Never raises."""
    return _lenient_flag("TORCHNEURON_ALIAS") is not False


def torch_autoload_enabled() -> bool:
    """Return whether PyTorch loads installed backends (TORCH_DEVICE_BACKEND_AUTOLOAD is not 0)."""
    return os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1"


def no_color() -> bool:
    """Return whether NO_COLOR asks for plain text (any value that is not empty, no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def user_cache_dir() -> str:
    """Return where this user's programs keep what they can make again, with our name at its end."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "torchneuron")


@contextlib.contextmanager
def _unless_chosen(name: str, value: str) -> Iterator[None]:
    """Have a variable that another library reads once; a value that the user chose stands."""
    chosen = os.environ.get(name)
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[name]


def quiet_compiler_log() -> contextlib.AbstractContextManager[None]:
    """Import jaxlib inside: its libraries read the level of their log once, while they load.

    Otherwise the client greets the user on stderr.
    """
    return _unless_chosen("TF_CPP_MIN_LOG_LEVEL", "1")


def compiler_threads(count: int) -> contextlib.AbstractContextManager[None]:
    """Make XLA's client inside: it runs programs on so many threads, not on one per core."""
    return _unless_chosen("PJRT_NPROC", str(count))
