"""Kernels of users inside jitted functions are launches of the plan: no Python runs in a later call, and nothing is copied to bytes."""

import sys

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X = np.linspace(-1, 1, 24, dtype=np.float32)
Y = np.linspace(2, 3, 24, dtype=np.float32)


@ts.struct
class Affine:
    x: ts.Tensor["n", ts.f32]
    scale: ts.f32
    BLOCK: int = 8
    bias: ts.Tensor["n", ts.f32] | None = None


@ts.func
def twice(v):
    return v + v


@ts.kernel
def scaled(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] * alpha


@ts.kernel
def tiles(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], f: ts.Fn = twice, BLOCK: int = 8):
    s = ts.tile.program_id(0) * BLOCK
    y[s : s + BLOCK] = f(x[s : s + BLOCK])
    return y


@ts.kernel
def affine(p: Affine, y: ts.Out["n", ts.f32]):
    s = ts.tile.program_id(0) * p.BLOCK
    v = p.x[s : s + p.BLOCK] * p.scale
    if p.bias is not None:
        v = v + p.bias[s : s + p.BLOCK]
    y[s : s + p.BLOCK] = v
    return y


@ts.kernel
def optional(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], more: ts.Tensor["n", ts.f32] | None = None):
    i = ts.tile.linear_id()
    if i < n:
        v = x[i]
        if more is not None:
            v += more[i]
        y[i] = v


@ts.kernel
def total(x: ts.Tensor["n", ts.f32], t: ts.Region[ts.reduce_sum, ts.Tensor[1, ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        t[0] += x[i]
    return t


@ts.kernel
def both(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], z: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] + 1
        z[i] = x[i] - 1
    return y, z


FUNCTIONS = {
    "numbers that are known": lambda x, a: scaled(x, alpha=2.5) + 1,
    "numbers that are computed": lambda x, a: scaled(x, alpha=a.sum()),
    "constants and functions": lambda x, a: tiles(x * 2, BLOCK=4) - a,
    "records": lambda x, a: affine(Affine(x, 3.0)) + affine(Affine(x, 0.5, bias=a)),
    "options": lambda x, a: optional(x) + optional(x, more=a),
    "reductions": lambda x, a: x / total(x, xp.ones(1, "float32")),
    "several results": lambda x, a: both(x)[0] * both(a)[1],
    "a chain": lambda x, a: scaled(tiles(scaled(x, alpha=2.0)), alpha=0.25) + a,
    "a loop": lambda x, a: ts.fori_loop(0, 5, lambda i, v: scaled(v, alpha=1.5) + a, x),
    "a branch": lambda x, a: ts.cond(x.sum() > 0, lambda v: scaled(v, alpha=2.0), lambda v: scaled(v, alpha=3.0), x),
}


def frames(f, *args):
    """The Python functions that a call runs."""
    seen = []

    def note(frame, event, _):
        if event == "call":
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        f(*args)
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_call_of_a_kernel_is_a_launch(what):
    f = ts.jit(FUNCTIONS[what])
    plan = f.compiled(X, Y).plan
    assert "sched.launch" in plan and "sched.call" not in plan and "sched.host" not in plan, plan
    for x in (X, Y, X[::-1].copy()):
        np.testing.assert_allclose(f(x, Y), expected(what, x, Y), rtol=1e-5, atol=1e-6)


def expected(what, x, a):
    return {
        "numbers that are known": lambda: x * 2.5 + 1,
        "numbers that are computed": lambda: x * a.sum(),
        "constants and functions": lambda: x * 4 - a,
        "records": lambda: x * 3 + (x * 0.5 + a),
        "options": lambda: x + (x + a),
        "reductions": lambda: x / (1 + x.sum(dtype=np.float64)),
        "several results": lambda: (x + 1) * (a - 1),
        "a chain": lambda: x + a,
        "a loop": lambda: loop(x, a),
        "a branch": lambda: x * (2 if x.sum() > 0 else 3),
    }[what]()


def loop(x, a):
    for _ in range(5):
        x = x * np.float32(1.5) + a
    return x


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_later_call_runs_no_python_for_its_kernels(what):
    plain, f = ts.jit(lambda x, a: x + a), ts.jit(FUNCTIONS[what])
    for g in (plain, f):
        g(X, Y)
        g(X, Y)
    assert frames(f, X, Y) == frames(plain, X, Y)


def test_a_tuned_kernel_is_called():
    """Its candidates are compared where it is launched."""

    @ts.kernel.autotune(space={"B": [4, 8]})
    def tuned(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        B = ts.tile.context().B
        s = ts.tile.program_id(0) * B
        y[s : s + B] = x[s : s + B] * 2

    f = ts.jit(lambda x: tuned(x) + 1)
    assert "sched.call" in f.compiled(X).plan
    np.testing.assert_array_equal(f(X), X * 2 + 1)
