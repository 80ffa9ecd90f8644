"""Starts of slices that are computed twice, and starts that only u64 holds."""

import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each

HEAD = '''
@ts.func
def half(v):
    return v // 2

@ts.kernel
def k(x: ts.Tensor["n", ts.f32], at: ts.Tensor[4, ts.i32], y: ts.Tensor[4, ts.f32], a: ts.i32, b: ts.i64):
    p = ts.tile.grid(1)
'''


def kernel(body):
    return load(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))["k"]


def run(body, at=(3, 1, 5, 7)):
    y = np.zeros(4, np.float32)
    kernel(body)(np.arange(40, dtype=np.float32), np.array(at, np.int32), y, 11, 6)
    return y


STARTS = {
    "a // 2": 5, "a % 7": 4, "min(a, b)": 6, "max(a, b) - 3": 8, "half(a)": 5, "(a + b) // 4": 4, "a // 2 * 2": 10, "b // 2 + a % 4": 6,
    "(a if a > b else 2)": 11, "(ts.tile.cast(b, ts.i32) >> 1)": 3, "abs(a - 20)": 9, "ts.tile.where(a > b, a, 2)": 11, "at[2]": 5,
    "at[0] // 2": 1, "at[a % 4] % 5": 2, "n // 3": 13, "(p + 5) // 2": 2,
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_a_start_that_the_end_computes_again(start):
    """Ops without effects on equal operands give one number, and so do two reads with nothing between them that writes."""
    first = STARTS[start]
    np.testing.assert_array_equal(run(f"y[:] = x[{start}:{start} + 4]"), np.arange(first, first + 4))
    np.testing.assert_array_equal(run(f"y[:] = x[{start} + 1:5 + {start}]"), np.arange(first + 1, first + 5))
    np.testing.assert_array_equal(run(f"t = x[0:32]\ny[:] = t[{start}:{start} + 4]"), np.arange(first, first + 4))


def test_operands_in_another_order():
    np.testing.assert_array_equal(run("y[:] = x[(a + b) // 4:(b + a) // 4 + 4]"), np.arange(4, 8))


@pytest.mark.parametrize(
    "body",
    [
        "y[:] = x[a // 2:a // 3 + 4]", "y[:] = x[a // 2:(a + 1) // 2 + 4]", "y[:] = x[a // 2:b // 2 + 4]",
        "v = at[0]\ny[:] = x[(v + 1) // 2:(ts.tile.cast(v, ts.i64) + 1) // 2 + 4]",  # one of them wraps at 2**31
        "y[:] = x[a % 4:a // 4 + 4]", "y[:] = x[at[0]:at[1] + 4]", "y[:] = x[at[p]:at[p + 1] + 4]",
        "y[:] = x[at[0]:(ts.tile.atomic_add(at[0], 1) * 0 + at[0]) + 4]",
        "y[:] = x[ts.tile.atomic_add(at[0], 1):ts.tile.atomic_add(at[0], 1) + 4]",
        "v = at[0]\nat[0] = 2\ny[:] = x[v:at[0] + 4]",
        "v = at[0]\nat[1] = 2\ny[:] = x[v:at[0] + 4]",
        "v = at[0]\nif a > 3:\n    at[0] = 9\ny[:] = x[v:at[0] + 4]",
        "v = at[0]\nts.tile.atomic_add(at[0], 1)\ny[:] = x[v:at[0] + 4]",
        "for j in range(2):\n    v = at[0]\n    at[0] = j\n    y[:] = x[v:at[0] + 4]",
    ],
)  # fmt: skip
def test_starts_that_may_differ_are_refused(body):
    with pytest.raises(ts.ShapeError) as caught:
        run(body)
    assert caught.value.code == "E_DYNAMIC_EXTENT" and "give a start" in caught.value.help


def test_a_read_before_a_write_is_the_start():
    np.testing.assert_array_equal(run("v = at[0]\nt = x[v:at[0] + 4]\nat[0] = 30\ny[:] = t"), np.arange(3, 7))


WIDE = '''
@ts.kernel
def k(x: ts.Tensor[16, ts.f32], s: ts.u64, y: ts.Tensor[8, ts.f32]):
    ts.tile.grid(1)
    {body}
'''


@pytest.mark.parametrize("start", [0, 5, 12, 16, 2**40, 2**62, 2**63 - 4, 2**63 - 1, 2**63, 2**63 + 3, 2**64 - 4, 2**64 - 1])
@pytest.mark.parametrize("body", ["y[0:8] = x[s:s + 8]", "t = x[:]\n    y[0:8] = t[s:s + 8]", "y[0:4] = x[s:s + 8:2]"])
def test_a_start_of_u64_is_not_negative(body, start):
    """2**64 - 4 was read as -4: half of the slice was the beginning of the array."""
    x, y = np.arange(1, 17, dtype=np.float32), np.full(8, -1, np.float32)
    load(WIDE.format(body=body))["k"](x, np.uint64(start), y)
    step = 2 if ":2]" in body else 1
    want = [x[at] if (at := start + k * step) < 16 else 0 for k in range(8 // step)]
    np.testing.assert_array_equal(y[: len(want)], want)


@pytest.mark.parametrize("start", [0, 12, 2**63 + 3, 2**64 - 4])
def test_a_store_at_a_start_of_u64(start):
    x, y = np.arange(1, 17, dtype=np.float32), np.full(8, -1, np.float32)
    load(WIDE.format(body="x[s:s + 8] = y[0:8]"))["k"](x, np.uint64(start), y)
    want = np.arange(1, 17, dtype=np.float32)
    want[start : min(16, start + 8)] = -1
    np.testing.assert_array_equal(x, want)
