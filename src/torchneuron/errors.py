"""Every error that torchneuron raises on purpose, one stable code per class.

    NeuronError
    +-- ConfigError               NRN101  a setting has a value it does not take   (ValueError)
    |   +-- UnknownVariableError  NRN102  a TORCHNEURON_* name that does not exist
    |   +-- InstanceError         NRN103  unknown instance, or one that is not emulated
    |   +-- CoreSelectionError    NRN104  a choice of cores that the instance cannot serve
    +-- LateConfigurationError    NRN105  the instance was changed after first use (RuntimeError)
    +-- ArgumentError             NRN106  an argument outside its allowed values   (ValueError)
    +-- DeviceIndexError          NRN110  no such neuron device                    (RuntimeError)
    +-- DataError                 NRN190  a data file of the package is broken     (ValueError)
    +-- StrictError               NRN210  the target refuses what was done         (RuntimeError)
    +-- CompileError              NRN230  a graph could not be lowered or compiled (RuntimeError)
    +-- ExpectationError          NRN220  explain().assert_no() found a record     (AssertionError)
    +-- InstallError              NRN901  the device cannot be registered          (ImportError)
    +-- RuntimeUnavailableError   NRN902  the chosen runtime is not there          (RuntimeError)

Out of memory is `torch.OutOfMemoryError` and not part of this tree. The docstring of a class is the
page that `torchneuron help CODE` prints. Codes never change their meaning. Stability: S.
"""

from collections.abc import Iterable
from typing import ClassVar


class NeuronError(Exception):
    """Catch any error that torchneuron raises on purpose.

    Symptom:
        A subclass of this class is raised; its text ends its first line with a code in brackets.

    Why:
        Something about the program, the settings or the installation does not fit. The first
        line says what, with the value, and the `hint:` line says what to do.

    Fix:
        Run `torchneuron help CODE` with the code in brackets.
    """

    code: ClassVar[str] = "NRN100"

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Store the message and the hint; `str()` renders both with the code."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Render the first line with its code, further lines, then the hint."""
        first, newline, rest = self.message.partition("\n")
        text = f"{first} [{self.code}]{newline}{rest}"
        return f"{text}\n\nhint: {self.hint}" if self.hint else text


class ConfigError(NeuronError, ValueError):
    """Report a setting whose value is not allowed.

    Symptom:
        The first use of the device, or `torchneuron doctor`, names a variable and its value.

    Why:
        A variable such as `NEURON_LOGICAL_NC_CONFIG` holds text that it does not take. A bad
        value is never replaced silently by the default. `import torch` itself never fails on it.

    Fix:
        Set one of the allowed values that the message lists, or unset the variable.
        `torchneuron doctor` prints every setting with its value and where it came from.
    """

    code = "NRN101"


class UnknownVariableError(ConfigError):
    """Report an environment variable `TORCHNEURON_*` that does not exist.

    Symptom:
        The first use of the device names a variable that is set and that nothing reads.

    Why:
        Most often a spelling mistake, which would otherwise leave the setting at its default
        without a word.

    Fix:
        Use the name in the hint, or unset the variable.
    """

    code = "NRN102"


class InstanceError(ConfigError):
    """Report an instance that is unknown or that cannot be emulated.

    Symptom:
        `TORCHNEURON_INSTANCE` or `torchneuron.emulate(instance=...)` is refused.

    Why:
        The name is not in the table of instances, or it belongs to Trainium1, which is kept as
        data for comparison and is not a device here.

    Fix:
        `torchneuron chips` lists the instances; the default is `trn2.3xlarge`.
    """

    code = "NRN103"


class CoreSelectionError(ConfigError):
    """Report a choice of NeuronCores that the emulated instance cannot serve.

    Symptom:
        `NEURON_RT_VISIBLE_CORES`, `NEURON_RT_NUM_CORES` or the LNC setting is refused.

    Why:
        The instance has fewer logical cores than the setting names, the chip does not offer that
        LNC, or more than 127 cores would be visible to one process: PyTorch stores a device
        index in a signed byte.

    Fix:
        Name cores that exist, for example `NEURON_RT_VISIBLE_CORES=0-3`.
    """

    code = "NRN104"


class LateConfigurationError(NeuronError, RuntimeError):
    """Report a change of the emulated instance after the device was used.

    Symptom:
        `torchneuron.emulate(...)` raises.

    Why:
        The number of devices and the memory of each are fixed at first use; tensors may already
        live in them.

    Fix:
        Call `torchneuron.emulate` before the first tensor goes to `neuron`, or set
        `TORCHNEURON_INSTANCE` for the process.
    """

    code = "NRN105"


class ArgumentError(NeuronError, ValueError):
    """Report an argument of a torchneuron function outside its allowed values.

    Symptom:
        A call such as `torchneuron.strict("dtyp")` or `report.assert_no("recompiles?")` raises.

    Why:
        The function takes one of a few names and was given another.

    Fix:
        Use one of the names that the message lists.
    """

    code = "NRN106"


