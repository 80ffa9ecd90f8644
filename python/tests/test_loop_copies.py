"""Copy elision in loops of several kernels: an iteration writes carried values where the next one reads them.

Random bodies on integers, large enough that no loop is one kernel, are compared with the same statements in NumPy: kernels that
overwrite what they read, values that are swapped, rows of stacks, values that are carried twice or not at all."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import xp

SEEDS = range(40)
#: More than a tile of a loop that is one kernel.
SHAPE = (70, 64)


class Draw:
    """Statements of a body, by numbers: the same text for both modules."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.carries = int(rng.integers(1, 5))
        self.steps = [self._step(rng) for _ in range(int(rng.integers(1, 7)))]
        self.handed_on = [int(k) for k in rng.integers(0, self.carries + len(self.steps), self.carries)]
        self.stacked = [int(k) for k in rng.integers(0, self.carries + len(self.steps), int(rng.integers(0, 3)))]
        self.trip = int(rng.integers(0, 5))
        self.arrays = [rng.integers(-9, 10, SHAPE).astype(np.int32) for _ in range(self.carries)]
        self.captured = rng.integers(-3, 4, SHAPE).astype(np.int32)

    @staticmethod
    def _step(rng: np.random.Generator) -> tuple[str, int, int, int]:
        kinds = ("add", "less", "roll", "flip", "sum", "max", "captured", "transpose", "same", "part")
        return str(rng.choice(kinds)), int(rng.integers(0, 99)), int(rng.integers(0, 99)), int(rng.integers(1, 5))

    def body(self, m, i, carry, captured, put):
        values = list(carry)
        for kind, a, b, n in self.steps:
            x, y = values[a % len(values)], values[b % len(values)]
            if kind == "add":
                new = x * n + y
            elif kind == "less":
                new = m.where(x < y, x + i, y - n)
            elif kind == "roll":
                new = m.roll(x, n, axis=n % 2)
            elif kind == "flip":
                new = m.flip(x, axis=n % 2)
            elif kind == "sum":
                new = m.broadcast_to(m.sum(x, axis=n % 2, keepdims=True, dtype=m.int32), SHAPE) + y
            elif kind == "max":
                new = y - m.max(x)
            elif kind == "captured":
                new = x + captured * n
            elif kind == "transpose":
                new = m.reshape(x.T, SHAPE)
            elif kind == "same":
                new = x
            else:
                new = put(x, n, y)
            values.append(m.remainder(new, 1009).astype(m.int32))
        return tuple(values[k] for k in self.handed_on), tuple(values[k] for k in self.stacked)


def put_numpy(x, n, y):
    x = x.copy()
    x[n : 2 * n + 7, 3:50] = y[n : 2 * n + 7, 3:50] + 1
    return x


