"""Sparse matrix times vector in CSR form: one row for each lane, and one row for each group.

    python examples/kernels/spmv_csr.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def spmv_lane(
    starts: ts.Tensor["P", ts.int32],  # P = M + 1
    columns: ts.Tensor["nnz", ts.int32],
    values: ts.Tensor["nnz", ts.f32],
    x: ts.Tensor["N", ts.f32],
    y: ts.Tensor["M", ts.f32],
):
    i = ts.tile.linear_id()
    if i < M:
        total = 0.0
        for k in range(starts[i], starts[i + 1]):  # each lane has its own bounds
            total += values[k] * x[columns[k]]
        y[i] = total
    return y


@ts.kernel
def spmv_group(
    starts: ts.Tensor["P", ts.int32],  # P = M + 1
    columns: ts.Tensor["nnz", ts.int32],
    values: ts.Tensor["nnz", ts.f32],
    x: ts.Tensor["N", ts.f32],
    y: ts.Tensor["M", ts.f32],
):
    row = ts.tile.program_id(0)
    end = starts[row + 1]
    total = 0.0
    for k in ts.tile.range(starts[row], end, 32):
        products = values[k:k + 32] * x[columns[k:k + 32]]  # may read into the next row
        total += ts.tile.sum(ts.tile.where(k + ts.tile.arange(32) < end, products, 0.0))
    y[row] = total
    return y


TOLERANCE = 5e-6


def run(starts, columns, values, x):
    rows = starts.size - 1
    return (
        spmv_lane(starts, columns, values, x, np.zeros(rows, np.float32)),
        spmv_group(starts, columns, values, x, np.zeros(rows, np.float32)),
    )


def reference(starts, columns, values, x):
    terms = values.astype(np.float64) * x.astype(np.float64)[columns]
    y = np.array([terms[a:b].sum() for a, b in zip(starts[:-1], starts[1:])])
    return y, y


def cases():
    rng = np.random.default_rng(0)
    for m, n, density in ((1, 1, 1.0), (31, 64, 0.1), (65, 31, 0.5), (20, 1000, 0.2), (7, 5, 0.0)):
        dense = rng.standard_normal((m, n), dtype=np.float32) * (rng.random((m, n)) < density)
        rows, columns = np.nonzero(dense)
        starts = np.searchsorted(rows, np.arange(m + 1)).astype(np.int32)
        yield starts, columns.astype(np.int32), dense[rows, columns], rng.standard_normal(n, dtype=np.float32)


def main():
    check("spmv_csr", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
