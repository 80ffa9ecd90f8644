"""Times what a call of a jitted function on a device costs the host beside the driver's own work: the launches of a fake driver return immediately.

    python -m bench.launches_fake [--extension FOLDER]

`FOLDER` holds a copy of the package with another extension module, such as `build/gpu` of `scripts/gpu-extension.sh`: times of a development
build say little. Prints ns: for functions of several lengths the least of many calls, and from their difference what one launch costs."""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LENGTHS = (1, 20, 200)
CALLS, ROUNDS = 20, 400


def again(extension):
    """Runs this program with the fake driver in the place of the driver."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "libcuda.so.1")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "python/tests/fake_cuda.c"], check=True)
        paths = [str(extension)] if extension else []
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")])),
            "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
            "TESSERA_CACHE_DIR": str(Path(folder, "cache")),
        }
        return subprocess.run([sys.executable, "-m", "bench.launches_fake", "--here"], env=environment, check=False).returncode


def least(call):
    """Nanoseconds of one call: the least of the rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / CALLS)
    return min(times)


def measure():
    import numpy as np

    import tessera as ts

    from .gpu.launch_overhead import add_more

    driver = ctypes.CDLL("libcuda.so.1")
    driver.fake_quiet_launches.restype = ctypes.c_long
    x = [ts.array(np.ones(256, np.float32), device="cuda:0") for _ in range(3)]
    for captured in (False, True):
        taken = {}
        for length in LENGTHS:

            def chain(a, b, c, length=length):
                for _ in range(length):
                    a = add_more(a, b, c)
                return a

            f = ts.jit(chain, capture_graph=captured)
            for _ in range(4):
                f(*x)
            driver.fake_quiet(1)
            f(*x)
            launches = driver.fake_quiet_launches()
            assert launches == (0 if captured else length), launches
            taken[length] = least(lambda: f(*x))
            driver.fake_quiet(0)
        words = ", ".join(f"{n} launches {t:.0f}" for n, t in taken.items())
        print(f"{'captured' if captured else 'launched'}: {words} ns a call")
        if not captured:
            first, last = LENGTHS[0], LENGTHS[-1]
            print(f"one launch more: {(taken[last] - taken[first]) / (last - first):.1f} ns")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extension", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.here:
        sys.exit(again(options.extension))
    measure()


if __name__ == "__main__":
    main()
