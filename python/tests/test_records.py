"""Records as parameters of kernels: fields, nesting, helpers, traces and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import random
from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts

F = np.float32


@ts.struct
class Row:
    x: ts.Tensor["n", ts.f32]
    scale: ts.f32
    BLOCK: int = 4
    bias: ts.Tensor["n", ts.f32] | None = None
    y: ts.Out["n", ts.f32] = None


@ts.func
def at(p, i):
    v = p.x[i] * p.scale
    if p.bias is not None:
        v += p.bias[i]
    return v


@ts.kernel
def lanes(p: Row):
    i = ts.tile.linear_id()
    if i < n:
        p.y[i] = at(p, i)


@ts.kernel
def tiles(p: Row):
    s = ts.tile.program_id(0) * p.BLOCK
    v = p.x[s : s + p.BLOCK] * p.scale
    if p.bias is not None:
        v = v + p.bias[s : s + p.BLOCK]
    p.y[s : s + p.BLOCK] = v
    return p.y


def numbers(n=9, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(F)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("kernel", [lanes, tiles], ids=["lanes", "tiles"])
def test_fields_are_read_and_outputs_are_made_or_written_in_place(kernel):
    x, b = numbers(), numbers(seed=1)
    for _ in range(3):  # the later ones are replays
        np.testing.assert_array_equal(kernel(Row(x, 2.0)), x * 2)
        np.testing.assert_allclose(kernel(Row(x, 2.0, bias=b)), x * 2 + b, rtol=1e-6)
        np.testing.assert_array_equal(kernel(p=Row(x, 3.0, BLOCK=2)), x * 3)
        y = np.zeros_like(x)
        kernel(Row(x, 2.0, y=y))
        np.testing.assert_array_equal(y, x * 2)


def test_a_record_is_frozen_and_its_constants_are_static():
    p = Row(numbers(), 2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.scale = 3.0
    assert [f.name for f in dataclasses.fields(Row) if f.metadata.get("static")] == ["BLOCK"]
    assert len(ts.tree.leaves(p)) == 2


def test_records_of_every_kind_are_made_as_dataclasses_are():
    """Those that only keep their arguments are made faster."""

    @ts.struct
    class Plain:
        x: ts.Tensor["n", ts.f32]
        scale: ts.f32
        BLOCK: int = 4
        last: ts.f32 = dataclasses.field(default=1.0, kw_only=True)

    @ts.struct
    class Counted:
        x: ts.Tensor["n", ts.f32]
        count: dataclasses.InitVar[int] = 0
        tags: tuple = dataclasses.field(default_factory=tuple)

        def __post_init__(self, count):
            object.__setattr__(self, "tags", ("made",) * count)

    @ts.struct
    class Narrow:
        __slots__ = ("x",)
        x: ts.Tensor["n", ts.f32]

    x = numbers()
    p = Plain(x, scale=2.0, last=3.0)
    assert (p.x is x, p.scale, p.BLOCK, p.last) == (True, 2.0, 4, 3.0)
    assert dataclasses.replace(p, BLOCK=8).BLOCK == 8 and copy.copy(p).x is x and list(vars(p)) == ["x", "scale", "BLOCK", "last"]
    assert str(inspect.signature(Plain)).startswith("(x:") and "*, last:" in str(inspect.signature(Plain))
    for wrong in (lambda: Plain(x), lambda: Plain(x, 1.0, 2, 3.0), lambda: Plain(x, 1.0, other=1)):
        with pytest.raises(TypeError, match=r"Plain.__init__\(\)"):
            wrong()
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.last = 1.0
    assert Counted(x, 2).tags == ("made", "made") and Narrow(x).x is x


@dataclass(frozen=True)
class Inner:
    x: ts.Tensor["n", ts.f32]
    name: str


@dataclass(frozen=True)
class Outer:
    inner: Inner
    flag: bool
    out_type: ts.DType
    y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]
    other: Inner | None = None


@ts.kernel
def nested(p: Outer, alpha: ts.f32 = 1.0):
    i = ts.tile.linear_id()
    if i < n:
        v = p.inner.x[i] * alpha
        if p.inner.name == "negate":
            v = -v
        if p.flag and p.other is not None:
            v += p.other.x[i]
        p.y[i] = ts.tile.cast(v, p.out_type)


@pytest.mark.usefixtures("backend")
def test_plain_frozen_dataclasses_nest_and_may_be_left_out():
    x, y = numbers(), np.zeros(9, F)
    nested(Outer(Inner(x, ""), True, ts.f32, y))
    np.testing.assert_array_equal(y, x)
    nested(Outer(Inner(x, "negate"), True, ts.f32, y, Inner(x, "")), alpha=2.0)
    np.testing.assert_array_equal(y, -x)
    nested(Outer(Inner(x, "negate"), False, ts.bf16, y, Inner(x, "")))
    np.testing.assert_allclose(y, -x, rtol=1e-2)


def test_a_subclass_is_a_record_of_its_base():
    @ts.struct
    class Wider(Row):
        extra: int = 3

    x = numbers()
    np.testing.assert_array_equal(lanes(Wider(x, 2.0)), x * 2)


def test_records_are_trees_for_jit_grad_and_vmap():
    x, b = numbers(), numbers(seed=1)
    # The same as a trace of the flat kernel's formula.
    np.testing.assert_allclose(ts.jit(lanes)(Row(x, F(2.0), bias=b)), x * 2 + b, rtol=1e-6)
    slope = ts.grad(lambda p: lanes(p).sum())(Row(x, F(2.0), bias=b))
    assert isinstance(slope, Row) and slope.y is None and slope.BLOCK == 4
    np.testing.assert_allclose(slope.x, np.full(9, 2.0, F))
    np.testing.assert_allclose(slope.bias, np.ones(9, F))
    np.testing.assert_allclose(slope.scale, x.sum(), rtol=1e-5)
    # What is not given has no gradient.
    assert ts.grad(lambda p: lanes(p).sum())(Row(x, F(2.0))).bias is None
    many = np.stack([x, b])
    np.testing.assert_allclose(ts.vmap(lambda x: lanes(Row(x, 2.0)))(many), many * 2)


def test_a_traced_constant_is_refused():
    @dataclass(frozen=True)
    class Plain:
        x: ts.Tensor["n", ts.f32]
        k: int

    @ts.kernel
    def k(p: Plain):
        i = ts.tile.linear_id()
        p.x[i] = p.x[i] * p.k
        return p.x

    np.testing.assert_array_equal(k(Plain(np.ones(3, F), 3)), [3, 3, 3])
    with pytest.raises(ts.TesseraError, match=r"`p\.k`") as e:
        ts.jit(k)(Plain(np.ones(3, F), 3))
    assert e.value.code == "E_TYPE"


def test_kernels_with_records_are_kernel_objects():
    x = numbers()
    assert tiles.name == "tiles" and "%p.x: view<[n], f32, read>" in tiles.inspect_ir()
    assert str(ts.ir.parse(tiles.inspect_ir())) == tiles.inspect_ir()
    assert tiles.check(Row(x, 1.0)) and lanes.check(Row(x, 1.0))
    assert tiles.interpret(Row(x, 2.0)).tolist() == (x * 2).tolist()
    assert lanes[9](Row(x, 2.0)).tolist() == (x * 2).tolist()
    compiled = tiles.jit(**{"p.BLOCK": 8, "p.bias": None})
    np.testing.assert_array_equal(compiled(Row(x, 2.0, BLOCK=8)), x * 2)
    with pytest.raises(ts.TesseraError, match="compiled for"):
        compiled(Row(x, 2.0, BLOCK=4))
    with pytest.raises(ts.TesseraError, match="compiled for a value of p.bias, got None"):
        tiles.jit(**{"p.BLOCK": 8})(Row(x, 2.0, BLOCK=8))
    again = pickle.loads(pickle.dumps(tiles))
    np.testing.assert_array_equal(again(Row(x, 2.0)), x * 2)
    assert copy.deepcopy(tiles) is tiles
    np.testing.assert_array_equal(tiles.scheduled(warps=4)(Row(x, 2.0)), x * 2)


@pytest.mark.usefixtures("backend")
def test_integers_of_a_record_are_part_of_the_geometry():
    @ts.struct
    class Part:
        x: ts.Tensor["n", ts.f32]
        count: ts.i64
        y: ts.Out["n", ts.f32] = None

    @ts.kernel
    def some_lanes(p: Part):
        i = ts.tile.linear_id()
        if i < p.count:
            p.y[i] = p.x[i]

    @ts.kernel
    def some_groups(p: Part):
        g = ts.tile.grid(p.count)
        p.y[g] = p.x[g]

    x = numbers()
    for kernel in (some_lanes, some_groups):
        for count in (3, 5, 0):
            np.testing.assert_array_equal(kernel(Part(x, count)), np.where(np.arange(9) < count, x, 0))
        text = kernel.jit().inspect_ir()
        assert str(ts.ir.parse(text)) == text


def test_helpers_branches_and_loops_hand_records_on():
    @ts.func
    def same(p):
        return p

    @ts.func
    def bias_of(p):
        return p.bias

    @ts.kernel
    def k(p: Row):
        i = ts.tile.linear_id()
        if i < n:
            v = 0.0
            for j in range(3):
                q = same(p)
                r = q.x
                v += r[i] * j
            z = p if v > 3.0 else p
            p.y[i] = v + bias_of(z)[i]

    x, b = numbers(), numbers(seed=1)
    np.testing.assert_allclose(k(Row(x, 1.0, bias=b)), x * 3 + b, rtol=1e-5)


def test_arrays_of_two_records_may_not_overlap():
    @ts.kernel
    def k(p: Row, q: Row):
        i = ts.tile.linear_id()
        if i < n:
            p.y[i] = p.x[i]
            q.y[i] = q.x[i]

    x, y = numbers(), np.zeros(9, F)
    assert len(k(Row(x, 1.0), Row(x, 1.0))) == 2
    refused("E_PRIVILEGE", r"`p\.y` and `q\.y` overlap", lambda: k(Row(x, 1.0, y=y), Row(x, 1.0, y=y)))


def test_tunables_and_records_go_together():
    @ts.kernel.autotune(space=dict(T=[4, 8]))
    def tuned(p: Row):
        ctx = ts.tile.context()
        s = ts.tile.program_id(0) * ctx.T
        p.y[s : s + ctx.T] = p.x[s : s + ctx.T] * p.scale

    x = numbers()
    np.testing.assert_array_equal(tuned(Row(x, 2.0)), x * 2)
    assert len(tuned.tune(Row(x, 2.0), budget_ms=200).rows) == 2
    np.testing.assert_array_equal(tuned(Row(x, 2.0, bias=x)), x * 2)


def test_random_records_agree_with_flat_kernels():
    """One body under two signatures: a record, and its fields as parameters."""

    @ts.kernel
    def flat(x: ts.Tensor["n", "m", ts.f32], w: ts.Tensor["m", ts.f32] | None, alpha: ts.f32, mode: str, y: ts.Out["n", "m", ts.f32]):
        r = ts.tile.program_id(0)
        v = x[r, :] * alpha
        if w is not None:
            v = v + w[:] if mode == "add" else v * w[:]
        y[r, :] = v

    @ts.struct
    class All:
        x: ts.Tensor["n", "m", ts.f32]
        w: ts.Tensor["m", ts.f32] | None
        alpha: ts.f32
        mode: str
        y: ts.Out["n", "m", ts.f32] = None

    @ts.kernel
    def whole(p: All):
        r = ts.tile.program_id(0)
        v = p.x[r, :] * p.alpha
        if p.w is not None:
            v = v + p.w[:] if p.mode == "add" else v * p.w[:]
        p.y[r, :] = v

    draw = random.Random(7)
    for seed in range(40):
        n, m = draw.choice([0, 1, 3, 5]), draw.choice([1, 2, 8])
        x = numbers(n * m, seed).reshape(n, m)
        w = draw.choice([None, numbers(m, seed + 1)])
        args = x, w, draw.uniform(-2, 2), draw.choice(["add", "times"])
        np.testing.assert_array_equal(whole(All(*args)), flat(*args))


# What is refused.


def refused(code, words, call):
    with pytest.raises(ts.TesseraError, match=words) as e:
        call()
    assert e.value.code == code, e.value
    return e.value


@pytest.mark.parametrize(
    "given, code, words",
    [
        (lambda x: Row(x.astype(np.float64), 1.0), "E_TYPE", r"`p\.x`: expected an array of f32, got f64"),
        (lambda x: Row(x[:, None], 1.0), "E_LAUNCH_INVALID_SHAPE", r"`p\.x`: expected rank 1"),
        (lambda x: Row(None, 1.0), "E_ARGUMENT", r"`p\.x`: expected an array, got None"),
        (lambda x: Row(x, "two"), "E_ARGUMENT", r"`p\.scale`: expected a number"),
        (lambda x: Row(x, 1.0, BLOCK=2.5), "E_ARGUMENT", r"`p\.BLOCK`: expected an int"),
        (lambda x: Row(x, 1.0, bias=x[:3]), "E_LAUNCH_INVALID_SHAPE", r"`p\.bias`: expected `n` to be 9 along axis 0, as in `p\.x`"),
        (lambda x: {"x": x}, "E_ARGUMENT", r"`p`: expected a record of `Row`, got a value of type dict"),
        (lambda x: Inner(x, ""), "E_ARGUMENT", r"`p`: expected a record of `Row`, got a record of `Inner`"),
        (lambda x: Row, "E_ARGUMENT", r"got the class `Row`"),
        (lambda x: None, "E_ARGUMENT", r"expected a record of `Row`, got None"),
        (lambda x: object.__new__(Row), "E_ARGUMENT", r"`p\.x`: expected a value, but this `Row` has no `x`"),
    ],
)
def test_errors_name_the_field(given, code, words):
    found = refused(code, words, lambda: lanes(given(numbers())))
    assert found.help and found.line == lanes.spec.source.line + 1


def test_a_call_that_does_not_fit_is_refused():
    p = Row(numbers(), 1.0)
    refused("E_ARGUMENT", "missing the argument `p`", lambda: lanes())
    refused("E_ARGUMENT", "at most 1 argument, got 2", lambda: lanes(p, p))
    refused("E_ARGUMENT", "has no parameter `q`", lambda: lanes(p, q=1))
    refused("E_ARGUMENT", "`p` once, got it twice", lambda: lanes(p, p=p))


def test_a_dataclass_that_can_change_is_no_record():
    def make():
        @dataclass
        class Loose:
            x: ts.Tensor["n", ts.f32]

        @ts.kernel
        def k(p: Loose):
            i = ts.tile.linear_id()
            p.x[i] = 0.0

    assert "ts.struct" in refused("E_TYPE", "frozen dataclass", make).help


def test_a_field_of_another_type_is_refused():
    def make():
        @dataclass(frozen=True)
        class Wrong:
            table: dict

        @ts.kernel
        def k(p: Wrong):
            pass

    refused("E_TYPE", r"`p\.table`", make)

    def other():
        @dataclass(frozen=True)
        class Unknown:
            x: nothing_like_this  # noqa: F821

        @ts.kernel
        def k(p: Unknown):
            pass

    refused("E_NAME", r"`p\.x`", other)


def test_bodies_cannot_change_a_record_or_return_it():
    def assigned():
        @ts.kernel
        def k(p: Row):
            p.scale = 3.0

    def returned():
        @ts.kernel
        def k(p: Row):
            i = ts.tile.linear_id()
            p.y[i] = p.x[i]
            return p

    def unknown():
        @ts.kernel
        def k(p: Row):
            i = ts.tile.linear_id()
            p.y[i] = p.bais[i]

    def used():
        @ts.kernel
        def k(p: Row):
            i = ts.tile.linear_id()
            p.y[i] = p + 1.0

    refused("E_TYPE", "the field `scale` of the record `Row`", assigned)
    refused("E_GRAPH_INVALID", "got a record `Row`", returned)
    assert "`bias`" in refused("E_NAME", "no field `bais`", unknown).help
    refused("E_TYPE", "got a record `Row`", used)


def test_only_classes_are_structs():
    refused("E_TYPE", "expected a class", lambda: ts.struct(lambda x: x))
