"""Actions that wait for a module that somebody else imports."""

import importlib
import sys
from pathlib import Path

import pytest

from torchneuron.device.on_import import after_import


@pytest.fixture
def late_module(tmp_path: Path, monkeypatch) -> str:
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "__init__.py").write_text("")
    (tmp_path / "late_package" / "late_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "late_package.late_module"
    for name in ("late_package.late_module", "late_package"):
        sys.modules.pop(name, None)


def test_action_runs_once_after_the_import(late_module: str) -> None:
    seen = []
    after_import(late_module, lambda module: seen.append(module.value))
    after_import(late_module, lambda module: setattr(module, "value", 2))
    assert late_module not in sys.modules and not seen
    module = importlib.import_module(late_module)
    assert seen == [1] and module.value == 2
    importlib.reload(module)
    assert seen == [1]


def test_action_runs_at_once_for_an_imported_module() -> None:
    seen = []
    after_import("importlib", seen.append)
    assert seen == [importlib]


def test_a_module_that_does_not_exist_stays_absent() -> None:
    after_import("no_such_module_anywhere", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        importlib.import_module("no_such_module_anywhere")
