"""A kernel means what Python says its text means: order of evaluation, places and values, short circuits, loops, literals."""

import math

import numpy as np
import pytest

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each


def i32(*values):
    return np.array(values, np.int32)


# Places and values


@ts.kernel
def swap_elements(x: ts.Tensor["n", ts.i32], i: ts.i64, j: ts.i64):
    ts.tile.grid(1)
    x[i], x[j] = x[j], x[i]
    return x


@ts.kernel
def swap_slices(x: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    x[0:2], x[2:4] = x[2:4], x[0:2]
    return x


@ts.kernel(lanes=4)
def swap_shared(x: ts.Tensor["n", ts.i32]):
    buffer = ts.tile.alloc_shared((4,), ts.i32)
    i = ts.tile.linear_id()
    buffer[i] = x[i]
    ts.tile.barrier()
    if i == 0:
        buffer[0], buffer[3] = buffer[3], buffer[0]
    ts.tile.barrier()
    x[i] = buffer[i]
    return x


@ts.kernel
def rotate_three(x: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    x[0], x[1], x[2] = x[1], x[2], x[0]
    return x


def test_swaps():
    assert swap_elements(i32(1, 2, 3), 0, 2).tolist() == [3, 2, 1]
    assert swap_slices(i32(1, 2, 3, 4)).tolist() == [3, 4, 1, 2]
    assert swap_shared(i32(1, 2, 3, 4)).tolist() == [4, 2, 3, 1]
    assert rotate_three(i32(1, 2, 3)).tolist() == [2, 3, 1]


@ts.func
def bump(x):
    x[0] = x[0] + 100
    return 1


@ts.func
def pair_of(a, b):
    return a * 1000 + b


@ts.kernel
def a_tuple_holds_values(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    pair = (x[0], x[1])
    x[0] = 50
    x[1] = 60
    y[0], y[1] = pair
    return y


@ts.kernel
def operands_from_left(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    y[0] = x[0] + ts.tile.atomic_add(x[0], 5)
    y[1] = pair_of(x[0], bump(x))
    x[0] += bump(x)
    y[2] = x[0]
    return y


@ts.kernel
def augmented(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    x[0] -= bump(x)
    y[0] = x[0]
    x[0] *= bump(x) + 1
    y[1] = x[0]
    x[bump(y)] += 7
    return y


def test_operands_are_read_from_left_to_right():
    assert a_tuple_holds_values(i32(1, 2), i32(0, 0)).tolist() == [1, 2]
    # 1 + 1; then x[0] is 6, and 106 after bump; then 106 + 1.
    assert operands_from_left(i32(1, 0, 0), i32(0, 0, 0)).tolist() == [2, 6001, 107]
    x, y = i32(1, 2), i32(0, 0)
    assert augmented(x, y).tolist() == [100, 0]
    assert x.tolist() == [0, 9]


@ts.func
def bump_at(x, i):
    x[i] = 1000
    return 1


@ts.kernel(lanes=4)
def lanes_add(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    x[i] += bump_at(x, i)
    y[i] = x[i]
    return y


def test_lanes_read_before_the_right_side():
    assert lanes_add(i32(1, 2, 3), i32(0, 0, 0)).tolist() == [2, 3, 4]


def test_a_helper_cannot_assign_into_a_value():
    @ts.func
    def clear(t):
        t[0] = 0

    with pytest.raises(ts.KernelTypeError, match="store into") as caught:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.i32]):
            clear(x[0:4])

    assert "takes the array and the index" in caught.value.help


# Short circuits


@ts.kernel
def take_tickets(x: ts.Tensor["n", ts.i32], count: ts.Tensor["k", ts.i32], room: ts.i32, y: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    for i in range(n):
        if x[i] > 0 and ts.tile.atomic_add(count[0], 1) < room:
            y[i] = 1
        if x[i] > 0 or ts.tile.atomic_add(count[1], 1) < 0:
            y[i] += 2
        v = ts.tile.atomic_add(count[2], 1) if x[i] < 0 else 5
        y[i] += v * 10
    return y


@ts.kernel
def lanes_take_tickets(x: ts.Tensor["n", ts.i32], count: ts.Tensor["k", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        if x[i] > 0 and ts.tile.atomic_add(count[0], 1) >= 0:
            y[i] = 1
        y[i] += 10 if x[i] > 0 or ts.tile.atomic_add(count[1], 1) < 0 else 20
    return y


def test_only_the_side_that_python_evaluates():
    x, count = i32(3, -1, 2, 0), i32(0, 0, 0)
    assert take_tickets(x, count, 1, i32(0, 0, 0, 0)).tolist() == [53, 0, 52, 50]
    assert count.tolist() == [2, 2, 1]
    count = i32(0, 0, 0)
    assert lanes_take_tickets(x, count, i32(0, 0, 0, 0)).tolist() == [11, 20, 11, 20]
    assert count.tolist() == [2, 2, 0]


@ts.kernel
def while_and(x: ts.Tensor["n", ts.i32], count: ts.Tensor["k", ts.i32], at: ts.Tensor["m", ts.i64]):
    ts.tile.grid(1)
    i = 0
    while i < n and ts.tile.atomic_add(count[0], 1) >= 0 and x[i] != 0:
        i += 1
    at[0] = i
    return at


def test_while_and():
    count = i32(0)
    assert while_and(i32(4, 4, 0, 4), count, np.zeros(1, np.int64))[0] == 2 and count[0] == 3
    count = i32(0)
    assert while_and(i32(4, 4), count, np.zeros(1, np.int64))[0] == 2 and count[0] == 2


@ts.kernel
def guarded(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = 1 if i > 0 and x[i - 1] > x[i] else 0
        y[i] += 10 if i == 0 or x[i - 1] == 5 else 0
        y[i] += 100 // x[i] if x[i] != 0 else 0
    return y


def test_checked_mode_reports_nothing_that_is_not_evaluated():
    x = i32(5, 0, 20, 3)
    assert guarded(x, i32(0, 0, 0, 0)).tolist() == [30, 11, 5, 34]
    report = guarded.check(x, i32(0, 0, 0, 0))
    assert report, str(report)


@ts.kernel
def values_of_or(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = (x[i] or 9) * 100 + (x[i] and 7)
    return y


@ts.func
def undefined_when_run(y):
    return y.nothing_like_that


@ts.kernel
def known_sides(y: ts.Tensor["n", ts.i32], b: int = 3):
    ts.tile.grid(1)
    y[0] = 1 and 5
    y[1] = 0 or 8
    y[2] = 0 and undefined_when_run(y)
    y[3] = b or 4
    return y


def test_and_and_or_give_operands():
    assert values_of_or(i32(0, 4), i32(0, 0)).tolist() == [900, 407]
    assert known_sides(i32(0, 0, 0, 0)).tolist() == [5, 8, 0, 3]


@ts.kernel
def walrus(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    v = -1
    if x[0] > 0 and (v := x[1]) > 0:
        y[0] = v
    y[1] = v
    i = 0
    while (w := x[i]) != 0:
        y[2] += w
        i += 1
    else:
        y[3] = 77
    return y


def test_walrus():
    assert walrus(i32(1, 5, 0, 0), i32(0, 0, 0, 0)).tolist() == [5, 5, 6, 77]
    assert walrus(i32(-1, 5, 0, 0), i32(0, 0, 0, 0)).tolist() == [0, -1, 4, 77]


@ts.kernel
def chained(x: ts.Tensor["n", ts.i32], count: ts.Tensor["k", ts.i32], y: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    for i in range(n):
        if 0 < x[i] < ts.tile.atomic_add(count[0], 1) + 2:
            y[i] = 1
    return y


def test_chained_comparisons_evaluate_each_operand_once():
    count = i32(0)
    assert chained(i32(-1, 1, 5, 3), count, i32(0, 0, 0, 0)).tolist() == [0, 1, 0, 1]
    assert count[0] == 3


# Loops


@ts.kernel
def loop_variables(y: ts.Tensor["n", ts.i64], m: ts.i64):
    ts.tile.grid(1)
    j = 0
    for j in range(m):
        pass
    y[0] = j
    for k in range(2, m, 3):
        if k > 6:
            break
    y[1] = k
    for i in range(m):
        i = i * 10
    y[2] = i
    for a in range(m):
        for b in range(a):
            y[3] += 1
    y[4] = a * 100 + b
    v = y[0]
    for v in range(m):
        v = y[1]
    y[5] = v
    return y


def test_a_loops_variable_keeps_its_last_value():
    assert loop_variables(np.zeros(6, np.int64), 9).tolist() == [8, 8, 80, 36, 807, 8]
    assert loop_variables(np.zeros(6, np.int64), 3).tolist() == [2, 2, 20, 3, 201, 2]
    assert loop_variables(np.zeros(6, np.int64), 0).tolist() == [0, 0, 0, 0, 0, 0]


def test_checked_mode_reports_a_loop_variable_without_a_value():
    @ts.kernel
    def k(y: ts.Tensor["n", ts.i64], m: ts.i64):
        ts.tile.grid(1)
        for i in range(m):
            y[0] += 1
        y[1] = i
        return y

    assert k(np.zeros(2, np.int64), 3).tolist() == [3, 2]
    assert k(np.zeros(2, np.int64), 0).tolist() == [0, 0]
    assert k.check(np.zeros(2, np.int64), 3)
    report = k.check(np.zeros(2, np.int64), 0)
    assert [f.code for f in report.findings] == ["E_UNINIT"] and report.findings[0].line == k_line(k) + 5


def k_line(k):
    return k.__wrapped__.__code__.co_firstlineno if hasattr(k, "__wrapped__") else k.fn.__code__.co_firstlineno


@ts.kernel
def search(x: ts.Tensor["n", ts.i32], wanted: ts.i32, y: ts.Tensor["m", ts.i64]):
    ts.tile.grid(1)
    for i in range(n):
        if x[i] == wanted:
            at = i
            break
    else:
        at = -1
        y[1] = 1
    y[0] = at
    i = 0
    while i < n:
        if x[i] == wanted:
            y[2] = 5
            break
        i += 1
    else:
        y[2] = 6
    return y


def test_for_else():
    assert search(i32(4, 7, 9), 7, np.zeros(3, np.int64)).tolist() == [1, 0, 5]
    assert search(i32(4, 7, 9), 8, np.zeros(3, np.int64)).tolist() == [-1, 1, 6]
    assert search(i32(), 8, np.zeros(3, np.int64)).tolist() == [-1, 1, 6]


@ts.kernel
def lanes_break(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        total = 0
        for step in range(8):
            if step == x[i]:
                break
            if step % 2 == 1:
                continue
            total += 1
        else:
            total += 100
        y[i] = total * 10 + step
    return y


def test_lanes_leave_loops_by_themselves():
    expected = []
    for limit in range(12):
        total = 0
        for step in range(8):
            if step == limit:
                break
            if step % 2 == 1:
                continue
            total += 1
        else:
            total += 100
        expected.append(total * 10 + step)
    x = np.arange(12, dtype=np.int32)
    assert lanes_break(x, np.zeros(12, np.int32)).tolist() == expected


# Literals


@ts.kernel
def wide_literals(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i64], u: ts.Tensor["k", ts.u32], b: ts.Tensor["k", ts.i32]):
    ts.tile.grid(1)
    y[0] = x[0] + 2**40
    y[1] = x[1] * 2**33
    y[2] = -9223372036854775808
    y[3] = (2**100 // 2**90) + x[0]
    b[0] = u[0] > -1
    b[1] = u[1] - 1 > 0
    return y


@ts.kernel
def unsigned_literals(w: ts.Tensor["n", ts.u64]):
    ts.tile.grid(1)
    w[0] = 2**63
    w[1] = 18446744073709551615
    w[2] = w[3] + 9223372036854775808
    return w


def test_literals_take_the_type_that_holds_both():
    b, u = np.zeros(2, np.int32), np.array([7, 0], np.uint32)
    y = wide_literals(i32(5, 3, 0, 0), np.zeros(4, np.int64), u, b)
    assert y.tolist() == [5 + 2**40, 3 * 2**33, -(2**63), 1024 + 5]
    assert b.tolist() == [1, 1]
    w = unsigned_literals(np.array([0, 0, 0, 4], np.uint64))
    assert w.tolist() == [2**63, 2**64 - 1, 2**63 + 4, 4]


@ts.kernel
def chosen_literals(x: ts.Tensor["n", ts.f64], c: ts.i32, y: ts.Tensor["n", ts.f64], z: ts.Tensor["n", ts.i32]):
    ts.tile.grid(1)
    y[0] = x[0] * (0.1 if c > 0 else 0.2)
    k = 3 if c > 0 else 4
    z[0] = (z[0] + k) // 2
    if c > 5:
        h = 0.3
    else:
        h = 0.7
    y[1] = x[1] + h
    return y


def test_a_choice_between_literals_is_as_free_as_they_are():
    z = i32(2**31 - 1, 0)
    y = chosen_literals(np.array([3.0, 1.0]), 1, np.zeros(2), z)
    assert y.tolist() == [3.0 * 0.1, 1.0 + 0.7]
    # int32 wraps, as it does beside the literal 3.
    assert z[0] == (-(2**31) + 2) // 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("x[0] = x[1] + 2**40", "E_OVERFLOW"),
        ("x[0] = 2**40", "E_OVERFLOW"),
        ("b[0] = 255", "E_OVERFLOW"),
        ("x[0] += 2**40", "E_OVERFLOW"),
        ("u[0] = u[1] + -1", "E_TYPE"),
        ("x[0] = 1 // 0", "E_DIV_ZERO"),
        ("f[0] = f[1] * 1e60", "E_OVERFLOW"),
        ("f[0] = 1e60", "E_OVERFLOW"),
        ("f[0] = x[0] + 2**64", "E_TYPE"),
    ],
)
def test_literals_that_nothing_holds(body, code):
    text = (
        "def k(x: ts.Tensor['n', ts.i32], b: ts.Tensor['n', ts.i8], u: ts.Tensor['n', ts.u64],\n"
        f"      f: ts.Tensor['n', ts.f32]):\n    ts.tile.grid(1)\n    {body}\n"
    )
    space = {"ts": ts}
    exec(text, space)
    with pytest.raises(ts.TesseraError) as caught:
        ts.kernel(source=text)(space["k"])
    assert caught.value.code == code and caught.value.line == 4


@ts.kernel
def weak_sums(w: ts.Tensor["n", ts.u64], x: ts.Tensor["n", ts.i32], f: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.u64],
              z: ts.Tensor["m", ts.i32], g: ts.Tensor["k", ts.f32]):
    ts.tile.grid(1)
    s = 0
    t = 0
    best = -1
    last = 0
    for j in range(n):
        s += w[j]
        t = t + x[j]
        if x[j] > best:
            best = x[j]
        if f[j] > 0.0:
            last = f[j]
    y[0] = s
    z[0] = t // 2
    z[1] = best
    g[0] = last
    return y


def test_variables_begun_with_a_literal_take_the_type_they_are_joined_with():
    w = np.array([2**63, 5, 7], np.uint64)
    z, g = i32(0, 0), np.zeros(1, np.float32)
    y = weak_sums(w, i32(2**31 - 1, 2, 3), np.array([1.5, -1, 0], np.float32), np.zeros(1, np.uint64), z, g)
    assert y[0] == 2**63 + 12
    assert z.tolist() == [(-(2**31) + 4) // 2, 2**31 - 1] and g[0] == 1.5


@ts.kernel
def counted(x: ts.Tensor["n", ts.u32], y: ts.Tensor["n", ts.i64]):
    ts.tile.grid(1)
    c = 0
    while c < 4:
        c += 1
        y[0] = x[0] - c
    return y


def test_a_counter_is_an_integer_of_64_bits():
    assert counted(np.array([1], np.uint32), np.zeros(1, np.int64))[0] == -3


@ts.kernel
def left_before_both_assign(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if x[i] > 0:
        if x[i] == 7:
            return
        s = 1
    else:
        s = 2
    y[i] = s
    for j in range(3):
        if x[i] > j:
            if x[i] == 5:
                continue
            t = 10
        else:
            if x[i] == -9:
                break
            t = 20
        y[i] += t
    return


@ts.kernel
def two_types_for_one_name(x: ts.Tensor["n", ts.i32], f: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if x[i] > 0:
        t = x[i] * 2
        x[i] = t
    else:
        t = f[i] * 0.5
        f[i] = t


def test_names_of_branches():
    y = i32(0, 0, 0, 0, 0)
    left_before_both_assign(i32(1, 7, -1, 5, -9), y)
    assert y.tolist() == [1 + 10 + 20 + 20, 0, 62, 1, 2]
    x, f = i32(3, -3), np.array([4, 4], np.float32)
    two_types_for_one_name(x, f)
    assert x.tolist() == [6, -3] and f.tolist() == [4, 2]


def test_two_types_for_one_name_are_refused_where_it_is_read():
    with pytest.raises(ts.KernelTypeError, match="one type on both paths") as caught:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.i32], f: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            if x[i] > 0:
                t = x[i]
            else:
                t = f[i]
            f[i] = t

    assert caught.value.diagnostics[0].code == "E_TYPE"


# Slices


@ts.kernel
def rows_of(ptr: ts.Tensor["m", ts.i32], x: ts.Tensor["n", ts.f32], y: ts.Out["m", 4, ts.f32]):
    r = ts.tile.program_id(0)
    s = ptr[r]
    y[r, :] = x[s:s + 4]
    return y


@ts.kernel
def repeated(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], rep: int):
    p = ts.tile.grid(ts.cdiv(n, rep))
    y[p * rep : p * rep + rep] = x[p * rep : p * rep + rep] + 1.0
    return y


@ts.kernel
def grouped(q: ts.Tensor["HQ", ts.f32], k: ts.Tensor["HK", ts.f32], y: ts.Out["HQ", ts.f32]):
    rep = HQ // HK
    p = ts.tile.grid(HK)
    y[p * rep : p * rep + rep] = q[p * rep : p * rep + rep] * k[p]
    return y


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_starts_of_any_width(dtype):
    x = np.arange(20, dtype=np.float32)
    name = np.dtype(dtype).name
    text = (
        f"def k(ptr: ts.Tensor['m', ts.{name}], x: ts.Tensor['n', ts.f32], y: ts.Out['m', 4, ts.f32]):\n"
        "    r = ts.tile.program_id(0)\n    s = ptr[r]\n    y[r, :] = x[s:s + 4] + x[s + 1]\n    return y\n"
    )
    space = {"ts": ts}
    exec(text, space)
    k = ts.kernel(source=text)(space["k"])
    y = k(np.array([3, 0, 16], dtype), x)
    assert y.tolist() == [[s + i + s + 1 for i in range(4)] for s in (3, 0, 16)]


def test_compile_time_extents():
    x = np.arange(12, dtype=np.float32)
    assert repeated(x, np.zeros_like(x), 5).tolist() == (x + 1).tolist()
    assert grouped(x, np.array([1, 2, 3], np.float32)).tolist() == (x * np.repeat([1, 2, 3], 4)).tolist()


# Helpers that return before their end


@ts.func
def larger(a, b):
    if a > b:
        return a
    else:
        return b


@ts.func
def sign(a):
    if a > 0:
        return 1
    elif a < 0:
        return -1
    return 0


@ts.func
def ordered(a, b):
    if a > b:
        return b, a
    return a, b


@ts.func
def first_at_least(x, n, least):
    for i in range(n):
        if x[i] >= least:
            return i
    return -1


@ts.func
def in_two_loops(x, n, wanted):
    for i in range(n):
        j = 0
        while j < n:
            if i != j and x[i] + x[j] == wanted:
                return i * 10 + j
            j += 1
    else:
        return -2
    return -3


@ts.func
def stops(x, at):
    if x[at] < 0:
        return
    x[at] += 1


@ts.kernel
def by_helpers(x: ts.Tensor["n", ts.i32], y: ts.Tensor["m", ts.i64]):
    ts.tile.grid(1)
    y[0] = larger(x[0], x[1])
    y[1] = sign(x[2])
    y[2], y[3] = ordered(x[0], x[1])
    y[4] = first_at_least(x, n, 4)
    y[5] = first_at_least(x, n, 100)
    y[6] = in_two_loops(x, n, 6)
    y[7] = in_two_loops(x, n, 99)
    stops(x, 0)
    stops(x, 2)
    return y


@ts.kernel
def lanes_by_helpers(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    y[i] = sign(x[i]) * 10 + larger(x[i], 1)
    return y


@ts.kernel
def tiles_by_helpers(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32], c: ts.i32):
    ts.tile.grid(1)
    y[0:4] = larger(c, 2) * (x[0:4] if sign(c) > 0 else -x[0:4])
    return y


def test_helpers_return_from_anywhere():
    x = i32(3, 2, -7, 4)
    y = by_helpers(x, np.zeros(8, np.int64))
    assert y.tolist() == [3, -1, 2, 3, 3, -1, 13, -2] and x.tolist() == [4, 2, -7, 4]
    assert lanes_by_helpers(i32(3, 0, -5), i32(0, 0, 0)).tolist() == [13, 1, -9]
    assert tiles_by_helpers(i32(1, 2, 3, 4), i32(0, 0, 0, 0), -3).tolist() == [-2, -4, -6, -8]


@ts.func
def of_two_types(a, c):
    if c > 0:
        return a
    return ts.tile.cast(a, ts.f32)


@ts.func
def perhaps(a):
    if a > 0:
        return a


@pytest.mark.parametrize("body, text", [
    ("y[0] = of_two_types(x[0], x[1])", "return one type on all paths"),
    ("y[0] = perhaps(x[0])", "ends without a `return`"),
    ("y[0] = stars(x[0])", "is not part of the kernel language"),
    ("y[0] = by_name_only(x[0], 5)", "write `b=5`"),
])  # fmt: skip
def test_helpers_that_give_no_one_value(body, text):
    with pytest.raises(ts.TesseraError) as error:
        ts.kernel(source=f'def k(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):\n    {body}\n')(lambda x, y: None)(i32(1, 2), i32(0, 0))
    assert text in str(error.value)


@ts.func
def stars(*v):
    return v


@ts.func
def by_name_only(a, *, b):
    return a + b


# Augmented assignment is an assignment: the sum has its own type, and is stored


@ts.kernel
def add_other_types(
    a: ts.Tensor["n", ts.i32], b: ts.Tensor["n", ts.i8], c: ts.Tensor["n", ts.i64], d: ts.Tensor["n", ts.f16],
    f: ts.Tensor["n", ts.f32], g: ts.Tensor["n", ts.f64],
):  # fmt: skip
    ts.tile.grid(1)
    a[0] += 0.5
    a[1] += f[0]
    b[0:4] += f[0:4]
    c[0] += f[1]
    d[0] += g[0]
    return a


def test_augmented_assignment_adds_before_it_converts():
    a, b, c = i32(-1, 3, 0, 0), np.array([-1, 2, -3, 4], np.int8), np.array([2**40 + 1, 0, 0, 0], np.int64)
    d, f = np.ones(4, np.float16), np.array([-0.5, 1.0, 0.7, 0.8], np.float32)
    g = np.array([2.0**-11 + 2.0**-40, 0, 0, 0])
    want = [int(-1 + 0.5), int(3 - 0.5)], [int(v + w) for v, w in zip(b.tolist(), f)], int(np.float32(2**40 + 1) + f[1])
    add_other_types(a, b, c, d, f, g)
    assert a[:2].tolist() == want[0] and b.tolist() == want[1] and int(c[0]) == want[2]
    assert d[0] == np.float16(1.0 + g[0]) == np.float16(1.001)


@ts.kernel
def fold_at_positions(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32], z: ts.Tensor["n", ts.u32]):
    ts.tile.grid(1)
    at = ts.tile.arange(4) // 2
    x[at] -= ts.tile.arange(4)
    y[at] ^= ts.tile.arange(4)
    z[at] |= ts.tile.cast(ts.tile.arange(4), ts.u32)
    return x


def test_every_contribution_at_a_repeated_position_counts():
    x, y, z = i32(0, 10), i32(7, 7), np.array([8, 0], np.uint32)
    fold_at_positions(x, y, z)
    assert x.tolist() == [-1, 5] and y.tolist() == [7 ^ 0 ^ 1, 7 ^ 2 ^ 3] and z.tolist() == [9, 3]


# Ranges


@ts.kernel
def ranges(s: ts.Tensor["k", ts.i32], u: ts.Tensor["k", ts.u64], y: ts.Tensor["n", ts.i64]):
    ts.tile.grid(1)
    for i in range(5, -1, -2):
        y[0] = y[0] * 10 + i
    y[1] = i
    for i in range(0, 4, s[0]):
        y[2] += 100 + i
    for i in range(4, 0, s[0]):
        y[3] = y[3] * 10 + i
    for i in range(s[1], 7, s[1]):
        y[4] = y[4] * 10 + i
        if i > 4:
            break
    for i in range(0, 4, s[0]):
        y[5] += 1
        if y[5] > 9:
            break
    for i in range(2**63 - 3, 2**63 - 1, 4):
        y[6] += 1
    for i in range(u[0]):
        y[7] += 1
        if i == 3:
            break
    return y


def test_ranges_go_up_and_down():
    y = ranges(i32(-3, 2), np.array([2**63 + 1, 0], np.uint64), np.zeros(8, np.int64))
    assert y.tolist() == [531, 1, 0, 41, 246, 0, 1, 4]


@ts.kernel
def step_of_zero(s: ts.Tensor["k", ts.i32], y: ts.Tensor["n", ts.i64]):
    ts.tile.grid(1)
    for i in range(0, 4, s[0]):
        y[0] += 1
    return y


def test_a_step_of_zero_is_reported():
    found = step_of_zero.check(i32(0), np.zeros(1, np.int64)).findings
    assert found and "step of `range` other than 0" in str(found[0])


# Tests that bind names


@ts.kernel
def else_of_a_test_that_binds(c: ts.Tensor[1, ts.i32], y: ts.Tensor[4, ts.i32]):
    for i in range(3):
        c[0] += 1
        while (w := i) < 0:
            pass
        else:
            break
        y[0] = 5
    w = v = 0
    for i in range(3):
        while (w := i + y[1]) < 2:
            y[1] += 1
            while (v := y[2]) < 1:
                y[2] += 1
            else:
                continue
            y[3] = 7
        else:
            continue
        y[0] = 9
    y[3] += w * 10 + v
    return y


@ts.kernel
def bound_behind_and(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if x[i] > 2 and (u := x[i] // 2) != 2:
        y[i] = u
    elif not (x[i] < 0 or (v := x[i] * 7) > 9):
        y[i] = v
    y[i] += w if x[i] > 5 and (w := x[i] * 100) > 0 else 1
    return y


def test_names_that_tests_bind():
    c, y = i32(0), i32(0, 0, 0, 0)
    else_of_a_test_that_binds(c, y)
    assert c.tolist() == [1] and y.tolist() == [0, 2, 1, 41]
    assert bound_behind_and(i32(6, 4, 1, -1, 2), i32(0, 0, 0, 0, 0)).tolist() == [603, 1, 8, 1, 1]


@ts.kernel
def membership(x: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32], act: str):
    i = ts.tile.linear_id()
    y[i] = x[i] in (1, 3, 5)
    if act in ("square", "sq"):
        y[i] += 10 * (x[i] not in (2, x[0]))
    y[i] += 100 * max(x[i], 2, 3) + 1000 * min(5, x[i], 4)
    return y


def test_membership_and_functions_of_many():
    want = [(v in (1, 3, 5)) + 10 * (v not in (2, 1)) + 100 * max(v, 2, 3) + 1000 * min(5, v, 4) for v in (1, 2, 5, 7)]
    assert membership(i32(1, 2, 5, 7), i32(0, 0, 0, 0), "sq").tolist() == want
    assert membership(i32(1, 2), i32(0, 0), "relu").tolist() == [1 + 300 + 1000, 300 + 2000]


@ts.kernel
def nested_loops_of_one_name(y: ts.Tensor["n", ts.i64]):
    ts.tile.grid(1)
    for i in range(3):
        for i in range(2):
            y[0] += 1
    y[1] = i
    return y


def test_nested_loops_of_one_name():
    assert nested_loops_of_one_name(np.zeros(2, np.int64)).tolist() == [6, 1]


@ts.kernel
def constants(y: ts.Tensor["n", ts.i32], f: ts.Tensor["n", ts.f32]):
    ts.tile.grid(1)
    y[0] = 2**53 + 1 == 2.0**53
    y[1] = 2**60 + 1 > 2.0**60
    y[2] = (True ^ True) is False
    f[0] = min(math.nan, 1.0)
    f[1] = min(1.0, math.nan)
    f[2] = math.floor(f[3])
    f[3] = math.ceil(f[3])
    return y


def test_constants_are_computed_as_python_does():
    y, f = i32(7, 7, 7, 7), np.array([0, 0, 0, -2.5], np.float32)
    constants(y, f)
    assert y[:3].tolist() == [0, 1, 1] and np.isnan(f[0]) and f[1:].tolist() == [1.0, -3.0, -2.0]
