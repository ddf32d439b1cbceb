"""Let `import torch_neuronx` find torchneuron where the vendor's package is not installed.

Libraries look for `torch_neuronx` (transformers, accelerate, diffusers), and the vendor's
tutorials import it. The alias is the package itself and no copy. It has no version metadata,
because it is not the vendor's distribution. It exists once torch is imported, so
`import torch_neuronx` before `import torch` fails; say `import torch` first.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from torchneuron import config

NAME = "torch_neuronx"
_OURS = "torchneuron"


class _AliasLoader(Loader):
    """Put the module of torchneuron in the place of the one that is being loaded."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None, the placeholder: returning ours would overwrite its `__spec__`."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the placeholder; the import system hands out what stands in sys.modules."""
        sys.modules[module.__name__] = importlib.import_module(self._ours)


class AliasFinder(MetaPathFinder):
    """Find `torch_neuronx` and `torch_neuronx.x` as `torchneuron` and `torchneuron.x`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the alias's spec, None for other names and where the real package has come."""
        if name != NAME and not name.startswith(f"{NAME}."):
            return None
        if name == NAME and spec_elsewhere(NAME) is not None:
            return None
        ours = _OURS + name[len(NAME) :]
        real = importlib.util.find_spec(ours)
        if real is None:
            return None
        spec = ModuleSpec(name, _AliasLoader(ours), origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


def spec_elsewhere(name: str) -> ModuleSpec | None:
    """Return the spec of a top-level module that somebody else provides, None if nobody does."""
    for finder in sys.meta_path:
        if isinstance(finder, AliasFinder):
            continue
        find = getattr(finder, "find_spec", None)
        spec = find(name, None) if find is not None else None
        if spec is not None:
            return spec
    return None


def obstacle() -> str:
    """Return why the alias must not be installed, "" if nothing stands against it."""
    if not config.autoload_alias():
        return "TORCHNEURON_ALIAS=0"
    for name in (NAME, "torch_xla"):
        if spec_elsewhere(name) is not None:
            return f"{name} is installed"
    optimum = spec_elsewhere("optimum")
    places = optimum.submodule_search_locations if optimum is not None else None
    if any((Path(place) / "neuron").is_dir() for place in places or ()):
        return "optimum-neuron is installed"
    return ""


def install() -> str:
    """Install the alias first in line, once; return the reason if it must not be, else ""."""
    reason = obstacle()
    if not reason and not is_installed():
        sys.meta_path.insert(0, AliasFinder())
    return reason


def is_installed() -> bool:
    """Return whether the alias is in place."""
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)
