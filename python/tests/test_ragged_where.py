"""Which arm of a `where` holds the padding, and whether its condition is false there."""

import linecache
import math
import random
import re

import numpy as np
import pytest

import tessera as ts

N, WIDTH = 5, 8
X = -np.arange(1, N + 1, dtype=np.float32)
_names = iter(range(10**9))


def reduced(body, result, x=X):
    """`y[0] = result` after `body`, as a kernel of its own."""
    lines = [*body.splitlines(), f"y[0] = {result}"]
    text = '@ts.kernel\ndef k(x: ts.Tensor["n", ts.f32], y: ts.Out[1, ts.f32]):\n' + "".join(f"    {l}\n" for l in lines)
    file = f"<ragged where {next(_names)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"ts": ts, "math": math}
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return float(scope["k"].launch(x, grid=1)[0])


def refused(body, result):
    with pytest.raises(ts.TesseraError) as caught:
        reduced(body, result)
    assert caught.value.code == "E_RAGGED"
    return caught.value


SLICE = "t = x[0:8]\np = ts.tile.arange(8)"


@pytest.mark.parametrize(
    "result",
    [
        "ts.tile.sum(ts.tile.where(p < n, 0.0, t + 1.0))",
        "ts.tile.max(ts.tile.where(p < n, -9.0, t))",
        "ts.tile.max(ts.tile.where(p >= n, t, -9.0))",
        "ts.tile.max(ts.tile.where(~(p < n), t, -9.0))",
        "ts.tile.max(ts.tile.where((p < n) | (p < 2), -9.0, t))",
        "ts.tile.max(ts.tile.where((p < n) | (t < 0.0), t, -9.0))",
        "ts.tile.max(ts.tile.where(~((p < n) & (p >= 1)), t, -9.0))",
        "ts.tile.max(ts.tile.where(n - p < 0, t, -9.0))",
        "ts.tile.max(ts.tile.where(-p > -n, -9.0, t))",
        "ts.tile.max(ts.tile.where(p != n, t, -9.0))",
        "ts.tile.max(ts.tile.where(p < n, ts.tile.where(p < n, -9.0, t), ts.tile.where(p < n, -9.0, t)))",
    ],
)
def test_an_arm_that_is_taken_in_the_padding_is_refused(backend, result):
    refused(SLICE, result)


@pytest.mark.parametrize(
    ("result", "want"),
    [
        ("ts.tile.sum(ts.tile.where(p >= n, 0.0, t + 1.0))", -10),
        ("ts.tile.sum(ts.tile.where(~(p < n), 0.0, t + 1.0))", -10),
        ("ts.tile.max(ts.tile.where(n <= p, -9.0, t))", -1),
        ("ts.tile.max(ts.tile.where((p >= n) | (p < 1), -9.0, t))", -2),
        ("ts.tile.max(ts.tile.where(~((p < n) & (p >= 1)), -9.0, t))", -2),
        ("ts.tile.max(ts.tile.where(~((p >= n) | (t > -3.0)), t, -9.0))", -3),
        ("ts.tile.max(ts.tile.where((p < n) | (p < 2), t, -9.0))", -1),
        ("ts.tile.max(ts.tile.where(-p > -n, t, -9.0))", -1),
        ("ts.tile.max(ts.tile.where(n - p > 0, t, -9.0))", -1),
        ("ts.tile.max(ts.tile.where(p < n, ts.tile.where(p < n, -9.0, t), -8.0))", -8),
        ("ts.tile.sum(ts.tile.where(p < n, 0.0, t))", 0),
    ],
)
def test_an_arm_that_is_not_taken_in_the_padding_is_accepted(backend, result, want):
    assert reduced(SLICE, result) == want


def test_a_store_at_ragged_positions_needs_a_mask_that_is_false_in_the_padding(backend):
    with pytest.raises(ts.TesseraError) as caught:

        @ts.kernel
        def padding_alone(at: ts.Tensor["n", ts.i32], y: ts.Tensor[4, ts.f32]):
            ts.tile.store(y, at[0:8], 1.0, mask=ts.tile.arange(8) >= n)

    assert caught.value.code == "E_RAGGED"

    @ts.kernel
    def mark(at: ts.Tensor["n", ts.i32], y: ts.Tensor[4, ts.f32]):
        ts.tile.store(y, at[0:8], 1.0, mask=ts.tile.arange(8) < n)
        return y

    assert mark.launch(np.array([3, 1], np.int32), np.zeros(4, np.float32), grid=1).tolist() == [0, 1, 0, 1]


def test_padding_that_a_reshape_moved_is_masked_before_it(backend):
    for reduce in ("ts.tile.max(t)", "ts.tile.max(ts.tile.max(t, axis=1))"):
        error = refused("t = ts.tile.reshape(x[0:8], (2, 4))", reduce)
        assert "before it is reshaped: `ts.tile.bounds_mask(x[…], cols=n)`" in error.help
        # A mask of the reshaped tile cannot separate the padding from the rest.
        refused("t = ts.tile.bounds_mask(ts.tile.reshape(x[0:8], (2, 4)), cols=n)", reduce)
        followed = "t = ts.tile.reshape(ts.tile.bounds_mask(x[0:8], cols=n), (2, 4))"
        assert reduced(followed, reduce) == -1
    # Axes of one element, and merged axes of which the first is ragged, move nothing.
    one = "t = ts.tile.bounds_mask(ts.tile.reshape(x[0:8], (1, 8)), cols=n)"
    assert reduced(one, "ts.tile.max(t)") == -1


