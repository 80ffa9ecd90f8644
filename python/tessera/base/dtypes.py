"""Element types under all their spellings, and the numeric policy items.

A type is a storage dtype with a policy: ``fp8_e4m3 @ accum(fp32) @ loss_scale(128.0)``.
"""

from __future__ import annotations

from .. import _core
from .._core import DType, PolicyItem
from .caller import here
from .errors import TesseraError

_PLAIN: dict[str, DType] = {}


def dtype(spec: str | DType | type | object) -> DType:
    """The type that ``spec`` names: text such as ``"bf16 @accum(f32)"``, a dtype, or a NumPy dtype."""
    if isinstance(spec, DType):
        return spec
    if not isinstance(spec, str):
        spec = _numpy_name(spec)
    try:
        parsed = _core.dtype(spec)
    except TesseraError as error:
        raise _core.error(error.code, error.message, error.help, place=here()) from None
    # One object for each plain dtype, so that `is` works across spellings.
    return _PLAIN.setdefault(str(parsed), parsed) if parsed.is_plain else parsed


def _numpy_name(spec: object) -> str:
    import numpy

    try:
        return numpy.dtype(spec).name  # type: ignore[call-overload]
    except TypeError:
        raise _core.error(
            "E_UNSUPPORTED_DTYPE", f"expected a dtype, got {spec!r}", 'write for example `ts.f32` or "bf16"', place=here()
        ) from None


def _numpy(of: DType) -> object:
    """NumPy's dtype of the same elements, `ml_dtypes`' among them; None for one with a policy, and for tf32, whose elements are f32."""
    known = _NUMPY.get(of.name) if of.is_plain else None
    if known is None and of.is_plain and of.name != "tf32":
        import ml_dtypes
        import numpy

        known = _NUMPY[of.name] = numpy.dtype(getattr(ml_dtypes, of.numpy_name, of.numpy_name))
    return known


_NUMPY: dict[str, object] = {}


def _dtype_of(self: DType) -> object:
    """NumPy's dtype of the same elements: by this attribute `numpy.dtype(ts.f32)` and `numpy.zeros(3, ts.bf16)` find it."""
    found = _numpy(self)
    if found is None:
        raise AttributeError(f"`{self}` is no dtype of NumPy's")
    return found


def _equal(self: DType, other: object) -> object:
    """As dtypes of NumPy's are equal to what names them: `x.dtype == numpy.float32` means the same where `x` is traced and where not."""
    if type(other) is DType:
        return _same(self, other)
    if isinstance(other, str) and _core.is_dtype_name(other):
        return _same(self, dtype(other))
    mine = _numpy(self)
    if mine is None or other is None:
        return False
    return mine is other or bool(mine == other)


def _hash(self: DType) -> int:
    mine = _numpy(self)
    return hash(str(self)) if mine is None else hash(mine)


_same = DType.__eq__
DType.__eq__ = _equal  # type: ignore[method-assign,assignment]
DType.__ne__ = lambda self, other: not _equal(self, other)  # type: ignore[method-assign,assignment]
DType.__hash__ = _hash  # type: ignore[method-assign]
DType.dtype = property(_dtype_of)  # type: ignore[attr-defined]
DType.kind = property(lambda self: self.dtype.kind, doc="NumPy's letter for the kind of numbers.")  # type: ignore[attr-defined]


def _text(value: DType | str) -> str:
    return str(value) if isinstance(value, DType) else value


def accum(dtype: DType | str) -> PolicyItem:
    """Sums are kept in ``dtype``: ``bf16 @ accum(fp32)``. ``"fp32_fast"`` is the unpromoted fp8 mode."""
    return _core.policy_item(f"accum({_text(dtype)})")


def compute(dtype: DType | str) -> PolicyItem:
    """Arithmetic on loaded values is done in ``dtype``."""
    return _core.policy_item(f"compute({_text(dtype)})")


def loss_scale(factor: float) -> PolicyItem:
    """The loss is multiplied by ``factor`` before backward, and gradients divided by it after."""
    return _core.policy_item(f"loss_scale({float(factor)!r})")


def round(mode: str) -> PolicyItem:
    """How stores round: ``"rne"``, ``"rtz"``, ``"up"``, ``"down"`` or ``"stochastic"``."""
    return _core.policy_item(f'round("{mode}")')


def scale(mode: str) -> PolicyItem:
    """How the scale of a scaled tensor is found: ``"amax_dynamic"`` or ``"delayed"``."""
    return _core.policy_item(f'scale("{mode}")')


#: Stores round up with the probability of the fraction. Used without parentheses.
stochastic_round: PolicyItem = _core.policy_item("stochastic_round")
#: Stores saturate; ``saturate(False)`` says that they do not.
saturate: PolicyItem = _core.policy_item("saturate")
#: Two 4-bit elements a byte, low index in the low nibble.
packed: PolicyItem = _core.policy_item("packed")

# One object under all its names; a test holds this list against the compiler's.
bool_ = i1 = dtype("bool")
i4 = int4 = dtype("i4")
i8 = int8 = dtype("i8")
i16 = int16 = dtype("i16")
i32 = int32 = dtype("i32")
i64 = int64 = dtype("i64")
u8 = uint8 = dtype("u8")
u16 = uint16 = dtype("u16")
u32 = uint32 = dtype("u32")
u64 = uint64 = dtype("u64")
f64 = fp64 = float64 = dtype("f64")
f32 = fp32 = float32 = dtype("f32")
tf32 = dtype("tf32")
f16 = fp16 = float16 = dtype("f16")
bf16 = bfloat16 = dtype("bf16")
fp8_e4m3 = f8_e4m3 = float8_e4m3 = float8_e4m3fn = dtype("fp8_e4m3")
fp8_e5m2 = f8_e5m2 = float8_e5m2 = dtype("fp8_e5m2")
fp6 = fp6_e3m2 = float6_e3m2fn = dtype("fp6_e3m2")
fp6_e2m3 = float6_e2m3fn = dtype("fp6_e2m3")
fp4 = fp4_e2m1 = float4_e2m1fn = dtype("fp4_e2m1")
e8m0 = float8_e8m0fnu = dtype("e8m0")
