"""Embedding lookup: row ids[i] of a table for each i; an id outside the table gives a row of zeros.

    python examples/kernels/embedding.py
"""

import numpy as np

import tessera as ts
from gallery import check

BI, BD = 16, 64


@ts.kernel
def embedding(table: ts.Tensor["V", "D", ts.bf16], ids: ts.Tensor["n", ts.int64], y: ts.Out["n", "D", ts.bf16]):
    i = ts.tile.program_id(0) * BI
    d = ts.tile.program_id(1) * BD
    rows = ids[i:i + BI]
    columns = d + ts.tile.arange(BD)
    y[i:i + BI, d:d + BD] = ts.tile.load(table, (rows[:, None], columns[None, :]), other=0.0)
    return y


TOLERANCE = 0.0

run = embedding


def reference(table, ids):
    inside = (ids >= 0) & (ids < len(table))
    return np.where(inside[:, None], table[np.where(inside, ids, 0)].astype(np.float64), 0.0)


def cases():
    rng = np.random.default_rng(0)
    for v, d, n in ((3, 4, 0), (1, 1, 1), (10, 31, 64), (1000, 65, 17), (7, 128, 31)):
        ids = rng.integers(0, v, n)
        ids[n // 2:n // 2 + 1] = v  # one beyond the end
        yield ts.array(rng.standard_normal((v, d)), "bf16"), ids


def main():
    check("embedding", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
