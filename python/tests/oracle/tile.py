"""``ts.tile.*`` over NumPy."""

from __future__ import annotations

import builtins
import math
from typing import Any, Callable

import numpy as np

from tessera._core import real_functions

from . import context
from .memory import Array, Place, value_of
from .order import argsort, histogram, sort, topk, unique_count  # noqa: F401
from .parts import concat, flip, reshape, roll, split, stack, take_along_axis, transpose  # noqa: F401
from .reduce import (  # noqa: F401
    all, any, argmax, argmin, associative_scan, cumprod, cumsum, identity, max, mean, min, prod, reduce, row_max, row_mean, row_min,
    row_prod, row_sum, scan, sum,
)  # fmt: skip
from .values import (
    FUNCTIONS, Lacks, NUMPY, host_dtype, OracleError, Val, apply, binary, carrier, cast as cast_to, common, convert, dtype_name,
    maximum as greater, minimum as lesser, ranks, strong,
)  # fmt: skip

#: Functions whose results are within a bound and not bit for bit those of the compiler: a kernel that calls one is
#: compared with a tolerance.
INEXACT: set[str] = set()


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in (shape if isinstance(shape, tuple) else (shape,)))


def _dt(dtype: Any) -> str:
    return dtype_name(dtype)


def _scalar(f: Callable, kind: str) -> Callable:
    def call(*operands: Any) -> Any:
        operands = tuple(value_of(v) for v in operands)
        if not builtins.any(isinstance(v, Val) for v in operands):
            operands = (strong(operands[0]), *operands[1:])
        return apply(f, kind, *operands)

    return call


def _inexact(name: str, f: Callable) -> Callable:
    """A function of real numbers, in double precision and rounded."""

    def compute(dt: str, *values: Any) -> Any:
        context.inexact.add(name)
        return np.asarray(f(*[np.asarray(v, np.float64) for v in values])).astype(NUMPY[dt])

    INEXACT.add(name)
    return _scalar(compute, "float")


add, sub, mul = (_scalar(*FUNCTIONS[n]) for n in ("add", "sub", "mul"))
div = _scalar(*FUNCTIONS["div"])
neg, abs = (_scalar(*FUNCTIONS[n]) for n in ("neg", "abs"))
maximum, minimum = _scalar(greater, "arith"), _scalar(lesser, "arith")
clamp = _scalar(lambda dt, x, lo, hi: lesser(dt, greater(dt, x, lo), hi), "arith")
sqrt = _scalar(lambda dt, a: np.sqrt(a), "float")
recip = _scalar(lambda dt, a: NUMPY[dt].type(1) / a, "float")
floor, ceil, trunc = (_scalar(lambda dt, a, f=f: f(a), "float") for f in (np.floor, np.ceil, np.trunc))
round = _scalar(lambda dt, a: np.rint(a), "float")
sign = _scalar(lambda dt, a: np.where((a == 0) | (a != a), a, np.sign(a)).astype(NUMPY[dt]) if dt[0] == "f" else np.sign(a), "arith")


def _predicate(f: Callable) -> Callable:
    def call(x: Any) -> Val:
        x = strong(value_of(x))
        return Val("bool", f(convert(x, common((x,), "float"))))

    return call


isnan, isinf, isfinite = _predicate(np.isnan), _predicate(np.isinf), _predicate(np.isfinite)


def _fma(dt: str, a: Any, b: Any, c: Any) -> Any:
    if dt == "f64":
        raise Lacks("fma of f64")
    if dt == "f32":
        return fma32(a, b, c)
    return a * b + c


def fma32(a: Any, b: Any, c: Any) -> Any:
    """One rounding: the exact sum in extended steps, rounded to odd before the last."""
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64)  # exact: 48 bits
    c = np.asarray(c, np.float64)
    s = wide + c
    # What the addition lost decides the last bit of a sum rounded to odd.
    t = s - wide
    lost = (wide - (s - t)) + (c - t)
    bits = s.view(np.int64)
    odd = (lost != 0) & np.isfinite(s) & ((bits & 1) == 0)
    toward = np.where((lost > 0) == (s > 0), 1, -1)
    fixed = np.where(odd, bits + toward, bits).astype(np.int64).view(np.float64)
    return fixed.astype(np.float32)


