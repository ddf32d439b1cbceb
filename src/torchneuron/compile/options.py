"""The options of `torch.compile(backend="neuron", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torchneuron import config, ledger
from torchneuron.compile.buckets import Buckets
from torchneuron.compile.buckets import parse as parse_buckets
from torchneuron.errors import ArgumentError, suggestion
from torchneuron.ledger import Notice


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options of one compilation.

    Attributes:
        fallback_execution: None: a failed lowering or compilation raises, an operator without a
            lowering runs eagerly and is counted. False: both raise. True: a graph that fails runs
            eagerly, counted. Left out, TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION=0 means True.
        model_name: Name in reports and artifacts.
        preserve_artifacts: Whether each program's files are kept in TORCH_NEURONX_DEBUG_DIR. Left
            out, TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS says so.
        buckets: The sizes that dynamic dimensions are padded to; see `torchneuron.compile.buckets`.
    """

    fallback_execution: bool | None = None
    model_name: str = ""
    preserve_artifacts: bool = False
    buckets: tuple[Buckets, ...] = ()


_said: set[str] = set()
# Type and an example of each option.
_TYPES: dict[str, tuple[type, str]] = {
    "fallback_execution": (bool, "True"),
    "model_name": (str, '"encoder"'),
    "preserve_artifacts": (bool, "True"),
    "buckets": (dict, '{"tokens[1]": [64, 128, 256]}'),
}


def parse(
    given: Mapping[str, Any] | None,
    mode: str | None = None,
    inductor_config: Mapping[str, Any] | None = None,
) -> Options:
    """Check options and return them; say once each what is ignored because it is for CUDA.

    Raises:
        ArgumentError: An unknown name (with the nearest known one) or a value of another type.
    """
    known = [each.name for each in fields(Options)]
    own = {name: value for name, value in (given or {}).items() if not _is_inductors(name, known)}
    leftovers = [name for name in (*(given or {}), *(inductor_config or {})) if name not in own]
    if mode is not None and mode != "default":
        leftovers.insert(0, f'mode="{mode}"')
    for name in leftovers:
        _say_ignored(name)
    for name, value in own.items():
        if name not in known:
            near = suggestion(name, known)
            raise ArgumentError(
                f"torch.compile(backend='neuron') has no option `{name}`",
                hint=f"{near}; " * bool(near) + f"the options are {', '.join(known)}",
            )
        wanted, example = _TYPES[name]
        if not isinstance(value, wanted):
            raise ArgumentError(
                f"the option `{name}` is {value!r}, not of type {wanted.__name__}",
                hint=f'options={{"{name}": {example}}}',
            )
    if own.get("fallback_execution") is None and not config.load().disable_fallback_execution:
        own["fallback_execution"] = True
    own.setdefault("preserve_artifacts", config.load().preserve_artifacts)
    own["buckets"] = parse_buckets(own.get("buckets", {}))
    return Options(**own)


def _is_inductors(name: str, known: list[str]) -> bool:
    if name in known:
        return False
    from torch._inductor import config

    return name.replace("-", "_") in config.get_config_copy()


def _say_ignored(name: str) -> None:
    if name in _said:
        return
    _said.add(name)
    ledger.emit(
        Notice(
            "torch.compile",
            f"`{name}` is made for Inductor and ignored on neuron",
            hint="leave it out: torch.compile(model) is enough, graphs become whole programs",
        )
    )
