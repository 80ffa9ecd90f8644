"""Runs a program: by the interpreter of Graph IR, compiled, and in f64."""

from __future__ import annotations

import linecache
import re
import warnings
from typing import Any

import numpy as np

import tessera as ts
from tessera import nn, xp

from . import on_mesh
from .numeric import Differences
from .values import Arg, Case


class Refused(Exception):
    """The compiler does not take the program."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.code = getattr(error, "code", None) or type(error).__name__


def first(x: Any) -> Any:
    """What a pull gives for its one argument, bare or in a tuple."""
    return x[0] if isinstance(x, tuple) else x


_FILES = 0


def load(text: str, names: dict[str, Any] | None = None) -> Any:
    """The function ``f`` of a program; its lines are there for messages."""
    global _FILES
    _FILES += 1
    file = f"<plan {_FILES}>"
    linecache.cache.pop(f"<plan {_FILES - 8}>", None)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"ts": ts, "xp": xp, "nn": nn, "np": np, "first": first, "pin": lambda x, _: x, "__name__": "random_plan", **(names or {})}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace["f"]


def _results(made: Any) -> list[np.ndarray]:
    return [np.array(a) for a in made]


def oracle(case: Case, variants: int, names: dict[str, Any] | None = None) -> list[list[np.ndarray]]:
    """The results op by op, by the definition of each op in Graph IR."""
    fn = ts.jit(load(case.text, names))
    with ts.runtime.oracle(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_results(fn(*case.arguments(k))) for k in range(variants)]


def compiled(case: Case, variants: int, backend: str, profile: str) -> list[list[np.ndarray]]:
    """The results of the plan's kernels on a backend; `cuda`: on arrays of the first GPU; `mesh`: on arrays on a mesh."""
    try:
        if backend == "mesh":
            return on_mesh.results(case, variants, profile, load)
        with ts.numerics.profile(profile), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fn = ts.jit(load(case.text))
            if backend == "cuda":
                there = [[ts.array(a, device="cuda:0") for a in case.arguments(k)] for k in range(variants)]
                return [[a.numpy() if isinstance(a, ts.Array) else np.asarray(a) for a in fn(*given)] for given in there]
            ts.runtime.select_backend(backend)
            return [_results(fn(*case.arguments(k))) for k in range(variants)]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics are no `Exception`
        raise Refused(error) from None
    finally:
        ts.runtime.select_backend(None)


def wide(case: Case) -> Case:
    """The program with all floats in f64: what it would give without rounding."""
    args = [Arg(a.name, "f64" if a.dtype in ("f16", "bf16", "f32") else a.dtype, a.shape, a.whole, a.bound) for a in case.args]
    out = Case(re.sub(r"\bts\.(f16|bf16|f32)\b", "ts.f64", case.text), args, case.seed)
    narrow = case.arguments
    out.arguments = lambda k=0: [np.asarray(v).astype(w.dtype) for v, w in zip(narrow(k), Case.arguments(out, k))]  # type: ignore[method-assign]
    return out


def by_differences(case: Case, variants: int) -> list[list[list[np.ndarray]]]:
    """The results of the program in f64 with derivatives by differences, for each of several steps."""
    return [oracle(wide(case), variants, {"ts": Differences(step)}) for step in (1e-3, 1e-5)]


def from_sides(case: Case, variants: int) -> list[list[list[np.ndarray]]]:
    """The same with derivatives from above and from below, which differ at a corner."""
    return [oracle(wide(case), variants, {"ts": Differences(1e-4, side)}) for side in (1, -1)]


def by_jax(case: Case, variants: int) -> list[list[np.ndarray]]:
    """The results under JAX, in f64."""
    from . import jax_names

    there = wide(case)
    return jax_names.evaluate(there.text, [there.arguments(k) for k in range(variants)])