fma = _scalar(_fma, "arith")


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


for _name, _f in {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "erf": _erf, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "atan2": np.arctan2, "pow": np.power,
}.items():  # fmt: skip
    globals()[_name] = _inexact(_name, _f)

# The others are NumPy's of the same name.
for _name, _, _ in real_functions():
    if _name not in globals():
        globals()[_name] = _inexact(_name, getattr(np, _name))


# Making and reshaping tiles.
def full(shape: Any, value: Any, dtype: Any = "f32") -> Val:
    dt = _dt(dtype)
    v = cast_to(value, dt) if isinstance(value, Val) else Val(dt, convert(value, carrier(dt)))
    return Val(dt, np.full(_shape(shape), v.a, NUMPY[carrier(dt)]))


def zeros(shape: Any, dtype: Any = "f32") -> Val:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = "f32") -> Val:
    return full(shape, 1, dtype)


alloc_register = zeros


def fill(t: Any, value: Any) -> Val:
    t = value_of(t)
    return full(t.a.shape, value, t.dt)


def arange(start: Any, stop: Any = None) -> Val:
    lo, hi = (0, int(start)) if stop is None else (int(start), int(stop))
    return Val("i32", np.arange(lo, hi, dtype=np.int32))


def alloc_shared(shape: Any, dtype: Any, swizzle: Any = None, alignment: int = 16) -> Array:
    return context.here.shared(_shape(shape), _dt(dtype))


def cast(x: Any, dtype: Any) -> Val:
    policy = str(dtype)
    return cast_to(value_of(x), _dt(dtype), "saturate" in policy)


def bitcast(x: Any, dtype: Any) -> Val:
    x = strong(value_of(x))
    dt = _dt(dtype)
    host = np.asarray(x.a).astype(NUMPY[x.dt]) if x.dt in NUMPY else None
    if host is None or dt not in NUMPY:
        raise Lacks(f"bitcast from {x.dt} to {dt}")
    if host.dtype.kind == "f" and np.isnan(host.astype(np.float64)).any():
        host = np.where(np.isnan(host), np.array(np.nan, host.dtype), host)
    out = host.view(NUMPY[dt]).astype(NUMPY[carrier(dt)])
    return Val(dt, out if out.ndim else out[()])


def where(cond: Any, a: Any, b: Any) -> Val:
    cond, a, b = value_of(cond), value_of(a), value_of(b)
    if not isinstance(a, Val) and not isinstance(b, Val):
        kind = "f32" if isinstance(a, float) or isinstance(b, float) else "bool" if isinstance(a, bool) and isinstance(b, bool) else "i64"
        a, b = Val(kind, convert(a, kind)), Val(kind, convert(b, kind))
    # Both sides of one storage dtype stay that: nothing is computed.
    dt = common((a, b), "select")
    held = cond.a if isinstance(cond, Val) else np.bool_(cond)
    if isinstance(cond, Val) and cond.dt != "bool":
        held = held != 0
    x, y = convert(a, dt), convert(b, dt)
    ranks([held, x, y])
    out = np.where(held, x, y).astype(NUMPY[dt])
    return Val(dt, out if out.ndim else out[()])


select = where


def broadcast(x: Any, shape: Any) -> Val:
    x = strong(value_of(x))
    return Val(x.dt, np.broadcast_to(x.a, _shape(shape)).copy())


def expand_dims(x: Any, axis: int) -> Val:
    x = value_of(x)
    return Val(x.dt, np.expand_dims(x.a, int(axis)))


# Memory.
def load(t: Any, index: Any = None, mask: Any = None, other: Any = None, inbounds: bool = False) -> Val:
    if isinstance(t, Place):
        return t.array.read(t.at, mask, other)
    return t.read(... if index is None else index, mask, other)


_MISSING = object()


