"""Scalars and tiles by LANGUAGE 9 and 20: dtypes, literals and arithmetic.

A `Val` holds a NumPy array in the type that arithmetic is done in (its carrier) beside the name of its dtype. Python
numbers stay Python numbers: they are the weak literals of LANGUAGE 20, exact until they are combined with a `Val`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts


class OracleError(Exception):
    """A program that the language refuses, by the code that it should be refused with."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Lacks(Exception):
    """Something that the oracle does not have, by name."""


CARRIER = {
    "bool": "bool", "i4": "i32", "i8": "i32", "i16": "i32", "i32": "i32", "i64": "i64", "u8": "i32", "u16": "i32",
    "u32": "u32", "u64": "u64", "f32": "f32", "f64": "f64", "tf32": "f32", "f16": "f32", "bf16": "f32",
}  # fmt: skip
NUMPY = {
    "bool": np.dtype(np.bool_), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16),
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32),
}  # fmt: skip
INTS = {"i4", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
FLOATS = {"f32", "f64", "tf32", "f16", "bf16"}
RANGE = {
    "i4": (-8, 7), "i8": (-128, 127), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1), "u8": (0, 255), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**64 - 1),
}  # fmt: skip
BITS = {"i32": 32, "u32": 32, "i64": 64, "u64": 64}


def carrier(dt: str) -> str:
    """The type that values of a dtype are held and computed in; bools stay bools until arithmetic."""
    return CARRIER.get(dt, "f32")


_NAMES: dict[Any, str] = {}


def dtype_name(dt: Any) -> str:
    """The plain name of a dtype, its policy left out."""
    if isinstance(dt, str) and dt in CARRIER:
        return dt
    try:
        return _NAMES[dt]
    except (KeyError, TypeError):
        pass
    name = ts.dtype(dt).name
    try:
        _NAMES[dt] = name
    except TypeError:
        pass
    return name


def is_float(dt: str) -> bool:
    return carrier(dt) in ("f32", "f64")


class Val:
    """A scalar (rank 0) or a tile."""

    __slots__ = ("dt", "a", "aug")
    __array_ufunc__ = None

    def __init__(self, dt: str, a: Any) -> None:
        self.dt = dt
        self.a = a

    # Python's protocols of a value.
    def __bool__(self) -> bool:
        if self.a.ndim:
            raise OracleError("E_TYPE", "a tile as a condition")
        return bool(self.a)

    def __int__(self) -> int:
        return int(self.a)

    def __index__(self) -> int:
        return int(self.a)

    def __float__(self) -> float:
        return float(self.a)

    def __hash__(self) -> int:
        raise OracleError("E_TYPE", "a value is no key")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.a.shape

    @property
    def dtype(self) -> Any:
        return ts.dtype(self.dt)

    @property
    def T(self) -> Val:
        return Val(self.dt, self.a.T.copy())

    def __len__(self) -> int:
        return self.a.shape[0]

    def __iter__(self) -> Any:
        raise OracleError("E_TYPE", "a tile is not unpacked")

    def __getitem__(self, index: Any) -> Val:
        from .parts import subscript

        return subscript(self, index)

    def __repr__(self) -> str:
        return f"{self.dt}:{self.a!r}"


def const(dt: str, value: Any) -> np.ndarray:
    """A Python number as a value of the dtype's carrier; E_OVERFLOW where it does not fit."""
    kind = carrier(dt)
    if kind == "bool":
        return np.bool_(bool(value))
    if kind in ("f32", "f64"):
        if isinstance(value, int):
            return int_to_float(int(value), kind)
        with np.errstate(all="ignore"):
            out = NUMPY[kind].type(value)
        if np.isinf(out) and abs(value) != float("inf"):
            raise OracleError("E_OVERFLOW", f"{value} as {kind}")
        return out
    if isinstance(value, float):
        raise OracleError("E_TYPE", f"{value} as {dt}")
    lo, hi = RANGE[dt]
    if not lo <= value <= hi:
        raise OracleError("E_OVERFLOW", f"{value} as {dt}")
    return NUMPY[kind].type(int(value))


def int_to_float(value: int, kind: str) -> Any:
    """A whole number rounded once, to nearest even."""
    if kind == "f64":
        try:
            return np.float64(float(value))
        except OverflowError:
            raise OracleError("E_OVERFLOW", f"{value} as f64") from None
    bits = max(abs(value).bit_length() - 24, 0)
    if bits:
        whole, rest = abs(value) >> bits, abs(value) & ((1 << bits) - 1)
        half = 1 << (bits - 1)
        whole += rest > half or (rest == half and whole & 1)
        value = (whole << bits) * (1 if value > 0 else -1)
    if abs(value) >= 2**128:
        raise OracleError("E_OVERFLOW", f"{value} as f32")
    return np.float32(float(value))


