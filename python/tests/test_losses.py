"""Losses in f64 against their formulas, with every parameter off its default and each reduction; `ctc_loss` against all alignments."""

import itertools
import math

import numpy as np
import pytest

import tessera as ts
from tessera import nn

RNG = np.random.default_rng(5)
X, T = RNG.normal(size=(4, 3)) * 2, RNG.uniform(size=(4, 3))
SMALL = np.array([0, 1, 1, 0])


def focal(gamma, alpha=None):
    p = 1 / (1 + np.exp(-X))
    each = -(T * np.log(p) + (1 - T) * np.log(1 - p))
    loss = (1 - np.exp(-each)) ** gamma * each
    return loss if alpha is None else loss * (T * alpha + (1 - T) * (1 - alpha))


def apart(a, b):
    return np.sqrt(((a - b) ** 2).sum(-1) + 1e-12)


A, B, C = RNG.normal(size=(3, 4, 3))


def contrastive(margin):
    d = apart(A, B)
    return np.where(SMALL, d**2, np.maximum(margin - d, 0) ** 2) / 2


def triplet(margin):
    return np.maximum(apart(A, B) - apart(A, C) + margin, 0)


def info(temperature):
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True)) for x in (A, B))
    s = q @ k.T / temperature
    return np.log(np.exp(s).sum(-1)) - np.diagonal(s)


