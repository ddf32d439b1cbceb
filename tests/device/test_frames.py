"""Telling the user's frames from those of libraries."""

from pathlib import Path

import pytest
import torch

import torchneuron
from torchneuron import _C
from torchneuron.device.frames import library_folders


@pytest.mark.parametrize(
    "file", [pytest.__file__, torch.__file__, Path.exists.__code__.co_filename]
)
def test_installed_packages_and_python_are_libraries(file: str) -> None:
    assert any(file.startswith(folder) for folder in library_folders())


def test_this_package_is_a_library_and_this_test_is_not() -> None:
    folders = library_folders()
    assert any(torchneuron.__file__.startswith(folder) for folder in folders)
    assert not any(__file__.startswith(folder) for folder in folders)
    assert all(folder.endswith("/") for folder in folders)


def test_user_frame_is_the_line_that_called() -> None:
    file, line = _C.user_frame()
    assert (
        file == __file__
        and line == test_user_frame_is_the_line_that_called.__code__.co_firstlineno + 1
    )