def put_traced(x, n, y):
    return x.at[n : 2 * n + 7, 3:50].set(y[n : 2 * n + 7, 3:50] + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loop_gives_what_its_iterations_give(seed: int) -> None:
    draw = Draw(seed)

    def scanned(captured, *arrays):
        return ts.scan(lambda c, i: draw.body(xp, i, c, captured, put_traced), arrays, xp.arange(draw.trip, dtype=ts.i32))

    def counted(captured, *arrays):
        return ts.while_loop(
            lambda s: s[0] < draw.trip,
            lambda s: (s[0] + 1, *draw.body(xp, s[0], s[1:], captured, put_traced)[0]),
            (xp.asarray(0, dtype=ts.i32), *arrays),
        )[1:]

    want, stacks = tuple(draw.arrays), []
    for i in range(draw.trip):
        want, row = draw.body(np, np.int32(i), want, draw.captured, put_numpy)
        stacks.append(row)
    got, rows = ts.jit(scanned)(draw.captured, *draw.arrays)
    for a, b in zip(want, got):
        np.testing.assert_array_equal(a, np.asarray(b))
    for k, stack in enumerate(rows):
        np.testing.assert_array_equal(np.array([row[k] for row in stacks]).reshape(draw.trip, *SHAPE), np.asarray(stack))
    for a, b in zip(want, ts.jit(counted)(draw.captured, *draw.arrays)):
        np.testing.assert_array_equal(a, np.asarray(b))


def steps(function, *args) -> list[str]:
    """The steps of a plan."""
    text = str(ts.jit(function).compiled(*args).plan)
    return [line.strip() for line in text.splitlines() if "sched.launch" in line or "sched.copy" in line]


def test_an_elementwise_body_is_one_kernel_that_writes_in_place() -> None:
    x, y = np.ones((300, 400), np.float32), np.ones((300, 400), np.float32)

    def run(x, y):
        return ts.fori_loop(0, 100, lambda i, s: (s[0] * 0.5 + s[1], s[0] * s[1] - 1), (x, y))

    inside = steps(run, x, y)
    assert sum("sched.copy" in line for line in inside) == 2, inside
    assert sum("sched.launch" in line for line in inside) == 1, inside


def test_what_no_iteration_changes_is_computed_once() -> None:
    a, x = np.ones((300, 400), np.float32), np.ones((300, 400), np.float32)

    def run(a, x):
        return ts.fori_loop(0, 10, lambda i, s: s + xp.sum(xp.exp(a)), x)

    before = str(ts.jit(run).compiled(a, x).plan).split("sched.loop")[0]
    assert "reduce" in before, before


def test_passes_of_plans_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(5000, dtype=np.float32)

    def run(x):
        return ts.fori_loop(0, 4, lambda i, s: s + 1, x)

    copies = lambda: sum("sched.copy" in line for line in steps(lambda x: run(x), x))  # noqa: E731
    with_it = copies()
    monkeypatch.setenv("TESSERA_OFF", "copy_elision")
    assert copies() == with_it + 1
    small = steps(lambda x: run(x), x[:10])
    monkeypatch.setenv("TESSERA_OFF", "loop_kernel")
    assert steps(lambda x: run(x), x[:10]) != small


@pytest.mark.parametrize("axis", [0, 1])
def test_joins_in_joins_with_parts_of_nothing(axis: int) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    def run(m, x, none):
        inner = m.concatenate([none, x, none], axis=axis)
        return m.concatenate([x, inner, m.concatenate([x, none], axis=axis)], axis=axis)

    cut = (slice(0, 0), slice(None)) if axis == 0 else (slice(None), slice(0, 0))
    np.testing.assert_array_equal(run(np, x, x[cut]), np.asarray(ts.jit(lambda x: run(xp, x, x[cut]))(x)))
    assert ts.jit(lambda x: xp.concatenate([x[cut], xp.concatenate([x[cut], x[cut]], axis=axis)], axis=axis))(x).size == 0


class Updates:
    """Bodies that read parts of an array and then write one, by numbers."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(1000 + seed)
        self.shape = tuple(int(d) for d in rng.integers(2, 9, int(rng.integers(1, 4))))
        self.x = rng.integers(-9, 10, self.shape).astype(rng.choice([np.int32, np.int8, np.float32, np.float16, np.int64]))
        self.trip = int(rng.integers(0, 12))
        self.places = rng.integers(-3, self.shape[0] + 3, 12)
        self.kind = str(rng.choice(["set", "add", "max", "min", "multiply"]))
        self.twice = bool(rng.integers(0, 2))
        self.deep = bool(rng.integers(0, 2)) and len(self.shape) > 1

    def index(self, i, inner):
        return (i, inner % self.shape[1]) if self.deep else (i,)

    def numpy(self):
        t, rows = self.x.copy(), []
        for i in range(self.trip):
            place, n = int(self.places[i]), self.shape[0]
            place = place + n if place < 0 else place
            old = t[max(0, min(place, n - 1))].copy()
            value = (t[(place * 2) % n] if self.twice else old) + 1
            at = self.index(place, i)
            if 0 <= place < n:
                part = value[at[1]] if self.deep else value
                now = t[at]
                with np.errstate(over="ignore"):
                    both = {"add": now + part, "multiply": now * part}
                made = both | {"set": part, "max": np.maximum(now, part), "min": np.minimum(now, part)}
                t[at] = made[self.kind].astype(t.dtype)
            rows.append(old)
        return t, np.array(rows, dtype=t.dtype).reshape(self.trip, *self.shape[1:])

    def traced(self, x, places):
        n = self.shape[0]

        def body(t, one):
            i, place = one
            wrapped = xp.where(place < 0, place + n, place)
            old = t[place]
            value = (t[(wrapped * 2) % n] if self.twice else old) + 1
            at = self.index(place, i)
            part = value[at[1]] if self.deep else value
            return getattr(t.at[at], self.kind)(part.astype(t.dtype)), old

        return ts.scan(body, x, (xp.arange(self.trip), places))


@pytest.mark.parametrize("seed", range(60))
def test_arrays_that_loops_change_in_one_place(seed: int) -> None:
    draw = Updates(seed)
    want, rows = draw.numpy()
    got, stacked = ts.jit(draw.traced)(draw.x, draw.places[: draw.trip])
    np.testing.assert_array_equal(want, np.asarray(got))
    np.testing.assert_array_equal(rows, np.asarray(stacked))


def test_an_array_that_is_changed_in_one_place_is_not_copied() -> None:
    x = np.ones(30_000, np.float32)
    inside = steps(lambda x: ts.fori_loop(1, 30_000, lambda i, t: t.at[i].set(t[i - 1] * 0.5 + x[i]), x), x)
    assert len(inside) == 1, inside
    # What is read after the update, or handed on twice, is a copy as before.
    got = ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, s: (s[0].at[i].set(7.0), s[0]), (x, x)))(x[:9])
    np.testing.assert_array_equal(np.asarray(got[0]), [7, 7, 7, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(np.asarray(got[1]), [7, 7, 1, 1, 1, 1, 1, 1, 1])


def test_a_cache_that_a_loop_updates_is_not_copied() -> None:
    """Rows at a place that is only known in the loop: each iteration writes one row, and nothing else of the array."""

    def fill(caches, rows):
        def step(caches, place):
            row = xp.sin(rows[place])
            return tuple(ts.dynamic_update_slice(c, row[None] * n, (place, 0)) for n, c in enumerate(caches, 1)), xp.sum(row)

        return ts.scan(step, caches, xp.arange(9))

    rows = np.linspace(0, 1, 9 * 512, dtype=np.float32).reshape(9, 512)
    caches = tuple(np.full((512, 512), n, np.float32) for n in range(2))
    fn = ts.jit(fill)
    got, sums = fn(caches, rows)
    for n, one in enumerate(got, 1):
        np.testing.assert_allclose(one[:9], np.sin(rows) * n, rtol=1e-6)
        np.testing.assert_array_equal(one[9:], np.float32(n - 1))
    np.testing.assert_allclose(sums, np.sin(rows).sum(1), rtol=1e-5)
    launches = [line for line in fn.compiled(caches, rows).plan.splitlines() if "sched.launch" in line]
    assert launches and not any('of = "copy"' in line for line in launches)
