"""Integers that wrap, and loops near the ends of their numbers, against Python's integers."""

import random

import numpy as np
import pytest

import tessera as ts
from oracle.fuzz import load

BACKENDS = ["interp", "cpu", "ptx-emulated:sm_80"]
BITS = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}
MOST = 2**63 - 1


def wrap(v, dtype):
    """The number of a dtype that an integer without end wraps to."""
    v &= (1 << BITS[dtype]) - 1
    return v - (1 << BITS[dtype]) if dtype[0] == "i" and v >> (BITS[dtype] - 1) else v


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", request.param)
    return request.param


def kernel(text):
    return load(text)["k"]


STAGES = """
@ts.kernel
def k(x: ts.Tensor["T", 16, ts.f32], n: ts.{dtype}, y: ts.Out["T", 16, ts.f32]):
    ts.tile.grid(1)
    s = ts.tile.alloc_shared((3, 16), ts.f32)
    a = {a}
    b = {b}
    for p in range(3):
        ts.tile.cp_async(s[p], x[p + 1, :])
    for t in range(T):
        ts.tile.cp_async(s[{copy}], x[t, :])
        y[t, :] = s[{read}] * 1.0
    return y
"""


@pytest.mark.parametrize(
    "dtype, n", [("u32", 0), ("u32", 4), ("i32", -(2**31)), ("i32", 5), ("u64", 0), ("u64", 2**64 - 1)]
)
def test_stages_counted_by_integers_that_wrap(backend, dtype, n):
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    text = STAGES.format(
        dtype=dtype, a="ts.tile.cast(n - 1, ts.i64)", b="ts.tile.cast(n, ts.i64) - 1", copy="(a + t) % 3", read="(b + t) % 3"
    )
    a, b = wrap(wrap(n - 1, dtype), "i64"), wrap(wrap(n, "i64") - 1, "i64")
    got = np.asarray(kernel(text)(x, n))
    stages = [x[p + 1] for p in range(3)]
    for t in range(8):
        stages[(a + t) % 3] = x[t]
        assert np.array_equal(got[t], stages[(b + t) % 3]), t


@pytest.mark.parametrize("n", [0, 2**63, 2**64 - 1])
def test_remainders_of_unsigned_numbers_are_not_those_of_signed_ones(backend, n):
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    text = STAGES.format(
        dtype="u64", a="n", b="ts.tile.cast(n, ts.i64)", copy="ts.tile.cast(a % 3, ts.i64)", read="(b + t) % 3"
    )
    got = np.asarray(kernel(text)(x, n))
    stages = [x[p + 1] for p in range(3)]
    for t in range(8):
        stages[n % 3] = x[t]
        assert np.array_equal(got[t], stages[(wrap(n, "i64") + t) % 3]), t


RANGES = [
    (-MOST, MOST, MOST),
    (-(2**62) - 1, 2**62, 2**62),
    (2**62, -(2**62) - 1, -(2**62)),
    (MOST, -MOST - 1, -(2**62)),
    (-(2**62), 2**62, 2**62),
    (-(2**63), 1, 2**62),
    (-(2**63), MOST, 2**61 + 1),
    (2**63 - 7, MOST, 4),
    (2**63 - 11, MOST, 2**40),
    (-(2**63) + 6, -(2**63), -4),
    (MOST - 3, MOST, 1),
    (5, -5, 2**62),
    (0, 0, 2**62),
]
COUNTS = """
@ts.kernel
def k({params}y: ts.Out[4, ts.i64]):
    ts.tile.grid(1)
    count = ts.tile.cast(0, ts.i64)
    total = ts.tile.cast(0, ts.i64)
    p = ts.tile.cast(7, ts.i64)
    for p in {range}:
        count += 1
        total += p * 3
{leave}    y[0] = count
    y[1] = total
    y[2] = p
    return y
"""


@pytest.mark.parametrize("leave", ["", "        if total == 1:\n            break\n"])
@pytest.mark.parametrize("how", ["constants", "parameters", "reversed"])
def test_ranges_between_far_ends(backend, how, leave):
    for a, b, step in RANGES:
        positions = range(a, b, step)
        bounds = f"range({a}, {b}, {step})"
        params, args = "", ()
        if how != "constants":
            params, args = "a: ts.i64, b: ts.i64, ", (a, b)
            bounds = f"range(a, b, {step})"
        if how == "reversed":
            positions, bounds = reversed(positions), f"reversed({bounds})"
        positions = list(positions)
        got = np.asarray(kernel(COUNTS.format(params=params, range=bounds, leave=leave))(*args))
        want = [len(positions), wrap(sum(p * 3 for p in positions), "i64"), positions[-1] if positions else 7]
        assert got[:3].tolist() == want, (a, b, step)


