"""Whose code a Python frame is: the user's, or that of a library."""

import os
import sys

import torch

import torchneuron
from torchneuron import _C

_INSTALLED = ("site-packages", "dist-packages")


def library_folders() -> list[str]:
    """Return the folders whose files are not the user's, each with a slash at its end.

    They are Python's own library, the places of installed packages, and this package, which may
    be installed from a source tree.
    """
    folders = {os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(torch.__file__))}
    folders.update(place for place in sys.path if place.rstrip("/").endswith(_INSTALLED))
    folders.update(torchneuron.__path__)
    return sorted(f"{folder.rstrip('/')}/" for folder in folders)


def user_line() -> tuple[str, int]:
    """Return file and line of the user's code that is running, empty and 0 where unknown."""
    return _C.user_frame() or ("", 0)
