"""Run every benchmark, one after the other, and say which gates were reached.

`make bench` calls this. `--smoke` runs each in seconds and judges nothing.
"""

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    """Run the benchmarks; return 1 if one failed or missed a gate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="for example eager_ops")
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    names = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    chosen = options.only or list(names)
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    flags = ["--device", options.device, *(["--smoke"] if options.smoke else [])]
    failed = []
    for name in chosen:
        print(f"bench: {name}", flush=True)
        if subprocess.run([sys.executable, str(names[name]), *flags], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"bench: {len(failed)} of {len(chosen)} failed or missed a gate: {', '.join(failed)}")
        return 1
    print(f"bench: {len(chosen)} of {len(chosen)} benchmarks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
