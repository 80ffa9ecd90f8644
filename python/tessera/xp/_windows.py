"""Reductions over sliding windows."""

from __future__ import annotations

from typing import Any

from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, fail, one
from . import _elementwise as e
from ._statistics import _highest, _lowest

_FOLDS = ("sum", "max", "min", "prod")


@eager
def reduce_window(operand: Any, init_value: Any, computation: Any, window_dimensions: Any, window_strides: Any = None,
                  padding: Any = "VALID", base_dilation: Any = None, window_dilation: Any = None) -> Any:  # fmt: skip
    """A reduction of each sliding window over all axes. ``computation`` is ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, or the function
    of `xp` of two values; ``padding`` is ``"VALID"``, ``"SAME"`` or ``(before, after)`` for each axis; elements that it adds do not
    count, ``init_value`` counts once in each window."""
    x = as_tracer(operand)
    op = _fold_of(computation)
    sizes = _per_axis(window_dimensions, x.ndim, "window_dimensions")
    strides = _per_axis(1 if window_strides is None else window_strides, x.ndim, "window_strides")
    spread = _per_axis(1 if window_dilation is None else window_dilation, x.ndim, "window_dilation")
    holes = _per_axis(1 if base_dilation is None else base_dilation, x.ndim, "base_dilation")
    extents = [(d - 1) * h + 1 if d else 0 for d, h in zip(x.shape, holes, strict=True)]
    reach = [(s - 1) * w + 1 for s, w in zip(sizes, spread, strict=True)]
    if isinstance(padding, str):
        if padding.upper() not in ("VALID", "SAME"):
            raise fail("E_ARGUMENT", f'reduce_window: expected `padding` to be "VALID", "SAME" or pairs, got {padding!r}', "write such as `[(0, 0), (1, 1)]`")
        wanted = [max((-(-n // s) - 1) * s + r - n, 0) if padding.upper() == "SAME" else 0 for n, s, r in zip(extents, strides, reach, strict=True)]
        pairs = [(w // 2, w - w // 2) for w in wanted]
    else:
        pairs = [(int(a), int(b)) for a, b in padding]
    lo, hi = [a for a, _ in pairs], [b for _, b in pairs]
    plain = isinstance(init_value, (int, float)) and _is_identity(op, init_value, x._dtype)
    if any(h > 1 for h in holes) or any(v < 0 for v in (*lo, *hi)):
        # The window's own padding stands around only.
        x = p.pad(x, lo, hi, [h - 1 for h in holes], value=_start(op, x._dtype))
        lo, hi = [0] * x.ndim, [0] * x.ndim
    attrs = {"op": op, "window": sizes, "strides": strides, "dilate": spread, "lo": lo, "hi": hi}
    made = one("window_reduce", [x], attrs)
    if plain:
        return made
    return p.ew({"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[op], made, p.cast(init_value, x._dtype))


def _start(op: str, dtype: str) -> Any:
    return {"sum": 0, "prod": 1, "max": _lowest(dtype), "min": _highest(dtype)}[op]


def _is_identity(op: str, value: Any, dtype: str) -> bool:
    return bool(value == _start(op, dtype))


def _fold_of(computation: Any) -> str:
    known = {e.add: "sum", e.multiply: "prod", e.maximum: "max", e.minimum: "min"}
    found = computation if isinstance(computation, str) else known.get(computation)
    found = {"add": "sum", "mul": "prod", "multiply": "prod", "maximum": "max", "minimum": "min"}.get(found, found)  # type: ignore[arg-type]
    if found not in _FOLDS:
        raise fail(
            "E_UNSUPPORTED",
            f"reduce_window: expected a sum, product, maximum or minimum, got {getattr(computation, '__name__', computation)!r}",
            'write `"sum"`, `"max"`, `"min"` or `"prod"`, or `xp.add`, `xp.maximum`, `xp.minimum` or `xp.multiply`',
        )
    return found


def _per_axis(value: Any, rank: int, name: str) -> list[int]:
    out = [value] * rank if isinstance(value, int) else [int(v) for v in value]
    if len(out) != rank:
        raise fail("E_SHAPE_MISMATCH", f"reduce_window: expected {rank} numbers in `{name}`, got {len(out)}", "give one for each axis")
    return out
