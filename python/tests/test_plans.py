"""Plans compute what Graph IR means: random functions on arrays with control flow, and their derivatives.

`plans/` draws the functions. Each is evaluated op by op by the interpreter of Graph IR, and planned, lowered and run; derivatives
are compared with differences and with JAX's numbers, since the oracle and plans share their rules.
"""

from __future__ import annotations

import os
from collections import Counter

import graph_ops
import numpy as np
import pytest
from plans import fuzz, kept, run
from plans.generate import generate
from plans.numeric import Differences
from plans.values import Arg, Case

import tessera as ts
from tessera import xp

#: Seconds of random programs in `make test`, by two processes.
SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS") or 15)
WANTED = [
    "cond", "scan", "scan, reverse", "fori_loop", "fori_loop with a traced bound", "while_loop", "vmap", "grad", "value_and_grad", "grad of two",
    "vjp", "jvp", "reduction", "softmax", "norm", "argmax", "argsort", "sort", "top_k", "cumulative_sum", "cumulative_prod", "slice", "pad",
    "concat", "stack", "reshape", "transpose", "broadcast", "matmul", "gather", "take_along_axis", "scatter add", "scatter set", "scatter max",
    "dynamic_slice", "dynamic_update_slice", "one_hot", "where", "cast", "promotion", "comparison", "positions outside", "part in place",
    "captured: reduction", "captured: softmax", "captured: norm", "captured: argmax", "captured: cumulative_sum", "captured: matmul",
    "captured: gather", "captured: slice", "captured: constant", "captured: carry", "captured: loop index", "captured: cond", "captured: scan",
]  # fmt: skip


def test_programs_are_large_and_of_all_kinds() -> None:
    counts, small = Counter(), []
    for seed in range(600):
        case = generate(seed)
        counts.update(case.counts)
        small += [seed] * (case.ops < 15)
    assert not small
    missing = [name for name in WANTED if not counts[name]]
    assert not missing, missing


def test_a_wrong_plan_is_found_and_made_small(monkeypatch) -> None:
    """A plan that has other numbers after a sort is caught, and the program that shows it is short."""
    real = run.compiled

    def wrong(case, variants, backend, profile):
        out = real(case, variants, backend, profile)
        if "xp.sort" in case.text:
            out[0][0] = np.where(np.ones(out[0][0].shape, bool), out[0][0] + np.ones((), out[0][0].dtype), 0).astype(out[0][0].dtype)
        return out

    monkeypatch.setattr(run, "compiled", wrong)
    found = fuzz.go(3, 400, [("interp", "default")], stop_at=1, say=None, shrink_for=20)
    (failure,) = found.failures
    assert "xp.sort" in failure[1] and len(failure[1].splitlines()) < 20


def test_a_wrong_derivative_is_found(monkeypatch) -> None:
    """A rule that gives twice what it should is seen by differences."""
    monkeypatch.setattr(xp, "tanh", _twice)
    found = fuzz.go(44, 400, [("differences", "f64")], stop_at=1, say=None, shrink_for=5)  # the seed finds it soon
    assert found.failures and "tanh" in found.failures[0][1]


@ts.custom_jvp
def _twice(x):
    return xp.sin(x)


@_twice.defjvp
def _(primals, tangents):
    return xp.sin(primals[0]), 2.0 * xp.cos(primals[0]) * tangents[0]


def test_differences_are_derivatives() -> None:
    x = np.array([[0.3, -1.2], [2.0, 0.5]])
    made = Differences(1e-3)
    with ts.runtime.oracle():
        got = ts.jit(lambda x: made.grad(lambda a: xp.sum(a**3))(x))(x)
        _, moved = ts.jit(lambda x: made.jvp(xp.sin, (x,), (xp.ones_like(x),)))(x)
    np.testing.assert_allclose(got, 3 * x**2, rtol=1e-9)
    np.testing.assert_allclose(moved, np.cos(x), rtol=1e-9)


