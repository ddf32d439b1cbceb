"""Whose code a Python frame is: the user's, or that of a library."""

import sysconfig
from pathlib import Path

import torch

import torchneuron


def library_folders() -> list[str]:
    """Return the folders whose files are not the user's, each with a slash at its end.

    They are Python's own library, the places of installed packages, and this package, which may
    be installed from a source tree.
    """
    paths = sysconfig.get_paths()
    folders = {Path(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {Path(sysconfig.__file__).parent, Path(torch.__file__).parent.parent}
    folders.update(Path(place) for place in torchneuron.__path__)
    return sorted(f"{folder}/" for folder in folders)
