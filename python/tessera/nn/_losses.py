"""Losses of pairs, of rare classes and of sequences without alignment, as compositions of primitives."""

from __future__ import annotations

from typing import Any

from .. import xp
from ..base.promotion import is_float
from ..trace import control, prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, fail, one
from ._functional import _reduced, _up, binary_cross_entropy, log_softmax

#: The logarithm of a weight that does not count: far below all others, and finite, so that differences of two are.
_NEVER = -1e30


def _rows(*arrays: tuple[Any, str]) -> list[Tracer]:
    """Arrays of one shape, [.., size]."""
    given = [_up(x)[0] for x, _ in arrays]
    if any(x.shape != given[0].shape or x.ndim < 1 for x in given):
        names, shapes = ", ".join(f"`{n}`" for _, n in arrays), ", ".join(p.show(x.shape) for x in given)
        help = "each row is compared with the same row of the others"
        raise fail("E_SHAPE_MISMATCH", f"expected {names} of one shape, got {shapes}", help)
    return given


def _distance(a: Tracer, b: Tracer) -> Tracer:
    """Between rows; the small number keeps its derivative finite where two are the same."""
    d = a - b
    return xp.sqrt(xp.sum(d * d, -1) + 1e-12)


@eager
def focal_loss(logits: Any, targets: Any, gamma: float = 2.0, alpha: float | None = None, *, reduction: str = "mean") -> Any:
    """`binary_cross_entropy` times ``(1 - p) ** gamma``, with ``p`` the probability of the right answer: what is learned already
    counts little. ``alpha`` weighs the answer 1, and ``1 - alpha`` the answer 0."""
    x, _ = _up(logits)
    t = p.cast(targets, x._dtype)
    each = binary_cross_entropy(x, t, reduction="none")
    # Of 1 - p directly: a difference would have no digits left where p is near 1.
    loss = -xp.expm1(-each)
    loss = (loss if gamma == 1.0 else loss**gamma if gamma else 1.0) * each
    if alpha is not None:
        loss = loss * (t * alpha + (1.0 - t) * (1.0 - alpha))
    return _reduced(loss, reduction)


@eager
def contrastive_loss(a: Any, b: Any, same: Any, margin: float = 1.0, *, reduction: str = "mean") -> Any:
    """Of rows ``a`` and ``b`` at a distance ``d``: ``d ** 2 / 2`` where they are the same, ``max(margin - d, 0) ** 2 / 2`` where not."""
    a, b = _rows((a, "a"), (b, "b"))
    d, s = _distance(a, b), p.cast(same, a._dtype)
    short = xp.maximum(margin - d, 0.0)
    return _reduced((s * d * d + (1.0 - s) * short * short) * 0.5, reduction)


@eager
def triplet_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, *, reduction: str = "mean") -> Any:
    """max(|anchor - positive| - |anchor - negative| + margin, 0) for each row."""
    a, b, c = _rows((anchor, "anchor"), (positive, "positive"), (negative, "negative"))
    return _reduced(xp.maximum(_distance(a, b) - _distance(a, c) + margin, 0.0), reduction)


@eager
def info_nce_loss(queries: Any, keys: Any, temperature: float = 0.1, *, reduction: str = "mean") -> Any:
    """The cross entropy of finding, among all ``keys`` of [rows, size], the one in the row of a query, by the cosine of their angle
    over ``temperature``."""
    q, k = _rows((queries, "queries"), (keys, "keys"))
    if q.ndim != 2:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected rows of [rows, size], got {p.show(q.shape)}",
            "reshape it: `x.reshape(-1, x.shape[-1])`",
        )
    if isinstance(temperature, (int, float)) and not temperature > 0:
        raise fail("E_ARGUMENT", f"expected `temperature` above 0, got {temperature}", "write a positive number, such as 0.07")
    q, k = (x * xp.rsqrt(xp.sum(x * x, -1, keepdims=True) + 1e-12) for x in (q, k))
    log_p = log_softmax(q @ k.T * (1.0 / temperature), -1)
    own = p.iota(log_p.shape, 0) == p.iota(log_p.shape, 1)
    return _reduced(-xp.sum(xp.where(own, log_p, 0.0), -1), reduction)


