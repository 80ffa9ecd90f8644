"""Runs the kernels of examples/kernels, and a few on larger arrays, in the profile `strict`, and prints a hash of what
each gives, as JSON: `test_cpu_settings.py` runs it with one setting after another."""

import hashlib
import importlib
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

import tessera as ts

HERE = Path(__file__).resolve()
GALLERY = HERE.parents[2] / "examples" / "kernels"
sys.path[:0] = [str(GALLERY), str(HERE.parent)]


def normal(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).astype(dtype)


def gallery():
    """Each kernel with three of its cases: most are compiled again for each, and the first is often empty."""
    for path in sorted(GALLERY.glob("*.py")):
        if path.stem != "gallery":
            module = importlib.import_module(path.stem)
            cases = list(module.cases())
            yield path.stem, module.run, [cases[i] for i in (1, len(cases) // 2, -1)]


@ts.kernel
def matmul(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["M", "N"]):
    m = ts.tile.program_id(0) * 32
    n = ts.tile.program_id(1) * 64
    acc = ts.tile.mma(A[m:m + 32, 0:32], B[0:32, n:n + 64])
    for k in ts.tile.range(32, K, 32):
        acc = ts.tile.mma(A[m:m + 32, k:k + 32], B[k:k + 32, n:n + 64], accumulator=acc)
    C[m:m + 32, n:n + 64] = acc


@ts.kernel
def rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32], s: ts.Tensor["M", ts.f32]):
    m = ts.tile.program_id(0) * 4
    t = x[m:m + 4, :]
    w = ts.tile.exp(t - ts.tile.row_max(t)[:, None])
    s[m:m + 4] = ts.tile.row_sum(w)
    y[m:m + 4, :] = ts.tile.tanh(t) + ts.tile.erf(w) * ts.tile.log(w + 1.0)


@ts.kernel
def lanes(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        v = x[i]
        for _ in ts.tile.range(0, i % 5, 1):
            v = ts.tile.sin(v) + 0.5
        y[i] = v if v > 0.0 else ts.tile.pow(-v, 1.5)


def larger():
    """Arrays that several threads share, of sizes that no tile divides."""
    shape = (m, n, k) = (203, 301, 77)
    for dtype, out in ((np.float32, np.float32), (ml_dtypes.bfloat16, np.float32), (np.float16, np.float32), (np.int8, np.int32)):
        scale = 40 if dtype is np.int8 else 1
        a, b = ((normal(i, *s) * scale).astype(dtype) for i, s in enumerate([(m, k), (k, n)]))
        yield f"matmul {np.dtype(dtype).name}", matmul, [(a, b, np.zeros(shape[:2], out))]
    yield "rows", rows, [(normal(2, m, n), np.zeros((m, n), np.float32), np.zeros(m, np.float32))]
    yield "lanes", lanes, [(normal(3, m * n), np.zeros(m * n, np.float32))]


def bits(run, args):
    """A hash of what a call returns and of its arguments afterwards, or the code of the error that refuses it."""
    seen = hashlib.sha1()
    try:
        given = run(*args)
    except ts.TesseraError as e:
        if e.code != "E_NONDETERMINISTIC":
            raise
        return e.code
    for value in [*(given if isinstance(given, tuple) else (given,)), *args]:
        if isinstance(value, np.ndarray):
            seen.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    return seen.hexdigest()


def main():
    with ts.numerics.profile("strict"):
        found = {name: [bits(run, args) for args in cases] for name, run, cases in [*gallery(), *larger()]}
    print(json.dumps({"backend": matmul.explain().backend, "bits": found}))


if __name__ == "__main__":
    main()
