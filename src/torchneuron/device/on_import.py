"""Run something right after a module is imported, without importing it.

Some of torch's modules take seconds to import and most programs never do. What must be changed in
them waits here.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_waiting: dict[str, list[Callable[[ModuleType], None]]] = {}


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action(module)` once the module is imported; now if it already is."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    _waiting.setdefault(name, []).append(action)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _Finder(MetaPathFinder):
    """Find the awaited modules where they are, and have the waiting actions run after them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an awaited module with a loader that runs the actions."""
        actions = _waiting.pop(name, None)
        if actions is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            _waiting[name] = actions
            return None
        execute = spec.loader.exec_module

        def execute_then_act(module: ModuleType) -> None:
            execute(module)
            for action in actions:
                action(module)

        spec.loader.exec_module = execute_then_act  # type: ignore[method-assign]
        return spec


_FINDER = _Finder()