@eager
def ctc_loss(log_p: Any, labels: Any, lengths: Any = None, label_lengths: Any = None, *, blank: int = 0, reduction: str = "mean") -> Any:
    """Minus the logarithm of the probability of ``labels`` [batch, most labels] in ``log_p`` [batch, steps, classes], log
    probabilities: the sum over all alignments, where each label is held for some steps, with ``blank`` between and around. ``lengths`` and
    ``label_lengths`` say how many steps and labels of each row count. Infinite where there are too few steps."""
    x, _ = _up(log_p)
    labels = as_tracer(labels)
    if x.ndim != 3 or labels.ndim != 2 or labels.shape[0] != x.shape[0]:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"ctc_loss: expected log probabilities [batch, steps, classes] and labels [batch, most], got {p.show(x.shape)} and "
            f"{p.show(labels.shape)}", "add the axis of the batch with `x[None]`",
        )
    if is_float(labels._dtype):
        raise fail("E_TYPE", f"expected labels to be integers, got {labels._dtype}", "cast them: `labels.astype(ts.i32)`")
    (batch, steps, classes), most = x.shape, labels.shape[1]
    if isinstance(blank, int) and isinstance(classes, int) and not 0 <= blank < classes:
        raise fail("E_ARGUMENT", f"expected `blank` to be one of {classes} classes, got {blank}", "classes count from 0")
    labels = p.cast(labels, "i64")
    blanks = xp.full((batch, most), blank, dtype="i64")
    # Blank, label, blank, …, blank.
    said = xp.concat([p.reshape(xp.stack([blanks, labels], axis=-1), [batch, 2 * most]), blanks[:, :1] if most else
                      xp.full((batch, 1), blank, dtype="i64")], axis=1)  # fmt: skip
    places = 2 * most + 1
    # A blank between two labels may be left out where they differ.
    start = xp.zeros((batch, min(2, places)), dtype="bool")
    differ = xp.logical_and(said[:, 2:] != blank, said[:, 2:] != said[:, :-2]) if places > 2 else None
    skips = start if differ is None else xp.concat([start, differ], axis=1)
    index = p.broadcast_to(p.reshape(said, [batch, 1, places]), (batch, steps, places))
    # Impossible alignments get a very small probability, not zero: differences of infinities are NaN.
    heard = p.transpose(xp.maximum(xp.take_along_axis(x, index, -1, "promise_in_bounds"), _NEVER), [1, 0, 2])
    count = xp.full((batch,), steps, dtype="i64") if lengths is None else p.cast(lengths, "i64")
    labelled = xp.full((batch,), most, dtype="i64") if label_lengths is None else p.cast(label_lengths, "i64")

    def later(a: Any, by: int) -> Any:
        return xp.concat([xp.full((batch, min(by, places)), _NEVER, dtype=a._dtype), a[:, : max(places - by, 0)]], axis=1)

    def step(a: Any, given: Any) -> Any:
        now, at = given
        ways = [a, later(a, 1), xp.where(skips, later(a, 2), _NEVER)]
        top = one("stop_gradient", [xp.maximum(xp.maximum(ways[0], ways[1]), ways[2])])
        total = xp.log(xp.exp(ways[0] - top) + xp.exp(ways[1] - top) + xp.exp(ways[2] - top)) + top
        return xp.where(p.reshape(at < count, [batch, 1]), total + now, a), 0.0

    # The first step starts at the first or the second position.
    first = xp.where(p.iota((batch, places), 1) < 1, xp.zeros((batch, places), dtype=x._dtype), _NEVER)
    last, _ = control.scan(step, first, (heard, xp.arange(steps)))
    end = p.reshape(2 * labelled, [batch, 1])
    whole = xp.take_along_axis(last, end, 1, "promise_in_bounds")
    short = xp.where(end > 0, xp.take_along_axis(last, xp.maximum(end - 1, 0), 1, "promise_in_bounds"), _NEVER)
    loss = -p.reshape(xp.logaddexp(whole, short), [batch])
    return _reduced(xp.where(loss > -_NEVER / 2, float("inf"), loss), reduction)
