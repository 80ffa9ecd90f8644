"""y = alpha * x + y, one element per lane.

    python examples/saxpy.py
"""

import numpy as np

import tessera as ts


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()  # the lane's index over the whole launch
    if i < n:  # n is the size in the annotation
        y[i] = alpha * x[i] + y[i]
    return y


def reference(x, y, alpha):
    return alpha * x.astype(np.float64) + y.astype(np.float64)


def main():
    rng = np.random.default_rng(0)
    for n in (1, 31, 1000, 4097):
        x, y = rng.standard_normal((2, n), dtype=np.float32)
        expected = reference(x, y, 1.5)
        result = saxpy(x, y, 1.5)
        assert result is y, "the array is updated in place"
        error = np.abs(y - expected).max()
        # One rounding of the product and one of the sum.
        assert error <= 2.0**-23 * (1.5 * np.abs(x) + np.abs(expected) + 1).max()
        print(f"saxpy  n={n:<5}  largest error {error:.1e}")


if __name__ == "__main__":
    main()
