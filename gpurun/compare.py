"""Compares a result with a reference: whether it is within its error bound, and where the error is largest."""

import numpy as np

from .error_bounds import ROUNDING

_NAMES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "float8_e4m3fn": "fp8_e4m3",
          "float8_e5m2": "fp8_e5m2"}  # fmt: skip


class Mismatch(Exception):
    pass


def wide(x):
    return np.asarray(x).astype(np.float64)


def near(result, expected, bound, what):
    """The largest error as a fraction of what is allowed; raises `Mismatch` where it exceeds 1.

    `bound` is the error before the result is rounded to its dtype. With None, elements must be equal; any NaN equals any
    other, since only `strict` prescribes its bits."""
    result = np.asarray(result)
    if bound is None:
        return _equal(_one_nan(result), _one_nan(np.asarray(expected)), what)
    expected = np.asarray(expected, np.float64)
    if result.shape != expected.shape:
        raise Mismatch(f"{what}: expected shape {expected.shape}, got {result.shape}")
    half, least = ROUNDING.get(_NAMES.get(result.dtype.name, ""), (0.0, 0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = np.broadcast_to(bound + half * (np.abs(expected) + bound) + least, expected.shape)
        return _judge(wide(result), expected, allowed, what)


def within(result, expected, tolerance, what):
    """The same for the examples: absolute for values below 1, relative above."""
    result, expected = wide(result), wide(expected)
    if result.shape != expected.shape:
        raise Mismatch(f"{what}: expected shape {expected.shape}, got {result.shape}")
    return _judge(result, expected, tolerance * np.maximum(np.abs(np.nan_to_num(expected)), 1.0), what)


def _judge(result, expected, allowed, what):
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        same = (result == expected) | (np.isnan(result) & np.isnan(expected))  # infinities too
        error = np.where(same, 0.0, np.abs(result - expected))
        used = np.where(error == 0.0, 0.0, error / allowed)
    used = np.where(np.isnan(used), np.inf, used)
    if not used.size:
        return 0.0
    at = np.unravel_index(int(np.argmax(used)), used.shape)
    if used[at] > 1.0:
        count = int((used > 1.0).sum())
        place = tuple(int(i) for i in at)
        raise Mismatch(
            f"{what}: {count} of {used.size} elements of {result.shape}; the worst at {place}: got {result[at]:.9g}, right is "
            f"{expected[at]:.9g}, allowed {allowed[at]:.3g}"
        )
    return float(used[at])


def _equal(result, expected, what):
    if result.shape != expected.shape:
        raise Mismatch(f"{what}: expected shape {expected.shape}, got {result.shape}")
    if result.dtype != expected.dtype:
        raise Mismatch(f"{what}: expected {expected.dtype}, got {result.dtype}")
    if _bytes(result) == _bytes(expected):
        return 0.0
    bits = np.dtype(f"u{result.dtype.itemsize}") if result.dtype.itemsize in (1, 2, 4, 8) else np.dtype(np.uint8)
    got, right = (np.ascontiguousarray(a).reshape(-1).view(bits) for a in (result, expected))
    places = np.flatnonzero(got != right)
    first = int(places[0]) * bits.itemsize // result.dtype.itemsize
    at = tuple(int(i) for i in np.unravel_index(first, result.shape))
    raise Mismatch(
        f"{what}: {places.size} of {result.size} elements of {result.shape} differ; the first at {at}: got {result[at]} "
        f"({int(got[places[0]]):#x}), right is {expected[at]} ({int(right[places[0]]):#x})"
    )


def _one_nan(array):
    if array.dtype.kind in "iub":
        return array
    with np.errstate(invalid="ignore"):
        nan = array != array
    return np.where(nan, np.asarray(np.nan, array.dtype), array) if nan.any() else array


def _bytes(array):
    return np.ascontiguousarray(array).tobytes()


def same_bits(result, expected, what):
    return _equal(np.asarray(result), np.asarray(expected), what)