def test_padding_that_a_loop_carried_is_masked_where_it_is_read(backend):
    loop = "acc = ts.tile.full((4,), -100.0, ts.f32)\nfor k0 in range(0, n, 4):\n    acc = ts.tile.maximum(acc, {})"
    error = refused(loop.format("x[k0:k0 + 4]"), "ts.tile.max(acc)")
    assert "inside the loop: `ts.tile.bounds_mask(x[…], cols=n - k0)`" in error.help
    # After the loop no bound is right: `n` would keep what the last iteration read beyond the end.
    refused(loop.format("x[k0:k0 + 4]") + "\nacc = ts.tile.bounds_mask(acc, cols=n)", "ts.tile.max(acc)")
    assert reduced(loop.format("ts.tile.bounds_mask(x[k0:k0 + 4], cols=n - k0)"), "ts.tile.max(acc)") == -1
    # A slice that stays where it is has its padding at the end in every iteration.
    same = "acc = ts.tile.full((8,), 0.0, ts.f32)\nfor j in range(3):\n    acc = ts.tile.exp(x[0:8])"
    same += "\nacc = ts.tile.bounds_mask(acc, cols=n)"
    assert math.isclose(reduced(same, "ts.tile.max(acc)"), math.exp(-1), rel_tol=1e-5)


# Random trees. Padding must not be seen: an accepted reduction is that of the real elements alone, or
# the same whatever stands in the padding.


def condition(rng, depth):
    if depth > 0 and rng.random() < 0.5:
        a, b = condition(rng, depth - 1), condition(rng, depth - 1)
        return rng.choice([f"~{a}", f"({a} & {b})", f"({a} | {b})"])
    bound = rng.choice(["n", "n", "(n - 1)", "2"])
    if rng.random() < 0.25:
        return rng.choice(["(t > -3.0)", "(t < -2.0)"])
    return rng.choice(
        [
            f"(p < {bound})",
            f"(p >= {bound})",
            f"({bound} > p)",
            f"({bound} <= p)",
            f"({bound} - p > 0)",
            f"({bound} - p <= 0)",
            f"(p * 2 < {bound} * 2)",
            f"(p * -1 <= -{bound})",
        ]
    )


def tree(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["t", "t", "(t + 1.0)", "0.0 * t", "full(2.0)", "full(0.0)", "full(-9.0)"])
    a, b = tree(rng, depth - 1), tree(rng, depth - 1)
    if rng.random() < 0.6:
        return f"where({condition(rng, 2)}, {a}, {b})"
    return rng.choice([f"({a} + {b})", f"({a} * {b})", f"maximum({a}, {b})", f"minimum({a}, {b})", f"abs({a})"])


REDUCTIONS = ["sum", "max", "min", "prod"]
NUMPY = {"where": np.where, "maximum": np.maximum, "minimum": np.minimum, "abs": np.abs, "n": N}


def model(text, name, padding):
    t = np.concatenate([X, np.asarray(padding, np.float32)])
    p = np.arange(len(t), dtype=np.int32)
    full = lambda v: np.full(len(t), v, np.float32)
    with np.errstate(all="ignore"):
        tile = eval(text, {**NUMPY, "t": t, "p": p, "full": full}).astype(np.float64)
        return float(getattr(np, name)(tile))


def kernel_text(text):
    for name in ("where", "maximum", "minimum", "abs"):
        text = text.replace(f"{name}(", f"ts.tile.{name}(")
    return re.sub(r"full\(([-0-9.]+)\)", r"ts.tile.full((8,), \1, ts.f32)", text)


def test_random_trees_do_not_see_padding():
    ts.runtime.select_backend("interp")
    rng = random.Random(18)
    accepted = rejected = 0
    try:
        for _ in range(400):
            text, name = tree(rng, rng.choice([1, 2, 2, 3])), rng.choice(REDUCTIONS)
            try:
                got = reduced(SLICE, f"ts.tile.{name}({kernel_text(text)})")
            except ts.TesseraError as e:
                assert e.code == "E_RAGGED", f"{name}({text}): {e}"
                rejected += 1
                continue
            accepted += 1
            real = model(text, name, [])
            filled = [model(text, name, garbage) for garbage in ([0, 0, 0], [7, -7, 100], [-50, 3, -0.5])]
            alike = all(f == filled[0] for f in filled)
            wanted = filled[0] if alike else real
            assert math.isclose(got, wanted, rel_tol=1e-5, abs_tol=1e-5), f"{name}({text}): {got}, {wanted}"
    finally:
        ts.runtime.select_backend(None)
    assert accepted > 60 and rejected > 60, (accepted, rejected)