def test_ranges_with_a_step_of_run_time(backend):
    text = COUNTS.format(params="a: ts.i64, b: ts.i64, c: ts.i64, ", range="range(a, b, c)", leave="")
    k = kernel(text)
    for a, b, step in RANGES:
        positions = list(range(a, b, step))
        want = [len(positions), wrap(sum(p * 3 for p in positions), "i64"), positions[-1] if positions else 7]
        assert np.asarray(k(a, b, step))[:3].tolist() == want, (a, b, step)


def test_buffers_without_elements_read_as_zero(backend):
    k = kernel("""
@ts.kernel
def k(x: ts.Tensor["T", 16, ts.f32], y: ts.Tensor["T", 16, ts.f32]):
    ts.tile.grid(1)
    s = ts.tile.alloc_shared((0, 16), ts.f32)
    for t in range(T):
        ts.tile.cp_async(s[t], x[t, :])
        y[t, :] = s[t] + 2.0
    return y
""")
    got = k(np.ones((5, 16), np.float32), np.zeros((5, 16), np.float32))
    assert np.array_equal(np.asarray(got), np.full((5, 16), 2, np.float32))


def test_arrays_that_narrow_positions_leave_open_are_zeroed(backend):
    """Positions that wrap do not cover an array, which is zeroed then."""
    k = kernel("""
@ts.kernel
def k(x: ts.Tensor[512, ts.f32], y: ts.Out[512, ts.f32]):
    ts.tile.grid(1)
    at = ts.tile.cast(ts.tile.cast(ts.tile.arange(512), ts.u8), ts.i64)
    y[at] = x[:]
    return y
""")
    x = np.arange(1, 513, dtype=np.float32)
    for _ in range(3):
        got = np.asarray(k(x))
        assert np.array_equal(got[:256], x[256:]) and not got[256:].any()


def test_masks_of_numbers_that_wrap_are_kept(backend):
    k = kernel("""
@ts.kernel
def k(y: ts.Out[8, ts.f32]):
    ts.tile.grid(1)
    at = ts.tile.cast(ts.tile.cast(ts.tile.arange(-4, 4), ts.u32), ts.i64)
    y[:] = ts.tile.where(at < 8, 1.0, 0.0)
    return y
""")
    assert np.asarray(k()).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("n", [0, 3, 2**63 - 2, MOST])
def test_positions_beyond_the_last_number_are_outside(backend, n):
    k = kernel("""
@ts.kernel
def k(x: ts.Tensor[5, 16, ts.f32], n: ts.i64, y: ts.Out[18, ts.f32]):
    ts.tile.grid(1)
    from_zero = ts.tile.maximum(n, 0)
    y[0] = x[from_zero + 1, 0]
    y[1:17] = x[from_zero + 1, :]
    if from_zero + 1 >= 1:
        y[17] = 1.0
    else:
        y[17] = 2.0
    return y
""")
    x = np.arange(80, dtype=np.float32).reshape(5, 16) + 1
    at = wrap(n + 1, "i64")
    row = x[at] if 0 <= at < 5 else np.zeros(16, np.float32)
    assert np.array_equal(np.asarray(k(x, n)), [row[0], *row, 1 if at >= 1 else 2])


class Expression:
    """A random integer expression: its text, and its number for the values of the names in it."""

    def __init__(self, text, dtype, number):
        self.text, self.dtype, self.number = text, dtype, number


def near_an_end(rng, dtype):
    bits = BITS[dtype]
    ends = [0, 2**bits - 1] if dtype[0] == "u" else [-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1]
    return wrap(rng.choice(ends) + rng.randint(-4, 4), dtype)


def expression(rng, names, dtype, depth):
    """Arithmetic of one dtype, in which casts to and from others occur."""
    if depth == 0 or rng.random() < 0.2:
        name, own = rng.choice(list(names.items()))
        return Expression(f"ts.tile.cast({name}, ts.{dtype})", dtype, lambda env: wrap(env[name], dtype))
    if rng.random() < 0.3:
        inner = expression(rng, names, rng.choice(["u32", "i32", "i64", "u64"]), depth - 1)
        way = rng.choice([inner.dtype, inner.dtype, "u8", "i8", "u16", "i16", "u32", "i32"])
        text = f"ts.tile.cast(ts.tile.cast({inner.text}, ts.{way}), ts.{dtype})"
        return Expression(text, dtype, lambda env: wrap(wrap(inner.number(env), way), dtype))
    a = expression(rng, names, dtype, depth - 1)
    op = rng.choice(["+", "-", "+", "-", "*", "//", "%", "neg"])
    if op == "neg":
        return Expression(f"(-{a.text})", dtype, lambda env: wrap(-a.number(env), dtype))
    if op in "+-" and rng.random() < 0.4:
        b = expression(rng, names, dtype, depth - 1)
    else:
        n = rng.choice([2, 3, 4, 5] if op in ("//", "%") else [0, 1, 2, 3, 7, 2**16, 2**31 - 1])
        b = Expression(f"ts.tile.cast({n}, ts.{dtype})" if op in "+-*" else str(n), dtype, lambda env: n)
    does = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}[op]
    return Expression(f"({a.text} {op} {b.text})", dtype, lambda env: wrap(does(a.number(env), b.number(env)), dtype))


