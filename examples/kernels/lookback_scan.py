"""A running sum of a long vector in one pass: decoupled look-back.

Each group takes a ticket: groups with lower tickets have started. It publishes the sum of its block. Then it looks back over
the published sums until it finds a block whose running sum is known.

    python examples/kernels/lookback_scan.py
"""

import numpy as np

import tessera as ts
from gallery import check

BLOCK = 256
NOTHING, TOTAL, RUNNING = 0, 1, 2  # what a block has published


@ts.kernel
def scan(
    x: ts.Tensor["n", ts.int32],
    y: ts.Out["n", ts.int32],
    ticket: ts.Tensor[1, ts.int32],
    state: ts.Tensor["blocks", ts.int32],
    total: ts.Tensor["blocks", ts.int32],
    running: ts.Tensor["blocks", ts.int32],
):
    ts.tile.grid(blocks)
    block = ts.tile.atomic_add(ticket[0], 1)
    start = block * BLOCK
    t = x[start : start + BLOCK]
    own = ts.tile.sum(t)
    before = 0
    if block > 0:
        total[block] = own
        ts.tile.atomic_exchange(state[block], TOTAL, order="release")
        back = block - 1
        known = NOTHING
        while known != RUNNING:
            known = ts.tile.atomic_add(state[back], 0, order="acquire")
            if known == TOTAL:
                before += total[back]
                back -= 1
        before += running[back]
    running[block] = before + own
    ts.tile.atomic_exchange(state[block], RUNNING, order="release")
    y[start : start + BLOCK] = before + ts.tile.cumsum(t)
    return y


TOLERANCE = 0.0


def run(x):
    blocks = ts.cdiv(x.shape[0], BLOCK)
    return scan(x, ticket=np.zeros(1, np.int32), **{name: np.zeros(blocks, np.int32) for name in ("state", "total", "running")})


def reference(x):
    return np.cumsum(x, dtype=np.int32)


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 255, 256, 257, 1000, 20000):
        yield (rng.integers(-1000, 1000, n, dtype=np.int32),)


def main():
    check("lookback_scan", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
