"""Every op of the table: its value against NumPy and JAX, on the compiler and on the oracle; its derivatives, first and second,
forward and reverse, against JAX, against differences in f64 and against each other."""

import contextlib
import re
from pathlib import Path

import graph_ops
import jax_kinks
import jax_values
import numpy as np
import pytest
from doc_blocks import BLESS, ROOT

import tessera as ts
from tessera import nn, xp
from tessera.trace.execute import oracle

CASES = [pytest.param(op, shapes, id=jax_values.key(op, shapes)) for op, shapes in graph_ops.cases()]
SMOOTH = [c for c in CASES if c.values[0].smooth]
MODES = {"oracle": oracle, "compiled": contextlib.nullcontext}
#: How far from JAX's numbers, which are sums of other orders.
BOUND = {"rtol": 1e-9, "atol": 1e-10}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("op", "shapes"), CASES)
def test_value(op, shapes, mode):
    args = graph_ops.arguments(op, shapes)
    want = np.asarray(op.reference(*args))
    with MODES[mode]():
        got = ts.jit(op.fn)(*args)
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-11, atol=op.bound)
    np.testing.assert_allclose(np.asarray(got, np.float64), jax_values.answers(op, shapes)["value"][0], rtol=1e-11, atol=op.bound)


def scalar(op, args, weights):
    """The op as a function of its float arguments, and that as one number: a weighted sum of its results."""
    places = [k for k in range(len(args)) if k not in op.ints]

    def call(*given):
        full = list(args)
        for k, v in zip(places, given, strict=True):
            full[k] = v
        return op.fn(*full)

    return call, lambda *given: xp.sum(call(*given) * weights)


def close(got, want, **bound):
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, **(bound or BOUND))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("op", "shapes"), SMOOTH)
def test_derivatives(op, shapes, mode):
    args, weights, v = graph_ops.question(op, shapes)
    call, f = scalar(op, args, weights)
    x = tuple(graph_ops.floats(op, args))
    numbers, eps = tuple(range(len(x))), 1e-6

    @ts.jit
    def everything(x, v):
        up, down = (f(*(a + s * d for a, d in zip(x, v, strict=True))) for s in (eps, -eps))
        return up, down, ts.grad(f, argnums=numbers)(*x), ts.jvp(call, x, v)[1]

    with MODES[mode]():
        up, down, grads, tangent = everything(x, v)
    theirs = jax_values.answers(op, shapes)
    close([tangent], theirs["tangent"])
    close(grads, theirs["gradient"])
    slope = (float(up) - float(down)) / (2 * eps)
    reverse = sum(float((g * d).sum()) for g, d in zip(grads, v, strict=True))
    assert reverse == pytest.approx(slope, rel=1e-5, abs=2e-7 * max(1.0, abs(slope)))
    assert all(g.shape == a.shape and g.dtype == a.dtype for g, a in zip(grads, x, strict=True))


# The compiler's passes do not look at which derivative made an op: a shape of each row is compiled, all are interpreted.
@pytest.mark.parametrize(
    ("op", "shapes", "mode"),
    [pytest.param(*c.values, mode, id=f"{c.id}-{mode}") for c in SMOOTH for mode in MODES
     if mode == "oracle" or c.values[1] == c.values[0].shapes[0]],
)  # fmt: skip
def test_second_derivatives(op, shapes, mode):
    """Forward over reverse, and reverse over reverse, against JAX and against differences of gradients."""
    args, weights, v = graph_ops.question(op, shapes)
    _, f = scalar(op, args, weights)
    x = tuple(graph_ops.floats(op, args))
    numbers, eps = tuple(range(len(x))), 1e-5
    gradient = ts.grad(f, argnums=numbers)

    def along(x, v):
        return sum(xp.sum(g * d) for g, d in zip(gradient(*x), v, strict=True))

    @ts.jit
    def everything(x, v):
        up, down = (gradient(*(a + s * d for a, d in zip(x, v, strict=True))) for s in (eps, -eps))
        got = ts.hvp(f, x, v)
        return up, down, got if isinstance(got, tuple) else (got,), ts.grad(along)(x, v)

    with MODES[mode]():
        up, down, forward, reverse = everything(x, v)
    theirs = jax_values.answers(op, shapes)
    close(forward, theirs["forward"], rtol=1e-8, atol=1e-9)
    close(reverse, theirs["reverse"], rtol=1e-8, atol=1e-9)
    close(forward, [(a - b) / (2 * eps) for a, b in zip(up, down, strict=True)], rtol=2e-4, atol=2e-5)


SMALLEST = {}
for _case in SMOOTH:
    _op, _shapes = _case.values
    _size = sum(int(np.prod(s)) for s in _shapes)
    if _size and _size < SMALLEST.get(_op.name, (1 << 30,))[0]:
        SMALLEST[_op.name] = _size, _op, _shapes