class Program:
    """A random kernel with integer parameters near the ends of their dtypes, and what it computes."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        dtypes = [rng.choice(["u8", "i8", "u16", "i16", "u32", "u32", "i32", "i32", "i64", "u64"]) for _ in range(2)]
        self.params = {f"n{i}": d for i, d in enumerate(dtypes)}
        self.rows = rng.choice([5, 8, 11])
        self.kind = rng.choice([self.stages, self.stages, self.elements, self.slices, self.gathers, self.guards, self.loops])
        self.body, self.compute = self.kind()
        head = "".join(f"{name}: ts.{dtype}, " for name, dtype in self.params.items())
        self.text = (
            f'@ts.kernel\ndef k(x: ts.Tensor["T", 16, ts.f32], {head}y: ts.Out["T", 16, ts.f32]):\n'
            f"    ts.tile.grid(1)\n{self.body}    return y\n"
        )

    def arguments(self):
        return {name: near_an_end(self.rng, dtype) for name, dtype in self.params.items()}

    def wide(self, extra=(), depth=3):
        """An expression that is a position."""
        names = dict(self.params, **{name: "i64" for name in extra})
        e = expression(self.rng, names, self.rng.choice(["u32", "i32", "i64", "i64"]), depth)
        return Expression(f"ts.tile.cast({e.text}, ts.i64)", "i64", lambda env: wrap(e.number(env), "i64"))

    def row(self, x, at):
        return x[at] if 0 <= at < len(x) else np.zeros(16, np.float32)

    def stages(self):
        """Stages are counted by sums of one number, which may be computed in two widths."""
        rng = self.rng
        count, name = rng.choice([2, 3, 4, 5]), rng.choice(list(self.params))
        shift = rng.randint(-3, 3)
        shifts = [shift, shift + rng.choice([0, 0, count, rng.randint(-3, 3)])]
        parts = []
        for shift in shifts:
            dtype = rng.choice(["u32", "i32", "i64", "u64", self.params[name]])
            dtype = {"u8": "i32", "i8": "i32", "u16": "i32", "i16": "i32"}.get(dtype, dtype)
            sign, far = "-" if shift < 0 else "+", abs(shift)
            text = f"ts.tile.cast(ts.tile.cast({name}, ts.{dtype}) {sign} ts.tile.cast({far}, ts.{dtype}), ts.i64)"
            parts.append((text, lambda env, d=dtype, s=shift: wrap(wrap(wrap(env[name], d) + s, d), "i64")))
        (a, a_of), (b, b_of) = parts
        ahead, rate = rng.randint(0, 3), rng.choice([1, 1, 1, 2, 3])
        body = (
            f"    s = ts.tile.alloc_shared(({count}, 16), ts.f32)\n"
            f"    a = {a}\n    b = {b}\n"
            f"    for p in range({count}):\n        ts.tile.cp_async(s[p], x[p, :])\n"
            f"    for t in range(T):\n"
            f"        ts.tile.cp_async(s[(a + {rate} * t) % {count}], x[t + {ahead}, :])\n"
            f"        y[t, :] = s[(b + {rate} * t) % {count}] + 1.0\n"
        )

        def compute(x, env):
            s, out = [self.row(x, p) for p in range(count)], []
            for t in range(len(x)):
                s[wrap(a_of(env) + rate * t, "i64") % count] = self.row(x, t + ahead)
                out.append(s[wrap(b_of(env) + rate * t, "i64") % count] + 1)
            return out

        return body, compute

    def elements(self):
        e, f = self.wide(["t"]), self.wide(["t"])
        body = (
            f"    for t in range(T):\n        y[t, :] = ts.tile.zeros((16,)) + x[{e.text}, 3]\n"
            f"        y[t, 2] = x[{f.text}, {e.text}]\n"
        )

        def compute(x, env):
            out = []
            for t in range(len(x)):
                here = dict(env, t=t)
                out.append(np.full(16, self.row(x, e.number(here))[3]))
                column = e.number(here)
                out[-1][2] = self.row(x, f.number(here))[column] if 0 <= column < 16 else 0
            return out

        return body, compute

    def slices(self):
        e, f = self.wide(["t"]), self.wide(["t"])
        body = (
            f"    for t in range(T):\n        a = {e.text}\n        b = {f.text}\n"
            f"        y[t, 0:8] = x[a, b:b + 8]\n        y[t, 8:16] = x[b, a - 1:a + 7]\n"
        )

        def part(x, row, first):
            return [self.row(x, row)[c] if 0 <= (c := wrap(first + j, "i64")) < 16 and first + j <= MOST else 0 for j in range(8)]

        def compute(x, env):
            out = []
            for t in range(len(x)):
                a, b = e.number(dict(env, t=t)), f.number(dict(env, t=t))
                out.append(part(x, a, b) + part(x, b, wrap(a - 1, "i64")))
            return out

        return body, compute

    def gathers(self):
        rng = self.rng
        dtype = rng.choice(["u32", "i32", "i64"])
        e = expression(rng, dict(self.params, t="i64"), dtype, 2)
        way = rng.choice([dtype, dtype, "u8", "i8", "u16", "i16", "u32"])
        start, scale = rng.choice([0, 0, -3, 5]), rng.choice([1, 1, 2, 2**16, 2**31 - 1])
        number = (
            f"ts.tile.cast(ts.tile.cast({e.text} + ts.tile.cast(ts.tile.arange({start}, {start + 16}), ts.{dtype}) "
            f"* ts.tile.cast({scale}, ts.{dtype}), ts.{way}), ts.i64)"
        )
        body = (
            f"    for t in range(T):\n        at = {number}\n"
            f"        y[t, :] = x[at, 1] + ts.tile.where(at < T, 100.0, 0.0) + ts.tile.where(at >= 0, 200.0, 0.0)\n"
        )

        def compute(x, env):
            out = []
            for t in range(len(x)):
                first = e.number(dict(env, t=t))
                far = [wrap(wrap(wrap(start + j, dtype) * scale, dtype) + first, dtype) for j in range(16)]
                at = [wrap(wrap(v, way), "i64") for v in far]
                out.append([self.row(x, v)[1] + 100 * (v < len(x)) + 200 * (v >= 0) for v in at])
            return out

        return body, compute

    def guards(self):
        e, f, g = self.wide(["t"]), self.wide(["t"], 2), self.wide(["t"], 2)
        sign = self.rng.choice(["<", "<=", ">", ">=", "==", "!="])
        body = (
            f"    for t in range(T):\n        y[t, :] = ts.tile.zeros((16,))\n"
            f"        if {f.text} {sign} {g.text}:\n            y[t, :] = x[{e.text}, :] + 1.0\n"
            f"        y[t, 0] = ts.tile.cast({f.text} % 7, ts.f32)\n"
        )

        def compute(x, env):
            out = []
            for t in range(len(x)):
                here = dict(env, t=t)
                a, b = f.number(here), g.number(here)
                holds = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[sign]
                out.append(self.row(x, e.number(here)) + 1 if holds else np.zeros(16, np.float32))
                out[-1][0] = a % 7
            return out

        return body, compute

    def loops(self):
        """A loop between positions near each other or near the ends, left early where it is long."""
        rng = self.rng
        e, f = self.wide(), self.wide()
        step = rng.choice([1, 2, 4, 3, -1, -2, -3, 2**62, -(2**62), 2**40, 2**63 - 1])
        body = (
            f"    count = ts.tile.cast(0, ts.i64)\n    p = ts.tile.cast(5, ts.i64)\n"
            f"    for p in range({e.text}, {f.text}, {step}):\n        count += 1\n        if count >= 9:\n            break\n"
            f"    y[:, :] = ts.tile.zeros((T, 16))\n    y[0, 0] = ts.tile.cast(count, ts.f32)\n    y[1, 0] = ts.tile.cast(p % 101, ts.f32)\n"
        )

        def compute(x, env):
            positions = range(e.number(env), f.number(env), step)[:9]
            out = np.zeros((len(x), 16), np.float32)
            out[0, 0], out[1, 0] = len(positions), (positions[-1] if positions else 5) % 101
            return out

        return body, compute


def check(seed, backends):
    program = Program(seed)
    x = np.arange(program.rows * 16, dtype=np.float32).reshape(program.rows, 16) + 1
    launches = [program.arguments() for _ in range(4)]
    for name in backends:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TESSERA_BACKEND", name)
            k = kernel(program.text)
            for env in launches:
                want = np.asarray(program.compute(x, env), np.float32)
                got = np.asarray(k(x, *env.values()))
                assert np.array_equal(got, want), f"seed {seed}, {name}, {env}\n{program.text}\n{got}\n{want}"


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs_of_integers_that_wrap(first):
    for seed in range(first, first + 10):
        check(seed, ["interp", "cpu"])


def test_random_programs_of_integers_that_wrap_on_emulated_gpus():
    for seed in range(1000, 1010):
        check(seed, ["ptx-emulated:sm_80"])