def join(a: str, b: str) -> str:
    """The common type of two dtypes."""
    if a == b and a in BITS:
        return a
    if a[0] == "u" and b[0] == "u" and ("32" in a + b or "64" in a + b):
        return "u64" if "u64" in (a, b) else "u32"
    a, b = carrier(a), carrier(b)
    if a == "bool":
        return b
    if b == "bool" or a == b:
        return a
    for wide in ("f64", "f32"):
        if wide in (a, b):
            return wide
    if {a, b} in ({"i32", "i64"}, {"u32", "i64"}):
        return "i64"
    raise OracleError("E_TYPE", f"{a} with {b}")


def weak_join(dt: str, literal: Any) -> str:
    """The common type of a dtype and a literal (LANGUAGE 20)."""
    kind = carrier(dt)
    if isinstance(literal, bool):
        return kind
    if isinstance(literal, float):
        return kind if kind in ("f32", "f64") else "f32"
    if kind in ("f32", "f64"):
        return kind
    if kind == "bool":
        kind = "i32"
    lo, hi = RANGE[kind]
    if lo <= literal <= hi:
        return kind
    for wide in ("i64", "u64"):
        low, high = RANGE[wide]
        if low <= literal <= high and low <= lo and hi <= high:
            return wide
    raise OracleError("E_TYPE", f"{dt} with {literal}")


def convert(v: Any, dt: str) -> Any:
    """A value or literal in the carrier type ``dt``."""
    if isinstance(v, Val):
        return cast_array(v.a, carrier(v.dt), dt)
    return const(dt, v)


def cast_array(a: Any, have: str, want: str) -> Any:
    """Between carriers: whole numbers wrap, floats become whole by truncation, saturating, NaN as 0."""
    if have == want:
        return a
    if want == "bool":
        return a != 0
    if have in ("f32", "f64") and want in BITS:
        lo, hi = RANGE[want]
        wide = np.asarray(a, np.float64)
        with np.errstate(all="ignore"):
            inside = (wide > float(lo) - 1) & (wide < float(hi) + 1) if BITS[want] == 32 else (wide >= float(lo)) & (wide < float(hi))
            out = np.where(inside, np.trunc(np.where(inside, wide, 0)), 0).astype(NUMPY[want])
            out = np.where(~inside & (wide > 0), NUMPY[want].type(hi), out)
            out = np.where(~inside & (wide < 0), NUMPY[want].type(lo), out)
        return out.astype(NUMPY[want]) if out.ndim else NUMPY[want].type(out)
    with np.errstate(all="ignore"):
        return a.astype(NUMPY[want])


def to_storage(a: Any, have: str, dt: str, saturate: bool | None = None) -> Any:
    """A value of the carrier ``have`` in the dtype ``dt``, as its host array holds it."""
    kind = carrier(dt)
    if dt in NUMPY and kind == "i32" and dt != "i32":
        whole = cast_array(a, have, "i64") if have in ("f32", "f64") else a
        if have in ("f32", "f64"):
            whole = np.clip(whole, *RANGE[dt])  # from floats it saturates in the dtype itself
        elif saturate:
            lo, hi = RANGE[dt]
            whole = np.clip(a.astype(np.int64), lo, hi)
        return np.asarray(whole).astype(NUMPY[dt])
    if saturate and dt in INTS and have in INTS:
        lo, hi = RANGE[dt]
        exact = np.asarray(a).astype(object)
        return np.clip(exact, lo, hi).astype(NUMPY[dt])
    if dt in ("f16", "bf16") and have != "f64":
        wide = cast_array(a, have, "f32") if have != "i64" and have != "u64" else None
        if wide is not None:
            with np.errstate(all="ignore"):
                return np.asarray(wide).astype(NUMPY[dt])
    if dt in NUMPY:
        if dt in ("f16", "bf16"):
            codes = ts.numerics.encode(np.asarray(a), dt)
            return codes.view(NUMPY[dt]).reshape(np.shape(a))
        return cast_array(a, have, kind)
    codes = ts.numerics.encode(np.asarray(a), dt)
    return codes.view(host_dtype(dt)).reshape(np.shape(a))


def host_dtype(dt: str) -> np.dtype:
    """What host arrays of a dtype hold."""
    if dt not in NUMPY and dt not in _HOSTS:
        _HOSTS[dt] = np.asarray(ts.zeros((1,), dt)).dtype
    return NUMPY.get(dt) or _HOSTS[dt]


_HOSTS: dict[str, np.dtype] = {}


def from_storage(a: Any, dt: str) -> Any:
    """What a host array holds, in the carrier."""
    kind = carrier(dt)
    if dt in NUMPY:
        return a if a.dtype == NUMPY[kind] else a.astype(NUMPY[kind])
    if dt == "i4":
        return np.asarray(a).astype(np.int8).astype(np.int32)
    return np.asarray(a).astype(np.float32)


