"""Element types under all their spellings, and the numeric policy items.

A type is a storage dtype with a policy: ``fp8_e4m3 @ accum(fp32) @ loss_scale(128.0)``.
"""

from __future__ import annotations

from . import _core
from ._core import DType, PolicyItem

_PLAIN: dict[str, DType] = {}


def dtype(spec: str | DType | type | object) -> DType:
    """The type that ``spec`` names: text such as ``"bf16 @accum(f32)"``, a dtype, or a NumPy dtype."""
    if isinstance(spec, DType):
        return spec
    if not isinstance(spec, str):
        spec = _numpy_name(spec)
    parsed = _core.dtype(spec)
    # One object for each plain dtype, so that `is` works across spellings.
    return _PLAIN.setdefault(str(parsed), parsed) if parsed.is_plain else parsed


def _numpy_name(spec: object) -> str:
    import numpy

    try:
        return numpy.dtype(spec).name  # type: ignore[call-overload]
    except TypeError:
        raise _core.error(
            "E_UNSUPPORTED_DTYPE", f"expected a dtype, got {spec!r}", 'write for example `ts.f32` or "bf16"'
        ) from None


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

POLICY_NAMES = ("accum", "compute", "loss_scale", "packed", "round", "saturate", "scale", "stochastic_round")
DTYPE_NAMES: tuple[str, ...] = tuple(_core.dtype_names())

globals().update({name: dtype(name) for name in DTYPE_NAMES if name != "bool"})
#: `bool` by a name that does not hide Python's own in this module; the package exports it as `bool`.
bool_ = dtype("bool")
