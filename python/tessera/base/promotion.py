"""Type promotion: the dtype of an operation on two operands.

Python's numbers are weak: they take the dtype of the array beside them, within its kind. Floats win over integers and keep
their width (``i32`` with ``f32`` is ``f32``); of two floats the wider wins, ``f16`` with ``bf16`` is ``f32``; integers promote
as in NumPy; the small storage floats promote only with themselves and wider floats."""

from __future__ import annotations

from .. import _core

_INTS = {"i4": (1, 4), "i8": (1, 8), "i16": (1, 16), "i32": (1, 32), "i64": (1, 64),
         "u8": (0, 8), "u16": (0, 16), "u32": (0, 32), "u64": (0, 64)}  # fmt: skip
_FLOATS = {"e8m0": 8, "fp4_e2m1": 4, "fp6_e3m2": 6, "fp6_e2m3": 6, "fp8_e4m3": 8, "fp8_e5m2": 8, "f16": 16, "bf16": 16,
           "tf32": 32, "f32": 32, "f64": 64}  # fmt: skip


def kind(name: str) -> int:
    """0 bool, 1 integer, 2 float."""
    return 0 if name == "bool" else 1 if name in _INTS else 2


def is_float(name: str) -> bool:
    return name in _FLOATS


def promote(a: str, b: str) -> str:
    """The common dtype of strong operands of these dtypes."""
    if a == b:
        return a
    ka, kb = kind(a), kind(b)
    if ka != kb:
        return a if ka > kb else b
    if ka == 2:
        wa, wb = _FLOATS[a], _FLOATS[b]
        if wa == wb:
            return "f32"
        return a if wa > wb else b
    (sa, wa), (sb, wb) = _INTS[a], _INTS[b]
    if sa == sb:
        return a if wa >= wb else b
    signed, unsigned = (wa, wb) if sa else (wb, wa)
    if signed > unsigned:
        return f"i{signed}"
    if unsigned >= 64:
        raise _core.error(
            "E_TYPE", f"expected integers that one dtype holds, got {a} and {b}", "convert one of them with `.astype`"
        )
    return f"i{unsigned * 2}"


class Weak(str):
    """The dtype name of a weak value: values made in this dtype are weak too."""

    __slots__ = ()


def promote_pair(a: tuple[str, bool], b: tuple[str, bool]) -> tuple[str, bool]:
    """Dtype and weakness of ``a`` with ``b``, each a dtype and whether it is weak."""
    (da, wa), (db, wb) = a, b
    if wa == wb:
        return (Weak if wa else str)(promote(da, db)), wa
    strong, weak = (db, da) if wa else (da, db)
    if kind(strong) >= kind(weak):
        return strong, False
    # A weak float beside integers: the default float, or the weak number's own kind.
    return ("f32" if kind(weak) == 2 else "i64" if kind(weak) == 1 else weak), False
