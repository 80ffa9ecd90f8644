"""What must be set before the libraries are loaded, and what the results say about the machine."""

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The cores that a pinned process passes to its children, such as `0,1`.
CORES_VARIABLE = "TESSERA_BENCH_CORES"
if CORES_VARIABLE in os.environ:
    os.sched_setaffinity(0, map(int, os.environ.pop(CORES_VARIABLE).split(",")))
#: The cores this process was given, before it pins itself to one of them.
CORES = sorted(os.sched_getaffinity(0))

FLAGS = "avx2 fma f16c avx512f avx512_bf16 avx512_fp16 avx512_vnni amx_tile amx_bf16 amx_int8".split()
THREADS = ("TESSERA_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PACKAGES = ("numpy", "mkl", "jax", "jaxlib", "ml_dtypes")


def variables(threads):
    """The environment in which every library has this many threads and waits without spinning."""
    values = {**dict.fromkeys(THREADS, str(threads)), "KMP_BLOCKTIME": "0", "JAX_PLATFORMS": "cpu"}
    if threads == 1:
        values["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return values


def use_one_core():
    """Pins this process, and what it loads later, to one core."""
    os.environ.update(variables(1))
    # Interrupts are often served by the first core.
    os.sched_setaffinity(0, {CORES[-1]})


def child(module, *args, threads, **more):
    """The arguments of `subprocess` for a module of this package, on as many cores as it has threads."""
    cores = ",".join(map(str, CORES if threads > 1 else CORES[-1:]))
    return {
        "args": [sys.executable, "-m", module, *args],
        "cwd": ROOT,
        "env": {**os.environ, **variables(threads), CORES_VARIABLE: cores, **more},
    }


def _first(pattern, path):
    found = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.M)
    return found.group(1).strip() if found else None


def _commit():
    def git(*args):
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    return f"{commit} with changes" if commit and git("status", "--porcelain", "crates", "python") else commit


def _caches():
    sizes = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            sizes[f"L{level}"] = size
    return sizes


@functools.cache
def library():
    """A hash of Tessera's extension module as this process found it."""
    from tessera import _core

    return hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()[:16]


def demand_same_library(found):
    """A build in the same checkout replaces the module; a run must not mix two."""
    if found != library():
        raise RuntimeError(f"Tessera was built anew during the run: it began with {library()}, this is {found}")


def describe():
    """The machine and the versions, as the results keep them."""
    import tessera as ts

    present = set((_first(r"^flags\s*:(.*)$", "/proc/cpuinfo") or "").split())
    return {
        "model": _first(r"^model name\s*:(.*)$", "/proc/cpuinfo") or platform.processor(),
        "cores": len(CORES),
        "caches": _caches(),
        "memory": _first(r"^MemTotal:(.*)$", "/proc/meminfo"),
        "flags": [flag for flag in FLAGS if flag in present],
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "tessera": {
            "version": ts.__version__,
            "commit": _commit(),
            "library": library(),
            "backend": ts.runtime.capabilities()["backend"],
        },
        "versions": {name: version(name) for name in PACKAGES},
        "environment": {n: v for n, v in sorted(os.environ.items()) if n in variables(1) or n.startswith("TESSERA_")},
    }