def test_rounding_is_no_difference_and_another_number_is() -> None:
    case = Case("def f(a0):\n    return xp.sum(a0) * 1.0,\n", [Arg("a0", "f32", (100,), False, 2)], 1)
    want = run.oracle(case, 1)
    near = [[np.nextafter(want[0][0], np.float32(9))]]
    assert not fuzz.differences(want, near, case, 1) and fuzz.differences(want, near, None, 1)
    assert fuzz.differences(want, [[want[0][0] * np.float32(1.001)]], case, 1)


#: Where a body stands, as a function of itself and its argument. Each gives what the body alone gives.
PLACES = {
    "cond": lambda f, x: ts.cond(xp.sum(xp.zeros_like(x)) < 1, f, lambda v: 0.0 * f(v), x),
    "scan": lambda f, x: ts.scan(lambda c, v: (c + f(v), None), 0.0 * f(x), xp.expand_dims(x, 0))[0],
    "scan, captured": lambda f, x: ts.scan(lambda c, k: (c, k * f(x)), xp.asarray(0.0), xp.ones((2,), dtype=ts.f64))[1][1],
    "fori_loop": lambda f, x: ts.fori_loop(0, 2, lambda i, c: c + 0.5 * f(x), 0.0 * f(x)),
    "cond in a loop": lambda f, x: ts.fori_loop(0, 2, lambda i, c: ts.cond(i < 1, lambda: f(x), lambda: c), 0.0 * f(x)),
    "vmap": lambda f, x: ts.vmap(lambda k: f(x) * k)(xp.ones((2,), dtype=ts.f64))[1],
}


@pytest.mark.parametrize("place", PLACES)
def test_every_derivative_rule_under_control_flow(place, monkeypatch) -> None:
    """The gradient of each function of arrays inside branches and loops is the one that it has alone, which
    test_graph_ops.py compares with differences and JAX."""
    monkeypatch.setenv("TESSERA_BACKEND", "interp")  # plans are the same, and are made sooner
    wrong = []
    for op in graph_ops.OPS:
        shapes = op.shapes[0]
        if not op.smooth or op.ints or not all(d for shape in shapes for d in shape):
            continue
        args, weights, _ = graph_ops.question(op, shapes)

        def alone(x, op=op, rest=args[1:], weights=weights):
            return op.fn(x, *rest) * weights

        def placed(x, alone=alone):
            return PLACES[place](alone, x)

        want = ts.jit(lambda x, f=alone: ts.grad(lambda v: xp.sum(f(v)))(x))(args[0])
        got = ts.jit(lambda x, f=placed: ts.grad(lambda v: xp.sum(f(v)))(x))(args[0])
        if not np.allclose(got, want, rtol=1e-9, atol=1e-9):
            wrong.append(f"{op.name}: {np.asarray(got).tolist()}, alone {np.asarray(want).tolist()}")
    assert not wrong, "\n".join(wrong)


def test_jax_says_the_same() -> None:
    """Programs whose numbers under JAX are kept: the interpreter of Graph IR, with all derivatives, in f64."""
    wrong = []
    for case, numbers in kept.read():
        got = np.array([kept.digest(a) for a in run.oracle(run.wide(case), 1)[0]])
        scale = 1 + np.abs(numbers[:, 2:])
        if not (np.abs(got - numbers) <= 1e-7 * scale).all():
            wrong.append(f"seed {case.seed}: {got.tolist()}, JAX: {numbers.tolist()}\n{case.text}")
    assert not wrong, "\n".join(wrong[:3])


@pytest.mark.parametrize("modes, share", [([("interp", "strict"), ("interp", "default")], 0.35), ([("cpu", "strict"), ("cpu", "default")], 0.45), ([("differences", "f64")], 0.2)])
def test_random_programs(modes, share) -> None:
    seed = fuzz.day()
    print(f"TESSERA_FUZZ_SEED={seed}, on {modes[0][0]}")
    tally = fuzz.spread(2, seed, 10**9, modes, SECONDS * share / 60, 3, without=frozenset(fuzz.KNOWN))
    print(tally.report())
    assert not tally.failures, f"TESSERA_FUZZ_SEED={seed}\n" + "\n".join(text for _, text in tally.failures)
    assert tally.agreed > 0.8 * tally.programs and len(tally.broken) <= tally.programs // 100
