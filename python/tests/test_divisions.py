"""Quotients and remainders compared with Python's integers and NumPy's floats: compile-time divisors (numbers, and tiles of
numbers, some of them 0 and -1), and divisors that are read."""

import json
import os
import random
import subprocess
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import tessera as ts

INTS = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip


def carrier(name):
    """What integers of a dtype are computed in: narrow ones in i32."""
    return {"i64": "i64", "u32": "u32", "u64": "u64"}.get(name, "i32")


def wrapped(value, name):
    bits = int(name[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if name[0] == "i" and value >> (bits - 1) else value


def divided(a, b, name):
    """`//` and `%` as LANGUAGE 9 has them."""
    return (0, 0) if b == 0 else (wrapped(a // b, name), wrapped(a % b, name))


def awkward(rng, name, count):
    info = np.iinfo(INTS[name])
    ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, max(info.min, -1)]
    near = lambda: wrapped(rng.randint(-9, 9), name)
    pick = lambda: rng.choice([rng.choice(ends), near(), rng.randint(info.min, info.max)])
    return np.array([pick() for _ in range(count)], dtype=INTS[name])


def by_constants(name, extent, start, step):
    """Kernels that divide by the tile `start, start + step, …`: read and, the other way round, as numerators."""
    dtype, wide = getattr(ts, name), getattr(ts, carrier(name))

    @ts.kernel
    def k(
        x: ts.Tensor["n", dtype],
        q: ts.Out["n", wide],
        r: ts.Out["n", wide],
        q2: ts.Out["n", wide],
        r2: ts.Out["n", wide],
    ):
        d = ts.tile.cast(ts.tile.arange(extent) * step + start, dtype)
        t = x[0:extent]
        q[0:extent] = t // d
        r[0:extent] = t % d
        q2[0:extent] = d // t
        r2[0:extent] = d % t
        return q, r, q2, r2

    return k


def by_number(name, extent, by):
    dtype, wide = getattr(ts, name), getattr(ts, carrier(name))

    @ts.kernel
    def tiles(x: ts.Tensor["n", dtype], q: ts.Out["n", wide], r: ts.Out["n", wide]):
        q[0:extent] = x[0:extent] // wide(by)
        r[0:extent] = x[0:extent] % wide(by)
        return q, r

    @ts.kernel
    def lanes(x: ts.Tensor["n", dtype], q: ts.Out["n", wide], r: ts.Out["n", wide]):
        i = ts.tile.linear_id()
        q[i] = x[i] // wide(by)
        r[i] = x[i] % wide(by)
        return q, r

    return tiles, lanes


def by_read(name):
    dtype, wide = getattr(ts, name), getattr(ts, carrier(name))

    @ts.kernel
    def lanes(x: ts.Tensor["n", dtype], d: ts.Tensor["n", dtype], q: ts.Out["n", wide], r: ts.Out["n", wide]):
        i = ts.tile.linear_id()
        q[i] = x[i] // d[i]
        r[i] = x[i] % d[i]
        return q, r

    @ts.kernel
    def by_place(x: ts.Tensor["n", dtype], q: ts.Out["n", wide], r: ts.Out["n", wide]):
        i = ts.tile.linear_id()
        d = ts.tile.cast(i - 4, dtype)
        q[i] = x[i] // d
        r[i] = x[i] % d
        return q, r

    @ts.kernel
    def whole(x: ts.Tensor["n", dtype], d: ts.Tensor["n", dtype], q: ts.Out["n", wide], r: ts.Out["n", wide]):
        q[:] = x[:] // d[:]
        r[:] = x[:] % d[:]
        return q, r

    return lanes, by_place, whole


def differences(rng, rounds=1):
    """What a kernel gave for which operands, where Python's integers give something else."""
    bad = []

    def compare(what, name, given, pairs):
        wide = carrier(name)
        for which, (result, at) in enumerate(given):
            for i, (a, b) in enumerate(pairs(at)):
                want = divided(int(a), int(b), wide)[which % 2]
                if int(result[i]) != want:
                    bad.append([what, name, len(result), "%" if which % 2 else "//", int(a), int(b), int(result[i]), want])

    for _ in range(rounds):
        for name in INTS:
            for extent in range(1, 10):
                start, step = rng.choice([(-3, 1), (3, -1), (rng.randint(-9, 9), rng.randint(-3, 3))])
                d = np.array([wrapped(start + step * i, name) for i in range(extent)], dtype=INTS[name])
                x = awkward(rng, name, extent)
                got = by_constants(name, extent, start, step)(x)
                compare("a constant tile", name, zip(got, [0, 0, 1, 1]), lambda at: zip(d, x) if at else zip(x, d))
            by = wrapped(rng.choice([-1, 0, 1, 2, 3, -2, 1 << 30, 1 << 62, -(1 << 31), rng.randint(-99, 99)]), carrier(name))
            by = by & (2**63 - 1) if name == "u64" else by
            extent = rng.randint(1, 40)
            x = awkward(rng, name, extent)
            for k in by_number(name, extent, by):
                compare("a number", name, ((y, 0) for y in k(x)), lambda at: ((a, by) for a in x))
            lanes, by_place, whole = by_read(name)
            x, d = awkward(rng, name, extent), awkward(rng, name, extent)
            for k in (lanes, whole):
                compare("what is read", name, ((y, 0) for y in k(x, d)), lambda at: zip(x, d))
            compare("the place", name, ((y, 0) for y in by_place(x)), lambda at: ((a, wrapped(i - 4, name)) for i, a in enumerate(x)))
    return bad


def test_integers_divide_as_python_says(backend):
    assert not differences(random.Random(7))[:5]


@pytest.mark.parametrize("isa", ["generic", "avx2"])
def test_integers_divide_as_python_says_with_other_instructions(isa, tmp_path):
    steps = ["generic", "avx2", "avx512", "amx"]
    if steps.index(isa) > steps.index(ts._core.processor()["host"]):
        pytest.skip("the processor has less")
    here = os.path.dirname(__file__)
    code = f"import sys, json, random; sys.path.insert(0, {here!r}); import test_divisions as t; print(json.dumps(t.differences(random.Random(8))[:5]))"
    env = {**os.environ, "TESSERA_CPU": isa, "TESSERA_BACKEND": "cpu", "TESSERA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def of_floats(name, by, extent):
    dtype, wide = getattr(ts, name), ts.f64 if name == "f64" else ts.f32

    @ts.kernel
    def lanes(x: ts.Tensor["n", dtype], y: ts.Out["n", wide]):
        i = ts.tile.linear_id()
        y[i] = x[i] / by
        return y

    @ts.kernel
    def tiles(x: ts.Tensor["n", dtype], y: ts.Out["n", wide]):
        y[0:extent] = x[0:extent] / by
        return y

    @ts.kernel
    def rows(x: ts.Tensor["n", dtype], y: ts.Out["n", wide]):
        y[0:extent] = x[0:extent] / ts.tile.full((extent,), by, wide)
        return y

    @ts.kernel
    def scalars(x: ts.Tensor["n", dtype], y: ts.Out["n", wide]):
        for i in range(extent):
            y[i] = x[i] / by
        return y

    return lanes, tiles, rows, scalars


def divisors(rng, name):
    """Powers of two from the least denormal to the largest, and others, some of them denormal."""
    low, high = (-1074, 1023) if name == "f64" else (-149, 127)
    edge = -low - (52 if name == "f64" else 23)  # 2**-edge is the least normal number, 2**(edge + 1) the largest power
    powers = [low, low + 1, -edge - 2, -edge - 1, -edge, 1 - edge, edge - 1, edge, high, high - 1, 0, -1, rng.randint(low, high)]
    numbers = [2.0**p for p in powers] + [-(2.0**p) for p in powers[:6]]
    return numbers + [3 * 2.0**low, 0.1, -7.0, 1.5 * 2.0 ** (high - 1)]


@pytest.mark.parametrize("profile", ["default", "strict"])
@pytest.mark.parametrize("name", FLOATS)
def test_quotients_by_a_number_are_rounded_once(name, profile, backend):
    rng = random.Random(3)
    wide = np.float64 if name == "f64" else np.float32
    count = 37
    for by in divisors(rng, name):
        x = np.concatenate([
            np.ldexp(rng.choice([-1, 1]) * np.float64(rng.random() + 1), np.arange(-1074, 1000, 173)),
            [np.float64(by) * rng.random() * 2.0**rng.randint(-20, 20) for _ in range(10)],
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0],
            [2.0**-149, 2.0**-130, 2.0**-126, 2.0**127],
        ])  # fmt: skip
        with np.errstate(all="ignore"):
            x = np.resize(x, count).astype(FLOATS[name])
            want = x.astype(wide) / wide(by)
        for k in of_floats(name, by, count):
            with ts.numerics.profile(profile):
                got = k(x)
            np.testing.assert_array_equal(got.view(f"u{got.itemsize}")[~np.isnan(want)], want.view(f"u{got.itemsize}")[~np.isnan(want)], f"{by.hex()} in {k.name}")
            assert np.isnan(got[np.isnan(want)]).all()


def test_numpy_divides_as_fractions_do():
    """The oracle is one: a quotient of floats is the nearest to the true one."""
    for a, b in ((1.0, 3.0), (2.0**-130, 2.0**-140), (5 * 2.0**-149, 3.0)):
        q = Fraction(float(np.float32(a) / np.float32(b)))
        true = Fraction(a) / Fraction(b)
        beside = [Fraction(float(np.nextafter(np.float32(q), np.float32(s)))) for s in (-np.inf, np.inf)]
        assert all(abs(q - true) <= abs(other - true) for other in beside)