@pytest.mark.parametrize("name", SMALLEST)
def test_gradcheck(name):
    """Line 24 of the acceptance list: `ts.gradcheck` takes every op that has derivatives."""
    _, op, shapes = SMALLEST[name]
    args = graph_ops.arguments(op, shapes)
    with oracle():
        call, _ = scalar(op, args, 1.0)
        assert ts.gradcheck(call, *graph_ops.floats(op, args))


def test_no_function_is_left_out_without_a_reason():
    rows = Path(graph_ops.__file__).read_text().partition("LEFT_OUT")[0]
    bare = []
    for space in (xp, nn):
        public = {n: v for n, v in vars(space).items() if not n.startswith("_") and callable(v) and not isinstance(v, (type, ts.DType))}
        for name, value in public.items():
            # Other names of one function share its row.
            names = [n for n, v in public.items() if v is value]
            has_row = any(re.search(rf'\b(xp|nn)\.{n}\b|"{n}"', rows) for n in names)
            if not has_row and not any(n in graph_ops.LEFT_OUT for n in names):
                bare.append(f"{space.__name__}.{name}")
    assert not bare, f"functions without a row in graph_ops.OPS and without a reason: {bare}"


def test_no_primitive_is_left_out_without_a_reason():
    crates = Path(__file__).parents[2] / "crates"
    table = (crates / "graph/src/table.rs").read_text()
    scalars = (crates / "numerics/src/scalar_fn.rs").read_text()
    known = set(re.findall(r'= 0x[0-9A-F]+ "(\w+)"', table)) | set(re.findall(r'^        [A-Z]\w+ = "?(\w+)["(]', scalars, re.M))
    assert len(known) > 80
    used = set()
    for op in graph_ops.OPS:
        used |= set(re.findall(r"graph\.(\w+)", ts.jit(op.fn).trace(*graph_ops.arguments(op, op.shapes[0]))))
    assert used <= known
    left = known - used - set(graph_ops.LEFT_OUT_PRIMITIVES)
    assert not left, f"primitives without a row in graph_ops.OPS and without a reason: {sorted(left)}"
    stale = used & set(graph_ops.LEFT_OUT_PRIMITIVES)
    assert not stale, f"primitives that have a row now: {sorted(stale)}"


@pytest.mark.jax
def test_kept_values_are_those_of_jax():
    """A part of the kept file, computed again."""
    import jax_ops

    for op, shapes in graph_ops.cases()[::60]:
        found = jax_ops.answers(op, *graph_ops.question(op, shapes))
        for what, arrays in jax_values.answers(op, shapes).items():
            for got, want in zip(found[what], arrays, strict=True):
                np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=1e-12, atol=1e-14, err_msg=f"{op.name}: {what}")


def test_every_row_is_in_the_page():
    """`docs/op-derivatives.md` says what each row was held against: written anew with TESSERA_BLESS=1."""
    page = ROOT / "docs/op-derivatives.md"
    text = _page()
    if BLESS:
        page.write_text(text)
    assert page.read_text() == text, "docs/op-derivatives.md is not what the rows say: run it with TESSERA_BLESS=1"


def _page() -> str:
    rows = {}
    for op, shapes in graph_ops.cases():
        rows.setdefault(op.name, []).append((op, shapes))
    lines = [
        "# Ops and derivatives: what each was held against",
        "",
        "Written by `python/tests/test_graph_ops.py` from the rows of `python/tests/graph_ops.py`; all in f64, with the arguments of",
        "`graph_ops.question`. JAX's numbers are kept in `python/tests/jax_values.npz`, which `scripts/jax-values.sh` writes.",
        "",
        "- **value**: against NumPy and against JAX, interpreted and compiled, within 1e-11.",
        "- **JVP, VJP**: against JAX within 1e-9 and against central differences, interpreted and compiled.",
        "- **second**: the derivative of the gradient along a direction, forward over reverse and reverse over reverse, against JAX",
        "  within 1e-8 and against differences of gradients: interpreted at every shape, compiled at the first.",
        "",
        "Shapes are those that were tried; the last of a row that takes any extents was drawn by chance.",
        "",
        "| op | shapes | value | JVP | VJP | second |",
        "|---|---|---|---|---|---|",
    ]
    for name, cases in rows.items():
        shapes = "; ".join(" ".join(str(list(s)) for s in shapes) for _, shapes in cases)
        kept = {what for op, s in cases for what in jax_values.answers(op, s)}
        smooth = cases[0][0].smooth
        # A page that claims what the file does not hold would be a lie.
        assert kept == (set(jax_values.WHAT) if smooth else {"value"}), name
        said = ["yes"] * 4 if smooth else ["yes", "none: steps", "none: steps", "none: steps"]
        lines.append(f"| `{name}` | {shapes} | {' | '.join(said)} |")
    for title, left in (("Functions", graph_ops.LEFT_OUT), ("Primitives of Graph IR", graph_ops.LEFT_OUT_PRIMITIVES)):
        lines += ["", f"## {title} without a row, and why", "", "| name | why |", "|---|---|"]
        lines += [f"| `{name}` | {why} |" for name, why in left.items()]
    return "\n".join([*lines, "", *jax_kinks.page(), ""])
