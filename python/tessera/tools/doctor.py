"""``tessera doctor``: what is installed here, and whether a kernel runs."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, TextIO

from .. import _core, runtime
from .._core import __version__
from ..arrays import create as _create
from ..base.errors import TesseraError
from .cache import size_text


def doctor(out: TextIO) -> int:
    """Writes the findings; gives 0 when a kernel ran and was right."""
    def row(name: str, value: object) -> None:
        print(f"  {name:<24} {value}", file=out)

    print(f"tessera {__version__}", file=out)
    row("python", f"{platform.python_version()} ({sys.executable})")
    row("system", f"{platform.system()} {platform.machine()}")
    row("installed in", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for name in ("numpy", "ml_dtypes"):
        row(name, _version(name))

    print("\nbackends", file=out)
    for name, state in runtime.backends().items():
        row(name, state)

    print("\ncapabilities of the backend that calls with host arrays run on", file=out)
    failed = _capabilities(row)

    print("\nthe processor, as the backend cpu uses it", file=out)
    failed |= _processor(row)

    print("\nNVIDIA GPUs, as the backend ptx uses them", file=out)
    failed |= _gpus(row)

    print("\ncompiled kernels that are kept on disk", file=out)
    failed |= _cache(row)

    print("\nenvironment variables that are set", file=out)
    known = runtime.knobs()
    for name in sorted(n for n in os.environ if n.startswith("TESSERA_")):
        row(name, f"{os.environ[name]!r}" + ("" if name in known else "  (Tessera does not know it)"))
    if not any(n.startswith("TESSERA_") for n in os.environ):
        print("  none", file=out)

    print("\na kernel", file=out)
    failed |= _kernel(row)
    print("\nsomething is wrong: see above" if failed else "\nall is well", file=out)
    return int(failed)


def _version(name: str) -> str:
    import importlib

    try:
        return importlib.import_module(name).__version__
    except ImportError as e:
        return f"missing ({e})"


def _capabilities(row: Any) -> bool:
    try:
        found = runtime.capabilities()
    except TesseraError as e:
        row("error", str(e).splitlines()[0])
        return True
    for name, value in found.items():
        if isinstance(value, dict):
            shown = [k if v is True else f"{k}: {v}" for k, v in value.items() if v is not False]
            row(name, "; ".join(shown) or "none")
        else:
            row(name, value)
    return False


def _processor(row: Any) -> bool:
    try:
        found = _core.processor()
        caps = runtime.capabilities("cpu") if found else None
    except TesseraError as e:
        row("error", str(e).splitlines()[0])
        return True
    if found is None or caps is None:
        row("none", "this build does not contain the backend")
        return False
    most = "the most there is" if found["isa"] == found["host"] else f"TESSERA_CPU says so; there is {found['host']}"
    row("instructions", f"{found['isa']} ({most})")
    row("vectors", f"{found['vector_bits']} bits")
    row("tensor cores", ", ".join(name for name, has in caps["tensorcore"].items() if has) or "none")
    row("threads", f"{found['threads']} (of {_cores()} cores)")
    row("LLVM", found["llvm"])
    return False


def _gpus(row: Any) -> bool:
    """A machine without GPUs is no fault; one whose GPU fails is."""
    failed = False
    missing = _core.platforms()["cuda"]
    if missing:
        row("none", missing)
    else:
        try:
            for found in runtime.devices():
                major, minor = found["compute_capability"]
                row(found["device"], f"{found['name']}, {found['arch']} (compute capability {major}.{minor})")
                row("", f"{found['multiprocessors']} multiprocessors, {size_text(found['shared_bytes_per_block'])} shared memory a block")
                row("", f"{size_text(found['memory_bytes'])} memory, {size_text(found['free_bytes'])} free, {size_text(found['l2_bytes'])} L2")
                row("", f"the driver serves CUDA {found['cuda']} and takes PTX up to {found['ptx']}")
            failed |= _kernel_on("cuda:0", row)
        except TesseraError as e:
            row("error", str(e).splitlines()[0])
            failed = True
    try:
        row("ptxas", _core.device_assembler([p for p in sys.path if p.endswith("-packages")]))
    except TesseraError as e:
        row("ptxas", f"{e.message}; kernels run without it, through the driver's own")
    return failed


def _kernel_on(device: str, row: Any) -> bool:
    import numpy

    from .doctor_kernel import saxpy

    x = numpy.arange(1000, dtype=numpy.float32)
    try:
        there = _create.ones(1000, device=device)
        saxpy(_create.array(x, device=device), there, 2.0)
        right = bool((there.numpy() == 2 * x + 1).all())
    except TesseraError as e:
        row("saxpy of 1000 elements", f"failed: {str(e).splitlines()[0]}")
        return True
    row("saxpy of 1000 elements", f"{'right' if right else 'WRONG'}, on {saxpy.explain().backend}")
    return not right


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cache(row: Any) -> bool:
    try:
        found = _core.cache_entries()
    except TesseraError as e:
        row("error", str(e).splitlines()[0])
        return True
    if not found["directory"]:
        row("directory", "none: there is no home directory and TESSERA_CACHE_DIR is not set")
        return False
    row("directory", found["directory"])
    total = size_text(sum(entry["bytes"] for entry in found["entries"]))
    row("kept", f"{len(found['entries'])}, {total} of at most {size_text(found['limit'])}")
    for warning in found["warnings"]:
        row("warning", warning.splitlines()[0])
    return bool(found["warnings"])


def _kernel(row: Any) -> bool:
    import numpy

    from .doctor_kernel import saxpy

    x, y = numpy.arange(1000, dtype=numpy.float32), numpy.ones(1000, numpy.float32)
    try:
        saxpy(x, y, 2.0)
    except TesseraError as e:
        row("saxpy of 1000 elements", f"failed: {str(e).splitlines()[0]}")
        return True
    right = bool((y == 2 * x + 1).all())
    row("saxpy of 1000 elements", f"{'right' if right else 'WRONG'}, on {saxpy.explain().backend}")
    return not right
