"""Build the C++ extension `torchneuron._C`; everything else about the package is in pyproject.toml.

Developers run `python setup.py build_ext --inplace`: it keeps its objects under build/ and compiles
only what changed. TORCHNEURON_SANITIZE=1 builds with AddressSanitizer and UBSan instead.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "torchneuron"
TORCH_REQUIRED = "2.13.0"
JAXLIB_REQUIRED = "jaxlib==0.10.2"
SANITIZE = os.environ.get("TORCHNEURON_SANITIZE", "0") == "1"

# The build imports torch. It must not load an installed or half-built TorchNeuron with it.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"


def fail(message: str, hint: str) -> None:
    """End the build with a message that says what is missing and what to type."""
    raise SystemExit(f"\nerror: {message}\n\nhint: {hint}\n")


if sys.platform != "linux":
    fail(
        f"TorchNeuron builds on Linux, this is {sys.platform}",
        "use the Dockerfile or the devcontainer of this repository, or WSL2 on Windows",
    )

# torch starts two compilers more than there are cores, and each needs about 1 GB.
os.environ.setdefault("MAX_JOBS", str(len(os.sched_getaffinity(0))))

try:
    import jaxlib
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError as error:
    fail(
        f"the build needs torch {TORCH_REQUIRED} and jaxlib and cannot import them: {error}",
        f"pip install torch=={TORCH_REQUIRED} {JAXLIB_REQUIRED} setuptools wheel ninja numpy",
    )


def public_version() -> str:
    """Give torch's version without the build label: CPU and CUDA builds share the interface."""
    return str(torch.__version__).split("+")[0]


def check_toolchain() -> None:
    """Stop with a clear message where the compile could only fail with an unclear one."""
    found = public_version()
    if found != TORCH_REQUIRED:
        fail(
            f"this source builds against torch {TORCH_REQUIRED}, the build environment has {found}",
            f"pip install torch=={TORCH_REQUIRED}",
        )
    compiler = shlex.split(os.environ.get("CXX", "c++"))[0]
    if shutil.which(compiler) is None:
        fail(
            f"no C++ compiler: `{compiler}` is not on PATH",
            "apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), or set CXX",
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        fail(
            f"the Python headers are missing: {header} does not exist",
            f"apt-get install {package} (Debian, Ubuntu), dnf install python3-devel (Fedora)",
        )


def write_build_info() -> None:
    """Record which torch the extension is built for; autoload compares it before loading `_C`."""
    text = (
        '"""What the extension was built against; written by setup.py."""\n\n'
        f'TORCH_VERSION = "{public_version()}"\n'
        f"CXX11_ABI = {torch._C._GLIBCXX_USE_CXX11_ABI}\n"
    )
    target = PACKAGE / "_build_info.py"
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


class BuildPackage(build_py):
    """Copy the Python files, with the build information and without files of an earlier tree."""

    def run(self) -> None:
        write_build_info()
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "torchneuron", ignore_errors=True)
        super().run()


class BuildNative(BuildExtension):
    """Compile csrc/ with ninja into one object folder that every kind of build shares."""

    def finalize_options(self) -> None:
        super().finalize_options()
        # pip gives editable builds a fresh temporary folder, which would compile everything again.
        kind = "sanitize" if SANITIZE else "objects"
        self.build_temp = str(ROOT / "build" / f"{kind}-{sys.implementation.cache_tag}")

    def run(self) -> None:
        check_toolchain()
        write_build_info()
        super().run()


def native_extension() -> CppExtension:
    """Describe `torchneuron._C`: all of csrc/, with the sanitizers if they were asked for."""
    # csrc/core last: its files are quick to compile and leave no core idle at the end.
    found = sorted(ROOT.glob("csrc/**/*.cpp"), key=lambda path: (path.parent.name == "core", path))
    sources = [path.relative_to(ROOT).as_posix() for path in found]
    # PyTorch's headers then include single operators' headers, not all operators.
    compile_args = ["-DAT_PER_OPERATOR_HEADERS"]
    compile_args += [
        "-O2",
        "-g0",
        "-std=c++20",
        "-fvisibility=hidden",
        "-Wall",
        "-Wno-sign-compare",
    ]
    link_args = ["-Wl,--strip-all"]
    if SANITIZE:
        # vptr checks need type information that torch's libraries keep to themselves.
        link_args = ["-fsanitize=address,undefined", "-fno-sanitize=vptr"]
        compile_args += [*link_args, "-fno-sanitize-recover=all"]
        compile_args += ["-O1", "-g", "-fno-omit-frame-pointer"]
    return CppExtension(
        name="torchneuron._C",
        sources=sources,
        # jaxlib brings XLA's headers for functions that a compiled program calls.
        include_dirs=[str(ROOT / "csrc"), str(Path(jaxlib.__file__).parent / "include")],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


setup(
    ext_modules=[native_extension()],
    cmdclass={"build_py": BuildPackage, "build_ext": BuildNative.with_options(use_ninja=True)},
)
