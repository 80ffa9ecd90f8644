"""The kernel that ``tessera doctor`` runs."""

import tessera as ts


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        y[i] = alpha * x[i] + y[i]
    return y
