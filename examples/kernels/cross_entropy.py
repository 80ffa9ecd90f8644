"""Cross entropy of logits with labels, and its gradient; the vocabulary is read in pieces of 256.

    python examples/kernels/cross_entropy.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def cross_entropy(
    logits: ts.Tensor["M", "V", ts.f32],
    labels: ts.Tensor["M", ts.int64],
    loss: ts.Out["M", ts.f32],
    grad: ts.Out["M", "V", ts.f32],
):
    row = ts.tile.program_id(0)
    largest = -math.inf
    total = 0.0
    for v in ts.tile.range(0, V, 256):
        t = ts.tile.bounds_mask(logits[row, v:v + 256], cols=V - v)
        new = ts.tile.maximum(largest, ts.tile.max(t))
        total = total * ts.tile.exp(largest - new) + ts.tile.sum(ts.tile.exp(t - new))
        largest = new
    label = labels[row]
    log_sum = largest + ts.tile.log(total)
    loss[row] = log_sum - logits[row, label]
    for v in ts.tile.range(0, V, 256):
        p = ts.tile.exp(logits[row, v:v + 256] - log_sum)
        grad[row, v:v + 256] = ts.tile.where(v + ts.tile.arange(256) == label, p - 1.0, p)
    return loss, grad


TOLERANCE = 2e-6

run = cross_entropy


def reference(logits, labels):
    x = logits.astype(np.float64)
    shifted = x - x.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    rows = np.arange(len(labels))
    grad = np.exp(log_p)
    grad[rows, labels] -= 1
    return -log_p[rows, labels], grad


def cases():
    rng = np.random.default_rng(0)
    for m, v in ((0, 5), (1, 1), (31, 10), (3, 256), (5, 257), (2, 5000)):
        yield 4 * rng.standard_normal((m, v), dtype=np.float32), rng.integers(0, v, m)


def main():
    check("cross_entropy", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