def cast(v: Any, dt: str, saturate: bool | None = None) -> Val:
    """``ts.tile.cast``."""
    if not isinstance(v, Val):
        # A literal is exact: it is rounded once, to where it goes.
        v = Val("f64", np.float64(v)) if isinstance(v, float) else strong(v)
    if carrier(dt) == dt and not saturate:
        return Val(dt, cast_array(v.a, carrier(v.dt), dt))
    return Val(dt, from_storage(to_storage(v.a, carrier(v.dt), dt, saturate), dt))


def strong(v: Any) -> Val:
    """A literal where a value is wanted and nothing says of which type: int64, or float32."""
    if isinstance(v, Val):
        return v
    if isinstance(v, bool):
        return Val("bool", np.bool_(v))
    if isinstance(v, int):
        kind = "i64" if v < 2**63 else "u64"
        return Val(kind, const(kind, v))
    if isinstance(v, float):
        return Val("f32", const("f32", v))
    if isinstance(v, np.ndarray) and v.ndim == 0 and v.dtype.kind in "iuf":
        # A dtype called on a literal, as outside kernels.
        kind = f"{v.dtype.kind}{8 * v.dtype.itemsize}"
        return Val(kind, const(kind, v.item()))
    raise OracleError("E_TYPE", f"a number is wanted, got {v!r}")


def common(operands: tuple, kind: str) -> str:
    """The common type of operands; ``kind`` is what they are for: arith, float, compare, bits or shift."""
    dt: str | None = None
    for v in operands:
        if isinstance(v, Val):
            dt = v.dt if dt is None else join(dt, v.dt)
    if dt is None:
        raise OracleError("E_TYPE", "literals alone")
    dt = carrier(dt)
    for v in operands:
        if not isinstance(v, Val):
            if not isinstance(v, (int, float)):
                raise OracleError("E_TYPE", f"{v!r} is no number")
            dt = weak_join(dt, v)
    if dt == "bool" and kind in ("arith", "shift"):
        dt = "i32"
    if kind == "float" and dt not in ("f32", "f64"):
        dt = "f64" if dt in ("i64", "u64") else "f32"
    return dt


def ranks(values: list) -> None:
    shape = None
    for a in values:
        if a.ndim:
            if shape is None:
                shape = a.shape
            elif len(shape) != len(a.shape) or any(x != y and 1 not in (x, y) for x, y in zip(shape, a.shape)):
                raise OracleError("E_SHAPE_MISMATCH", f"{shape} with {a.shape}")


def apply(f: Any, kind: str, *operands: Any) -> Val:
    dt = common(operands, kind)
    values = [convert(v, dt) for v in operands]
    ranks(values)
    out = f(dt, *values)
    return Val("bool" if kind in ("compare", "predicate") else dt, out)


def _floordiv(dt: str, a: Any, b: Any) -> Any:
    if dt in ("f32", "f64"):
        # As Python's own `//` on floats, in this precision.
        rem = np.fmod(a, b)
        quotient = (a - rem) / b - np.where((rem != 0) & ((rem < 0) != (b < 0)), NUMPY[dt].type(1), NUMPY[dt].type(0))
        floor = np.floor(quotient)
        floor = np.where(quotient - floor > 0.5, floor + NUMPY[dt].type(1), floor)
        out = np.where(quotient == 0, np.copysign(NUMPY[dt].type(0), a / b), floor)
        return np.where(b == 0, a / b, out).astype(NUMPY[dt])
    zero = b == 0
    one = NUMPY[dt].type(1)
    if dt[0] == "i":  # the least number by -1 wraps
        minus = b == -1
        q = np.floor_divide(a, np.where(zero | minus, one, b).astype(NUMPY[dt]))
        q = np.where(minus, np.negative(a), q)
    else:
        q = np.floor_divide(a, np.where(zero, one, b).astype(NUMPY[dt]))
    return np.where(zero, NUMPY[dt].type(0), q).astype(NUMPY[dt])


def _mod(dt: str, a: Any, b: Any) -> Any:
    if dt in ("f32", "f64"):
        rem = np.fmod(a, b)
        out = np.where((rem < 0) != (b < 0), rem + b, rem)
        return np.where(rem == 0, np.copysign(NUMPY[dt].type(0), b), out).astype(NUMPY[dt])
    zero = b == 0
    safe = np.where(zero, NUMPY[dt].type(1), b).astype(NUMPY[dt])
    if dt[0] == "i":
        safe = np.where(safe == -1, NUMPY[dt].type(1), safe).astype(NUMPY[dt])
    r = np.remainder(a, safe)
    return np.where(zero, NUMPY[dt].type(0), r).astype(NUMPY[dt])