CASES = {
    "focal": (lambda **k: nn.focal_loss(X, T, **k), focal(2.0)),
    "focal 0": (lambda **k: nn.focal_loss(X, T, 0.0, **k), focal(0.0)),
    "focal 1": (lambda **k: nn.focal_loss(X, T, 1.0, **k), focal(1.0)),
    "focal 0.5": (lambda **k: nn.focal_loss(X, T, 0.5, **k), focal(0.5)),
    "focal 3": (lambda **k: nn.focal_loss(X, T, gamma=3.0, **k), focal(3.0)),
    "focal alpha": (lambda **k: nn.focal_loss(X, T, 2.0, 0.25, **k), focal(2.0, 0.25)),
    "focal alpha 0": (lambda **k: nn.focal_loss(X, T, alpha=0.0, **k), focal(2.0, 0.0)),
    "focal alpha 1": (lambda **k: nn.focal_loss(X, T, alpha=1.0, gamma=0, **k), focal(0.0, 1.0)),
    "contrastive": (lambda **k: nn.contrastive_loss(A, B, SMALL, **k), contrastive(1.0)),
    "contrastive 5": (lambda **k: nn.contrastive_loss(A, B, SMALL, 5.0, **k), contrastive(5.0)),
    "contrastive bool": (lambda **k: nn.contrastive_loss(A, B, SMALL == 1, 3.0, **k), contrastive(3.0)),
    "triplet": (lambda **k: nn.triplet_loss(A, B, C, **k), triplet(1.0)),
    "triplet 0.2": (lambda **k: nn.triplet_loss(A, B, C, 0.2, **k), triplet(0.2)),
    "info_nce": (lambda **k: nn.info_nce_loss(A, B, **k), info(0.1)),
    "info_nce 2": (lambda **k: nn.info_nce_loss(A, B, 2.0, **k), info(2.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_losses(name):
    call, want = CASES[name]
    np.testing.assert_allclose(call(reduction="none"), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(call(reduction="sum"), want.sum(), rtol=1e-9)
    np.testing.assert_allclose(call(), want.mean(), rtol=1e-9)
    with pytest.raises(ts.TesseraError, match='"mean", "sum" or "none"'):
        call(reduction="all")


def test_a_focal_loss_has_digits_where_nearly_all_is_learned():
    # (1 - p)² × -log p with 1 - p = e^-40.
    got = float(nn.focal_loss(np.array([40.0]), np.array([1.0])))
    assert got == pytest.approx(math.exp(-40) ** 3, rel=1e-6)
    assert float(nn.focal_loss(ts.array([40.0], "f32"), np.array([0.0], np.float32))) == pytest.approx(40.0)


def test_rows_may_be_of_any_rank():
    for shape in ((3,), (2, 2, 3)):
        a, b, c = RNG.normal(size=(3, *shape))
        np.testing.assert_allclose(nn.triplet_loss(a, b, c, reduction="none"), np.maximum(apart(a, b) - apart(a, c) + 1, 0), rtol=1e-9)
    # The blank is class 0 where none is named.
    log_p = np.log(np.full((1, 3, 3), 1 / 3))
    assert float(nn.ctc_loss(log_p, np.array([[1, 2]]))) == float(nn.ctc_loss(log_p, np.array([[1, 2]]), blank=0))
    uneven = np.log(np.array([[[0.5, 0.3, 0.2]] * 3]))
    assert float(nn.ctc_loss(uneven, np.array([[1]]))) == pytest.approx(ctc(uneven[0], [1], 0))


def test_distances_have_slopes_where_rows_are_the_same():
    for f in (lambda a: nn.contrastive_loss(a, A, SMALL), lambda a: nn.triplet_loss(a, A, B)):
        assert np.isfinite(ts.grad(f)(A)).all()


def test_shapes_that_do_not_fit_are_refused():
    for call in (lambda: nn.contrastive_loss(A, B[:2], SMALL), lambda: nn.triplet_loss(A, B, C[:, :1]), lambda: nn.contrastive_loss(1.0, 2.0, 1)):
        with pytest.raises(ts.TesseraError, match="of one shape"):
            call()
    with pytest.raises(ts.TesseraError, match=r"expected rows of \[rows, size\]"):
        nn.info_nce_loss(A[None], B[None])
    for temperature in (0, 0.0, -1.0):
        with pytest.raises(ts.TesseraError, match="`temperature` above 0"):
            nn.info_nce_loss(A, B, temperature)
    log_p = np.zeros((2, 4, 3))
    for bad in (dict(labels=np.zeros((3, 2), int)), dict(labels=np.zeros(2, int)), dict(labels=np.zeros((2, 1, 1), int))):
        with pytest.raises(ts.TesseraError, match="ctc_loss: expected log probabilities"):
            nn.ctc_loss(log_p, **bad)
    with pytest.raises(ts.TesseraError, match="ctc_loss: expected log probabilities"):
        nn.ctc_loss(log_p[0], np.zeros((2, 1), int))
    with pytest.raises(ts.TesseraError, match="expected labels to be integers"):
        nn.ctc_loss(log_p, np.zeros((2, 1)))
    for blank in (-1, 3):
        with pytest.raises(ts.TesseraError, match="expected `blank` to be one of 3 classes"):
            nn.ctc_loss(log_p, np.zeros((2, 1), int), blank=blank)
    nn.ctc_loss(log_p, np.zeros((2, 1), int), blank=2)


def said(path, blank):
    return [c for c, _ in itertools.groupby(path) if c != blank]


def ctc(log_p, labels, blank):
    """The sum over all alignments of the labels."""
    scores = [sum(log_p[t, c] for t, c in enumerate(path)) for path in itertools.product(range(log_p.shape[1]), repeat=log_p.shape[0])
            if said(path, blank) == list(labels)]  # fmt: skip
    return -np.logaddexp.reduce(scores) if scores else math.inf


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_is_the_sum_over_all_alignments(blank):
    logits = RNG.normal(size=(7, 5, 3))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    a, b = [c for c in range(3) if c != blank]
    labels = np.array([[a, b, a], [a, a, b], [a, a, a], [b, a, b], [a, b, b], [b, b, a], [a, b, a]])
    lengths, counts = np.array([5, 5, 5, 3, 4, 2, 1]), np.array([3, 3, 3, 2, 1, 0, 2])
    want = [ctc(log_p[i, : lengths[i]], labels[i, : counts[i]], blank) for i in range(7)]
    got = nn.ctc_loss(log_p, labels, lengths, counts, blank=blank, reduction="none")
    np.testing.assert_allclose(got, want, rtol=1e-9)
    assert math.isinf(want[6])
    whole = [ctc(log_p[i], labels[i], blank) for i in range(7)]
    np.testing.assert_allclose(nn.ctc_loss(log_p, labels, blank=blank, reduction="none"), whole, rtol=1e-9)
    np.testing.assert_allclose(nn.ctc_loss(log_p[:2], labels[:2], blank=blank), np.mean(whole[:2]), rtol=1e-9)
    none = nn.ctc_loss(log_p, labels[:, :0], blank=blank, reduction="none")
    np.testing.assert_allclose(none, -log_p[:, :, blank].sum(1), rtol=1e-9)
    one = nn.ctc_loss(log_p, labels[:, :1], blank=blank, reduction="none")
    np.testing.assert_allclose(one, [ctc(log_p[i], labels[i, :1], blank) for i in range(7)], rtol=1e-9)
    # Classes that never come, which are infinitely far.
    sure = np.log(np.eye(3)[np.array([[a, a, b, blank, b]])] + 0.0, where=np.eye(3)[np.array([[a, a, b, blank, b]])] > 0,
                  out=np.full((1, 5, 3), -np.inf))  # fmt: skip
    assert float(nn.ctc_loss(sure, np.array([[a, b, b]]), blank=blank)) == pytest.approx(0.0, abs=1e-12)
    assert math.isinf(float(nn.ctc_loss(sure, np.array([[b, b, b]]), blank=blank)))