class DeviceIndexError(NeuronError, RuntimeError):
    """Report a device index that does not exist.

    Symptom:
        `torch.neuron.set_device(9)` or another call with a device raises.

    Why:
        The emulated instance shows fewer logical NeuronCores to this process. The index counts
        the visible cores from 0, whatever their number on the instance.

    Fix:
        Use an index below `torch.neuron.device_count()`, choose a larger instance with
        `TORCHNEURON_INSTANCE`, or widen `NEURON_RT_VISIBLE_CORES`.
    """

    code = "NRN110"


class DataError(NeuronError, ValueError):
    """Report a data file of the package that breaks its own rules.

    Symptom:
        Loading `chips/*.toml` or `targets/*.toml` raises and names file and entry.

    Why:
        A figure lacks its source or its confidence, a unit is missing from a key, or a row names
        an unknown category. This is a fault of the package or of a local edit.

    Fix:
        Mend the named entry, or install the package again.
    """

    code = "NRN190"


class StrictError(NeuronError, RuntimeError):
    """Report something that runs here and that the chosen target refuses.

    Symptom:
        Inside `torchneuron.strict(...)`, or with `TORCHNEURON_STRICT=error`, an operation raises
        before it computes. The message holds the code that the target's compiler would print.

    Why:
        Public documents, or reports of users where the row says so, state that the target does
        not take this dtype, shape, layout, operator or collective.

    Fix:
        Follow the hint of the row. `TORCHNEURON_STRICT=warn` runs the program and says each
        category once; `TORCHNEURON_STRICT=off` says nothing.
    """

    code = "NRN210"

    def __init__(self, message: str, *, hint: str = "", category: str = "") -> None:
        """Store the category, one of `torchneuron.targets.CATEGORIES`, beside the text."""
        super().__init__(message, hint=hint)
        self.category = category


class CompileError(NeuronError, RuntimeError):
    """Say that a part of a compiled graph could not be lowered or compiled.

    Symptom:
        torch.compile(backend="neuron") raises, naming an ATen operator and a line of the program.

    Why:
        The lowering table has no rule for the operator with these arguments, or the compiler
        refused the program.

    Fix:
        Leave out options={"fallback_execution": False} to have operators without a lowering run
        eagerly, or set it to True to have the whole graph run eagerly when it fails.
    """

    code: ClassVar[str] = "NRN230"


class ExpectationError(NeuronError, AssertionError):
    """Report that `explain().assert_no(name)` found records of that name.

    Symptom:
        A test of yours raises and lists what happened with the source lines.

    Why:
        The block did what the test said it must not do, such as moving data to the host.

    Fix:
        Look at the listed lines; `.summary()` shows everything else that the block did.
    """

    code = "NRN220"


class InstallError(NeuronError, ImportError):
    """Report that the device `neuron` cannot be registered in this process.

    Symptom:
        A name of `torchneuron` that needs the device raises, or the start-up warning of
        `import torch` says why the device is absent.

    Why:
        The compiled extension is missing or was built for another PyTorch, PyTorch is not
        installed, or another backend holds the device slot.

    Fix:
        `torchneuron doctor` says which of these it is and prints the command that mends it.
    """

    code = "NRN901"


class RuntimeUnavailableError(NeuronError, RuntimeError):
    """Report a runtime that was asked for by name and is not there.

    Symptom:
        `TORCHNEURON_RUNTIME=nrt` or `=pjrt:PATH` and the first use of the device raises.

    Why:
        The runtime needs a Trainium device or a plug-in that this machine or this version of
        torchneuron does not have. The emulation never takes its place silently.

    Fix:
        Unset `TORCHNEURON_RUNTIME`, or set it to `host` to ask for the emulation by name.
    """

    code = "NRN902"


def by_code() -> dict[str, type[NeuronError]]:
    """Return every error class under its code, in ascending order of codes."""
    found: list[type[NeuronError]] = [NeuronError]
    for error in found:
        found.extend(error.__subclasses__())
    return {error.code: error for error in sorted(found, key=lambda error: error.code)}


def help_page(code: str) -> str:
    """Return the help page of a code: its docstring under a title line.

    Args:
        code: A code such as `NRN101`, in any case.

    Raises:
        ArgumentError: No error has that code.
    """
    import inspect

    errors = by_code()
    error = errors.get(code.upper())
    if error is None:
        raise ArgumentError(
            f"unknown error code `{code}`: known are {', '.join(errors)}",
            hint=suggestion(code.upper(), errors) or "codes look like `NRN101`",
        )
    return f"{error.code} {error.__name__}\n\n{inspect.getdoc(error)}"


def suggestion(word: object, choices: Iterable[str]) -> str:
    """Return ``did you mean `x`?`` for the closest choice, or an empty string."""
    import difflib  # slow to import, and needed for mistakes only

    if not isinstance(word, str):
        return ""
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""