def _shift(left: bool) -> Any:
    def shift(dt: str, a: Any, b: Any) -> Any:
        bits, t = BITS[dt], NUMPY[dt]
        inside = (b >= 0) & (b < bits)
        by = np.where(inside, b, 0).astype(t)
        moved = np.left_shift(a, by) if left else np.right_shift(a, by)
        outside = np.zeros_like(a) if left or dt[0] == "u" else np.right_shift(a, t.type(bits - 1))
        return np.where(inside, moved, outside).astype(t)

    return shift


def maximum(dt: str, a: Any, b: Any) -> Any:
    if dt in ("f32", "f64"):
        out = np.maximum(a, b)
        zeros = (a == 0) & (b == 0)
        return np.where(zeros, np.where(np.signbit(a), b, a), out).astype(NUMPY[dt])
    return np.maximum(a, b)


def minimum(dt: str, a: Any, b: Any) -> Any:
    if dt in ("f32", "f64"):
        out = np.minimum(a, b)
        zeros = (a == 0) & (b == 0)
        return np.where(zeros, np.where(np.signbit(a), a, b), out).astype(NUMPY[dt])
    return np.minimum(a, b)


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "add": (lambda dt, a, b: a + b, "arith"),
    "sub": (lambda dt, a, b: a - b, "arith"),
    "mul": (lambda dt, a, b: a * b, "arith"),
    "div": (lambda dt, a, b: a / b, "float"),
    "floordiv": (_floordiv, "arith"),
    "mod": (_mod, "arith"),
    "shl": (_shift(True), "shift"),
    "shr": (_shift(False), "shift"),
    "and": (lambda dt, a, b: a & b, "bits"),
    "or": (lambda dt, a, b: a | b, "bits"),
    "xor": (lambda dt, a, b: a ^ b, "bits"),
    "eq": (lambda dt, a, b: a == b, "compare"),
    "ne": (lambda dt, a, b: a != b, "compare"),
    "lt": (lambda dt, a, b: a < b, "compare"),
    "le": (lambda dt, a, b: a <= b, "compare"),
    "gt": (lambda dt, a, b: a > b, "compare"),
    "ge": (lambda dt, a, b: a >= b, "compare"),
    "maximum": (maximum, "arith"),
    "minimum": (minimum, "arith"),
    "neg": (lambda dt, a: np.negative(a), "arith"),
    "abs": (lambda dt, a: a if dt[0] == "u" else np.abs(a), "arith"),
    "pos": (lambda dt, a: a, "arith"),
    "not": (lambda dt, a: ~a, "bits"),
}


def binary(name: str, a: Any, b: Any) -> Any:
    if not isinstance(a, (Val, int, float)) or not isinstance(b, (Val, int, float)):
        return NotImplemented
    f, kind = FUNCTIONS[name]
    dt = common((a, b), kind)
    x, y = convert(a, dt), convert(b, dt)
    if x.ndim and y.ndim:
        ranks([x, y])
    if kind in ("bits", "shift") and dt in ("f32", "f64"):
        raise OracleError("E_TYPE", f"{name} of {dt}")
    return Val("bool" if kind == "compare" else dt, f(dt, x, y))


def unary(name: str, a: Val) -> Val:
    f, kind = FUNCTIONS[name]
    dt = common((a,), kind)
    if kind == "bits" and dt in ("f32", "f64"):
        raise OracleError("E_TYPE", f"{name} of {dt}")
    return Val(dt, f(dt, convert(a, dt)))


def _power(a: Any, b: Any) -> Any:
    if isinstance(b, int) and b == 2 and isinstance(a, Val):
        return binary("mul", a, a)
    from .tile import pow as power

    return power(a, b)


def _install() -> None:
    names = {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "mod",
        "lshift": "shl", "rshift": "shr", "and": "and", "or": "or", "xor": "xor",
    }  # fmt: skip
    for python, name in names.items():
        setattr(Val, f"__{python}__", lambda a, b, name=name: binary(name, a, b))
        setattr(Val, f"__r{python}__", lambda a, b, name=name: binary(name, b, a))

        def augmented(a: Val, b: Any, name: str = name) -> Any:
            out = binary(name, a, b)
            if isinstance(out, Val):
                out.aug = (name, b)
            return out

        setattr(Val, f"__i{python}__", augmented)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Val, f"__{name}__", lambda a, b, name=name: binary(name, a, b))
    Val.__pow__ = _power
    Val.__rpow__ = lambda b, a: _power(a, b)
    Val.__neg__ = lambda a: unary("neg", a)
    Val.__pos__ = lambda a: unary("pos", a)
    Val.__abs__ = lambda a: unary("abs", a)
    Val.__invert__ = lambda a: unary("not", a)


_install()
