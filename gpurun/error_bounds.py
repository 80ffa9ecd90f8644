"""Error bounds of results: rounding to a dtype, and accumulation of dot products."""

#: Half a unit in the last place of f32, relative.
U = 2.0**-24
#: Half a unit in the last place of each dtype, relative, and half its smallest number.
ROUNDING = {
    "f64": (2.0**-53, 0.0), "f32": (U, 2.0**-150), "bf16": (2.0**-8, 2.0**-134), "f16": (2.0**-11, 2.0**-25),
    "fp8_e4m3": (2.0**-4, 2.0**-10), "fp8_e5m2": (2.0**-3, 2.0**-17),
}  # fmt: skip


def loss(dtype, k, fast=False):
    """The error bound of a dot product of length `k` before rounding, relative to the sum of the magnitudes of its terms:
    the accumulation classes of docs/language.md, section 13."""
    if dtype.startswith("fp8"):
        return (k if fast else min(k, 128)) * 33 / 32 * 2.0**-13 + (k / 128 + 2) * U
    if dtype in ("int8", "uint8"):
        return 0.0
    return (2.0**-10 + 2.0**-22 if dtype == "tf32" else 0.0) + (k + 2) * U
