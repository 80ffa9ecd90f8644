"""Checks of the operands of elementwise functions: errors in the words of the user, with what to write instead."""

from __future__ import annotations

from ..base.caller import fail
from ..base.promotion import kind

#: How a user writes the functions of Graph IR that take not every dtype.
_WRITTEN = {
    "add": "+", "sub": "-", "mul": "*", "neg": "-", "floordiv": "//", "mod": "%", "and": "&", "or": "|", "xor": "^", "not": "~",
    "shl": "<<", "shr": ">>", "maximum": "maximum", "minimum": "minimum", "abs": "abs", "sign": "sign", "fma": "fma",
}  # fmt: skip
#: Those that take integers, or integers and bools; all others here take numbers.
_BITS = {"and", "or", "xor", "not"}
_SHIFTS = {"shl", "shr"}
#: What is meant of bools, mostly.
_OF_BOOLS = {"add": "`a | b`", "maximum": "`a | b`", "mul": "`a & b`", "minimum": "`a & b`", "sub": "`a ^ b`", "neg": "`~a`"}


def check(fn: str, dtype: str) -> None:
    """Refuses elements that a function does not take."""
    written = _WRITTEN.get(fn)
    if written is None:
        return
    if fn in _BITS:
        if kind(dtype) == 2:
            raise fail(
                "E_TYPE",
                f"expected integers or bools for `{written}`, got {dtype}",
                f"compare first, such as `(x > 0) {written} (y > 0)`, or convert: `x.astype(ts.i32)`" if fn != "not" else
                "compare first, such as `~(x > 0)`, or convert: `x.astype(ts.i32)`",
            )  # fmt: skip
    elif fn in _SHIFTS:
        if kind(dtype) != 1:
            raise fail("E_TYPE", f"expected integers for `{written}`, got {dtype}", "convert them: `x.astype(ts.i32)`")
    elif dtype == "bool":
        meant = f"write {_OF_BOOLS[fn]}, or convert them" if fn in _OF_BOOLS else "convert them"
        raise fail("E_TYPE", f"expected numbers for `{written}`, got bools", f"{meant}: `a.astype(ts.i32)`")


def check_fits(number: int, dtype: str) -> None:
    """Refuses a whole number that a dtype of integers does not hold."""
    bits, unsigned = int(dtype[1:]), dtype.startswith("u")
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if low <= number <= high:
        return
    wider = next((w for w in ("i16", "i32", "i64", "u64") if _holds(number, w)), None)
    raise fail(
        "E_TYPE",
        f"expected a number that {dtype} holds, {low} to {high}, got {number}",
        f"use a dtype that holds it: `x.astype(ts.{wider or 'f32'})`",
    )


def _holds(number: int, dtype: str) -> bool:
    bits = int(dtype[1:])
    return 0 <= number < 1 << bits if dtype.startswith("u") else -(1 << bits - 1) <= number < 1 << bits - 1