def store(t: Any, index: Any = _MISSING, value: Any = _MISSING, mask: Any = None, unique: bool = False) -> None:
    if isinstance(t, Place):
        if value is _MISSING:
            value = index
        return t.array.write(t.at, value_of(value), mask)
    if index is _MISSING:
        index = ...
    elif value is _MISSING:
        value, index = index, ...
    return t.write(index, value_of(value), mask)


_FOLD = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod"}


def owned(t: Any) -> None:
    """A promise: it does nothing."""


def accumulate(t: Any, value: Any) -> None:
    place = t if isinstance(t, Place) else Place(t, ...)
    op = place.array.op or "sum"
    place.array.fold(place.at, {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[op], value_of(value))


def owned(t: Any) -> None:
    return None


def _atomic(name: str) -> Callable:
    def call(ref: Any, v: Any, order: str = "relaxed", scope: str = "device") -> Val:
        place = ref if isinstance(ref, Place) else Place(ref, ...)
        v = value_of(v)

        def step(old: Val, where: tuple) -> Val:
            new = Val(v.dt, v.a[where]) if isinstance(v, Val) and v.a.ndim else v
            held = Val(old.dt, convert(new, carrier(old.dt)))
            return held if name == "exchange" else binary(name, old, held)

        return place.array.atomic(place.at, step)

    return call


atomic_add, atomic_sub = _atomic("add"), _atomic("sub")
atomic_max, atomic_min = _atomic("maximum"), _atomic("minimum")
atomic_and, atomic_or, atomic_xor = _atomic("and"), _atomic("or"), _atomic("xor")
atomic_exchange = _atomic("exchange")


def atomic_cas(ref: Any, expected: Any, v: Any, order: str = "relaxed", scope: str = "device") -> Val:
    place = ref if isinstance(ref, Place) else Place(ref, ...)
    kind = place.array.kind

    def pick(x: Any, where: tuple) -> Any:
        return Val(x.dt, x.a[where]) if isinstance(x, Val) and x.a.ndim else x

    def step(old: Val, where: tuple) -> Val | None:
        wanted = np.asarray(convert(pick(expected, where), kind))
        same = wanted.tobytes() == np.asarray(old.a).tobytes()
        return Val(old.dt, convert(pick(v, where), kind)) if same else None

    return place.array.atomic(place.at, step)


def cp_async(dst: Any, src: Any, stage: Any = None) -> None:
    if isinstance(dst, Place):
        dst.array.write(dst.at, value_of(src))
    else:
        dst.write(..., value_of(src))


def cp_commit_group() -> None:
    return None


def cp_wait_group(n: Any) -> None:
    return None


def wait_async(stage: Any) -> None:
    return None


# Where one is.
def program_id(axis: Any) -> Val:
    return Val("i64", np.int64(context.here.group[int(axis)]))


def num_programs(axis: Any) -> Val:
    return Val("i64", np.int64(context.here.grid[int(axis)]))


def grid(*extents: Any) -> Any:
    ids = tuple(Val("i64", np.int64(context.here.group[k])) for k in builtins.range(len(extents)))
    return ids[0] if len(ids) == 1 else ids


def group_id(axis: Any = 0) -> Val:
    return program_id(axis)


block_id = group_id


def num_groups(axis: Any = 0) -> Val:
    return num_programs(axis)


def group_size(axis: Any = None) -> Val:
    here = context.here
    return Val("i64", np.int64(here.lanes if axis is None else here.shape[int(axis)]))


def _axis(axis: Any) -> int:
    if axis is None and len(context.here.shape) > 1:
        raise OracleError("E_ARGUMENT", "lanes of several axes")
    return 0 if axis is None else int(axis)


def linear_id(axis: Any = None) -> Val:
    here, axis = context.here, _axis(axis)
    return Val("i64", np.int64(here.group[axis] * here.shape[axis] + here.place(axis)))


def local_id(axis: Any = None) -> Val:
    return Val("i64", np.int64(context.here.place(_axis(axis))))


thread_id = local_id


def lane_id() -> Val:
    return Val("i64", np.int64(context.here.lane % context.warp))


def warp_id() -> Val:
    return Val("i64", np.int64(context.here.lane // context.warp))


class Sync:
    """What all lanes of a group do together; in a kernel that has one, calls go through `rewrite`'s generator."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name in ("barrier", "sync") and not context.here.lanes:
            return None
        raise Lacks(f"`{self.name}` outside a coroutine")


barrier = Sync("barrier")


class group:
    reduce, scan, broadcast, shuffle, sync = (Sync(n) for n in ("reduce", "scan", "broadcast", "shuffle", "sync"))
    any, all, ballot, match = (Sync(n) for n in ("any", "all", "ballot", "match"))


class _Group:
    reduce, scan, broadcast, shuffle, sync = group.reduce, group.scan, group.broadcast, group.shuffle, group.sync
    any, all, ballot, match = group.any, group.all, group.ballot, group.match

    @property
    def rank(self) -> Val:
        return Val("i64", np.int64(context.here.lane))

    @property
    def size(self) -> Val:
        return group_size()


group = _Group()


def collective(name: str, calls: list[tuple[tuple, dict]], lanes: list[int]) -> list[Any]:
    """The result of an operation of the group for each lane, by their numbers. Lanes that do not exist give the identity."""
    if name in ("barrier", "sync"):
        return [None] * len(calls)

    def argument(call: tuple, place: int, key: str, default: Any = None) -> Any:
        args, kwargs = call
        return args[place] if len(args) > place else kwargs.get(key, default)

    xs = [strong(argument(c, 0, "p" if name in ("any", "all", "ballot") else "x")) for c in calls]
    if name in ("any", "all"):
        held = (builtins.any if name == "any" else builtins.all)(bool(x.a) for x in xs)
        return [Val("bool", np.bool_(held))] * len(calls)
    if name in ("ballot", "match"):
        dt = "u32" if context.here.lanes <= 32 else "u64"
        same = [np.asarray(x.a).tobytes() for x in xs]
        one = lambda holds: Val(dt, NUMPY[dt].type(builtins.sum(1 << lanes[i] for i in builtins.range(len(xs)) if holds(i))))
        if name == "ballot":
            return [one(lambda i: bool(xs[i].a))] * len(calls)
        return [one(lambda i, own=own: same[i] == own) for own in same]
    if name == "reduce":
        together = reduce(_whole(xs, lanes, argument(calls[0], 1, "op")), argument(calls[0], 1, "op"))
        return [together] * len(calls)
    if name == "scan":
        whole = _whole(xs, lanes, argument(calls[0], 1, "op"))
        out = scan(whole, argument(calls[0], 1, "op"), 0, bool(argument(calls[0], 2, "exclusive", False)))
        return [Val(out.dt, out.a[k]) for k in lanes]
    sources = [int(strong(argument(c, 1, "src")).a) for c in calls]
    zero = Val(xs[0].dt, NUMPY[carrier(xs[0].dt)].type(0))
    return [xs[lanes.index(s)] if s in lanes else zero for s in sources]


def _whole(xs: list[Val], lanes: list[int], op: str) -> Val:
    """The values of the lanes at their numbers, and the identity between those that exist."""
    if lanes == list(builtins.range(len(xs))):
        return Val(xs[0].dt, np.stack([np.asarray(x.a) for x in xs]))
    kind = carrier(xs[0].dt)
    held = np.full(lanes[-1] + 1, identity({"add": "sum"}.get(op, op), kind), NUMPY[kind])
    for lane, x in zip(lanes, xs):
        held[lane] = convert(x, kind)
    return Val(kind, held)


# Masks, products and the rest.
def bounds_mask(x: Any, rows: Any = None, cols: Any = None, value: Any = None) -> Val:
    x = value_of(x)
    keep = np.ones(x.a.shape, bool)
    if cols is not None:
        keep &= np.arange(x.a.shape[-1]) < int(cols)
    if rows is not None:
        keep &= (np.arange(x.a.shape[-2]) < int(rows))[:, None]
    return where(Val("bool", keep), x, -math.inf if value is None else value)


def causal_mask(scores: Any, q_start: Any, kv_start: Any, value: Any = None, offset: Any = 0) -> Val:
    x = value_of(scores)
    i, j = np.arange(x.a.shape[-2])[:, None], np.arange(x.a.shape[-1])[None, :]
    keep = int(kv_start) + j <= int(q_start) + i + int(offset)
    return where(Val("bool", np.broadcast_to(keep, x.a.shape)), x, -math.inf if value is None else value)


apply_causal_mask = causal_mask


def mma(
    a: Any, b: Any, accumulator: Any = None, transpose_a: bool = False, transpose_b: bool = False, accum: Any = None, precision: Any = None
) -> Val:
    a, b = value_of(a), value_of(b)
    if a.a.ndim == 3:  # a batch
        acc = value_of(accumulator) if isinstance(accumulator, (Val, Array)) else None
        rows = builtins.range(a.a.shape[0])
        parts = [mma(Val(a.dt, a.a[i]), Val(b.dt, b.a[i]), acc and Val(acc.dt, acc.a[i]), transpose_a, transpose_b) for i in rows]
        return Val(parts[0].dt, np.stack([p.a for p in parts]))
    x, y = (a.a.T if transpose_a else a.a), (b.a.T if transpose_b else b.a)
    kind = "i32" if carrier(a.dt) in ("i32", "bool") else carrier(a.dt)
    acc = value_of(accumulator) if isinstance(accumulator, (Val, Array)) else None
    out = np.zeros((x.shape[0], y.shape[1]), NUMPY[kind]) if acc is None else np.array(convert(acc, kind))
    for k in builtins.range(x.shape[1]):
        left, right = x[:, k : k + 1], y[k : k + 1, :]
        if kind == "f32":
            out = fma32(left, right, out)
        elif kind == "f64":
            context.inexact.add("mma of f64")
            out = left * right + out
        else:
            out = left * right + out
    return Val(kind, out)


dot = mma


def mma_scaled(a: Any, scale_a: Any, b: Any, scale_b: Any, accumulator: Any = None) -> Val:
    a, sa, b, sb = (value_of(v) for v in (a, scale_a, b, scale_b))
    block = a.a.shape[1] // sa.a.shape[1]
    out = convert(value_of(accumulator), "f32") if isinstance(accumulator, (Val, Array)) else np.float32(0)
    for i in builtins.range(sa.a.shape[1]):
        k = slice(i * block, (i + 1) * block)
        part = mma(Val(a.dt, a.a[:, k]), Val(b.dt, b.a[k])).a
        # Exact in f64, then rounded once.
        rows, cols = (np.asarray(convert(s, "f32"), np.float64) for s in (sa, sb))
        out = out + (part * rows[:, i : i + 1] * cols[i : i + 1]).astype(np.float32)
    return Val("f32", out)


#: The exponent of the largest number of each element type.
_EXPONENT = {"fp8_e4m3": 8, "fp8_e5m2": 15, "fp6_e3m2": 4, "fp6_e2m3": 2, "fp4_e2m1": 2}
_FORMATS = {
    "mxfp8_e4m3": ("fp8_e4m3", "e8m0", 32), "mxfp8_e5m2": ("fp8_e5m2", "e8m0", 32), "mxfp6_e3m2": ("fp6_e3m2", "e8m0", 32),
    "mxfp6_e2m3": ("fp6_e2m3", "e8m0", 32), "mxfp4": ("fp4_e2m1", "e8m0", 32), "nvfp4": ("fp4_e2m1", "fp8_e4m3", 16),
}  # fmt: skip


def _blocks(a: np.ndarray, axis: int, block: int) -> np.ndarray:
    """The axis last and in blocks, a short last one filled with zeros."""
    rows = np.moveaxis(a, axis, -1)
    count = -(-rows.shape[-1] // block)
    whole = np.zeros((*rows.shape[:-1], count * block), a.dtype)
    whole[..., : rows.shape[-1]] = rows
    return whole.reshape(*rows.shape[:-1], count, block)


def _joined(blocks: np.ndarray, axis: int, extent: int) -> np.ndarray:
    rows = blocks.reshape(*blocks.shape[:-2], -1)[..., :extent]
    return np.moveaxis(rows, -1, axis)


def quantize(x: Any, fmt: str, axis: int = -1, tensor_scale: Any = None) -> tuple:
    x = value_of(x)
    element, scale, block = _FORMATS[fmt]
    values = np.clip(_blocks(np.asarray(convert(x, "f32")), axis, block), -np.finfo(np.float32).max, np.finfo(np.float32).max)
    amax = np.abs(values).max(axis=-1)  # NaN where there is one
    if fmt == "nvfp4":
        tensor = np.float32(convert(value_of(tensor_scale), "f32"))
        wanted = np.where((amax == 0) | ((tensor == 0) & ~np.isnan(amax)), np.float32(0), amax / (np.float32(6) * tensor))
        shared = cast_to(Val("f32", wanted), scale)
        factor = (shared.a * tensor)[..., None]
        data = cast_to(Val("f32", np.where(factor == 0, np.float32(0), values / factor)), element)
    else:
        _, exponent = np.frexp(amax.astype(np.float64))
        power = np.clip(np.where(amax == 0, -1000, exponent - 1 - _EXPONENT[element]), -127, 127)
        factor = np.where(np.isnan(amax), np.nan, 2.0**power)
        shared = Val(scale, factor.astype(np.float32))
        data = cast_to(Val("f64", values / factor[..., None]), element)
    extent = x.a.shape[axis]
    return Val(element, _joined(data.a, axis, extent)), Val(scale, np.moveaxis(shared.a, -1, axis))


def dequantize(data: Any, scales: Any, axis: int = -1, tensor_scale: Any = None) -> Val:
    data, scales = value_of(data), value_of(scales)
    block = next(size for element, scale, size in _FORMATS.values() if (element, scale) == (data.dt, scales.dt))
    rows = np.moveaxis(convert(scales, "f32"), axis, -1)[..., None]
    out = _joined(_blocks(convert(data, "f32"), axis, block) * rows, axis, data.a.shape[axis])
    return Val("f32", out if tensor_scale is None else out * np.float32(convert(value_of(tensor_scale), "f32")))


def alloc_local(shape: Any, dtype: Any) -> Array:
    """Each lane runs by itself, and has its own."""
    return Array(np.zeros(_shape(shape), host_dtype(_dt(dtype))), _dt(dtype))


def _word(f: Callable) -> Callable:
    """A function of the bits of integers, as Python's integers have them."""

    def call(*operands: Any) -> Val:
        operands = tuple(value_of(v) for v in operands)
        typed = tuple(v for v in operands if isinstance(v, Val)) or (strong(operands[0]),)
        dt = common(typed, "arith")  # a literal takes the type of the others
        wide = np.broadcast_arrays(*(np.asarray(convert(v, dt)) for v in operands))
        bits = NUMPY[dt].itemsize * 8
        each = [f(bits, *(int(x) & (2**bits - 1) if f is not _high else int(x) for x in xs)) for xs in zip(*(w.ravel() for w in wide))]
        held = np.array([e & (2**bits - 1) for e in each], np.dtype(f"u{bits // 8}")).view(NUMPY[dt]).reshape(wide[0].shape)
        return Val(dt, held if held.ndim else held[()])

    return call


def _high(bits: int, a: int, b: int) -> int:
    return a * b >> bits


popcount = _word(lambda bits, x: bin(x).count("1"))
clz = _word(lambda bits, x: bits - x.bit_length())
ctz = _word(lambda bits, x: (x & -x).bit_length() - 1 if x else bits)
brev = _word(lambda bits, x: int(f"{x:0{bits}b}"[::-1], 2))
mulhi = _word(_high)
funnel_shift = _word(lambda bits, hi, lo, n: ((hi << bits | lo) << n % bits) >> bits)


def softmax_online(m: Any, l: Any, s: Any) -> tuple:
    m, l, s = value_of(m), value_of(l), value_of(s)
    context.inexact.add("softmax_online")
    new = np.maximum(m.a, s.a.max(axis=1))
    safe = np.where(np.isinf(new), 0, new)
    p = np.exp(s.a.astype(np.float64) - safe[:, None]).astype(np.float32)
    alpha = np.exp(m.a.astype(np.float64) - safe).astype(np.float32)
    return Val("f32", new), Val("f32", (l.a * alpha + p.sum(axis=1)).astype(np.float32)), Val("f32", p), Val("f32", alpha)


def softmax_accumulate(acc: Any, alpha: Any, p: Any, v: Any) -> Val:
    acc, alpha, p, v = (value_of(t) for t in (acc, alpha, p, v))
    narrow = cast_to(p, v.dt)
    return mma(narrow, v, Val("f32", alpha.a[:, None] * acc.a))


def softmax_finish(acc: Any, l: Any) -> Val:
    acc, l = value_of(acc), value_of(l)
    zero = l.a == 0
    return Val("f32", np.where(zero[:, None], 0, acc.a / np.where(zero, 1, l.a)[:, None]).astype(np.float32))


def _philox(seed: int, counter: int) -> tuple[int, int, int, int]:
    low = 2**32 - 1
    k0, k1 = seed & low, (seed >> 32) & low
    c = [counter & low, (counter >> 32) & low, 0, 0]
    for _ in builtins.range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & low, (p0 >> 32) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return tuple(c)


def philox4(seed: Any, counter: Any) -> tuple:
    counter = strong(value_of(counter))
    key = int(seed) & (2**64 - 1)
    flat = [_philox(key, int(c) & (2**64 - 1)) for c in np.asarray(counter.a).reshape(-1)]
    shape = np.shape(counter.a)
    out = []
    for word in builtins.range(4):
        a = np.array([w[word] for w in flat], np.uint32).reshape(shape)
        out.append(Val("u32", a if a.ndim else a[()]))
    return tuple(out)


def philox(seed: Any, counter: Any) -> Val:
    return philox4(seed, counter)[0]


def dropout(x: Any, p: Any, seed: Any, at: Any = None, shape: Any = None) -> Val:
    x = value_of(x)
    starts = (0,) * x.a.ndim if at is None else tuple(int(v) for v in (at if isinstance(at, tuple) else (at,)))
    extents = x.a.shape if shape is None else tuple(int(v) for v in (shape if isinstance(shape, tuple) else (shape,)))
    coordinate = np.zeros(x.a.shape, np.int64)
    for axis in builtins.range(x.a.ndim):
        along = (np.arange(x.a.shape[axis]) + starts[axis]).reshape([-1 if k == axis else 1 for k in builtins.range(x.a.ndim)])
        coordinate = coordinate * (extents[axis] if axis else 1) + along
    bits = philox(seed, Val("i64", coordinate))
    limit = int(np.rint(float(p) * 2**32))
    kept = bits.a.astype(np.uint64) >= limit
    kind = carrier(x.dt)
    scale = NUMPY[kind].type(1 / (1 - float(p)))
    return Val(kind, np.where(kept, x.a * scale, NUMPY[kind].type(0)).astype(NUMPY[kind]))


def pure(f: Any, *values: Any, like: Any = None, dtype: Any = None) -> Any:
    out = f(*values)
    if like is not None:
        shape = value_of(like).a.shape
        if dtype is None and np.shape(out.a if isinstance(out, Val) else out) != shape:
            raise OracleError("E_SHAPE_MISMATCH", "a function of another shape")
    return out


def value_and_grad(*values: Any) -> Any:
    raise Lacks("ts.tile.value_and_grad: a derivative")


#: Its name until 0.4.
slope = value_and_grad


def range(start: Any, stop: Any = None, step: Any = 1, prefetch: Any = None) -> Any:
    lo, hi = (0, int(start)) if stop is None else (int(start), int(stop))
    if int(step) == 0:
        raise OracleError("E_ARGUMENT", "a step of 0")
    return (Val("i64", np.int64(k)) for k in builtins.range(lo, hi, int(step)))


def print(*values: Any) -> None:
    return None


def assert_(cond: Any, text: Any = None) -> None:
    if not cond:
        raise OracleError("E_ASSERT", text or "")


class _Context:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def context_() -> Any:
    return _Context(context.here.config)
