#!/usr/bin/env bash
# Build the extension with AddressSanitizer and UBSan beside the normal one and run tests on it.
# Usage: tools/sanitize.sh PYTHON [pytest arguments]; without arguments, the tests of
# csrc/, of the device and of its behaviour run.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
[ $# -gt 0 ] || set -- tests/csrc tests/device tests/behaviour
# AddressSanitizer reserves terabytes of address space, which this test takes away.
set -- "$@" --deselect tests/device/test_memory.py::test_a_smaller_arena_is_said_when_it_is_made

TORCHNEURON_SANITIZE=1 "$python" setup.py --quiet build --build-base build/sanitize
package=$(echo "$PWD"/build/sanitize/lib*)

# libstdc++ comes along: without it the sanitizer finds no __cxa_throw and stops at the first
# C++ exception. Leaks of the interpreter itself would drown ours; tests count blocks instead.
export LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=print_stacktrace=1
export PYTHONMALLOC=malloc PYTHONPATH=$package OMP_NUM_THREADS=1
"$python" -c 'import torchneuron; print("make sanitize: testing", torchneuron.__file__)'
"$python" -m pytest -p no:cacheprovider -o timeout=1800 "$@"
echo "make sanitize: no memory error and no undefined behaviour in what these tests reach"
