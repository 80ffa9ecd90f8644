"""Operators and methods of ``ts`` arrays on a device, compared with arrays in host memory: dtype, shape and every element;
integers must be equal. ``python -m conformance.gpu.array_check``."""

from __future__ import annotations

import itertools
import operator
import sys

import ml_dtypes
import numpy as np

import tessera as ts
from tessera import xp

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"]
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
]  # fmt: skip
METHODS = [
    ("sum", {}), ("sum", {"axis": 0}), ("mean", {"axis": 1}), ("max", {"axis": 1}), ("min", {}), ("prod", {"axis": 0}),
    ("argmax", {"axis": 1}), ("argmin", {"axis": 0}), ("std", {}), ("var", {"axis": 1}), ("any", {"axis": 0}), ("all", {}),
    ("cumsum", {"axis": 1}), ("astype", {"dtype": ts.f32}), ("ravel", {}), ("round", {}), ("clip", {"min": 1, "max": 2}),
]  # fmt: skip
DEVICE = "cuda:0"


def host(dtype: str, shape: tuple[int, ...] = (3,)) -> np.ndarray:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return (np.arange(int(np.prod(shape))) % 3 + 1).reshape(shape).astype(np.float32).astype(kind)


def numbers(x: object) -> np.ndarray:
    return x.numpy() if type(x) is ts._core.Array else np.asarray(x)


def outcome(run) -> object:
    try:
        return numbers(run())
    except (ts.TesseraError, TypeError, ValueError, IndexError) as error:
        return getattr(error, "code", None) or type(error).__name__


def differ(a: object, b: object) -> str | None:
    if isinstance(a, str) or isinstance(b, str):
        # Messages differ in the operands that they name; both must be refused.
        return None if isinstance(a, str) and isinstance(b, str) else f"{a if isinstance(a, str) else a.dtype} and {b if isinstance(b, str) else b.dtype}"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {a.shape} and {b.dtype} {b.shape}"
    if a.dtype.kind in "biu":
        return None if np.array_equal(a, b) else f"{a} and {b}"
    near = np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-2 if a.dtype.itemsize == 2 else 1e-5, equal_nan=True)
    return None if near else f"{a} and {b}"


def main() -> int:
    failed, count = [], 0

    def compare(name: str, here, there) -> None:
        nonlocal count
        count += 1
        found = differ(outcome(here), outcome(there))
        if found:
            failed.append(f"{name}: {found}")

    both = {d: (xp.asarray(host(d)), ts.array(host(d), device=DEVICE)) for d in DTYPES}
    numbers_too = [True, 2, 2.5, np.float32(1.5), np.int64(2)]
    for op in BINARY:
        for d, e in itertools.product(DTYPES, DTYPES):
            compare(f"{op.__name__} {d} {e}", lambda: op(both[d][0], both[e][0]), lambda: op(both[d][1], both[e][1]))
        for d, n in itertools.product(DTYPES, numbers_too):
            compare(f"{op.__name__} {d} {n!r}", lambda: op(both[d][0], n), lambda: op(both[d][1], n))
            compare(f"{op.__name__} {n!r} {d}", lambda: op(n, both[d][0]), lambda: op(n, both[d][1]))
    for op in (operator.neg, operator.abs, operator.invert, operator.pos):
        for d in DTYPES:
            compare(f"{op.__name__} {d}", lambda: op(both[d][0]), lambda: op(both[d][1]))
    for (name, how), d in itertools.product(METHODS, DTYPES):
        a, b = xp.asarray(host(d, (4, 5))), ts.array(host(d, (4, 5)), device=DEVICE)
        if hasattr(a, name) != hasattr(b, name):
            failed.append(f"{name}: only one has it")
        elif hasattr(a, name):
            compare(f"{name}({how}) {d}", lambda: getattr(a, name)(**how), lambda: getattr(b, name)(**how))
    a, b = (f(host("float32", (6, 7))) for f in (xp.asarray, lambda x: ts.array(x, device=DEVICE)))
    for name, f in {
        "slices": lambda x: x[1:, ::2] * 2, "matmul": lambda x: x @ x.T, "reshape": lambda x: x.reshape(7, 6) + 1,
        "transposed": lambda x: x.T - 1, "at": lambda x: x.at[1:3].add(2.0), "where": lambda x: xp.where(x > 1, x, -x),
        "jit": ts.jit(lambda x: xp.sum(x * x, axis=0)), "grad": ts.grad(lambda x: xp.sum(xp.sin(x) * x)),
        "index": lambda x: x[xp.asarray([0, 2])], "mixed": lambda x: (x + 1).sum() / x.mean(), "compare": lambda x: (x == x).all(),
    }.items():  # fmt: skip
        compare(name, lambda: f(a), lambda: f(b))
        if isinstance(outcome(lambda: f(b)), str):
            failed.append(f"{name}: refused with {outcome(lambda: f(b))}")
        elif type(f(b)) is not ts._core.Array:
            failed.append(f"{name}: the result is a {type(f(b)).__name__}, not an array of the device")
    for line in failed[:60]:
        print(line)
    print(f"{count} results compared, {len(failed)} differ")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
