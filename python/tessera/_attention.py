"""Attention inside of traced functions: kernels of the library, forward and backward, compiled with the function.
What they compute is also written as a composition of primitives, which other transforms (forward mode, a second derivative,
batches) take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from . import _prim as p, xp
from ._custom import Fused
from ._kernel_call import call
from ._trace import Tracer, one, outermost

#: Elements that the kernels take, and the widest heads whose sums a group can hold.
_TAKEN = ("f16", "bf16", "f32")
_WIDEST = {2: 256, 4: 128}
_LOG2E = 1.4426950408889634
#: So many positions make kernels worth it on the host.
_LONG = 256


@dataclass(frozen=True)
class Asked:
    """What a call of attention asks for, besides its arrays. Query ``i`` sees the keys from ``i + lowest`` to ``i + highest``."""

    scale: float
    lowest: int | None
    highest: int | None


def refused(q: Tracer, k: Tracer, v: Tracer) -> str | None:
    """Why kernels cannot take these arrays of [batch, heads, positions, size], or should not; None where they do."""
    if not _on_device():
        # Where scores stay in the caches, products of whole matrices are better, and their units for narrow floats.
        if q._dtype != "f32" or min(q.shape[2], k.shape[2]) < _LONG:
            return f"on the host its kernels are for f32 and {_LONG} positions or more"
    kinds = {q._dtype, k._dtype, v._dtype}
    if len(kinds) > 1 or q._dtype not in _TAKEN:
        return f"its kernels take q, k and v of one dtype of {', '.join(_TAKEN)}, and not {', '.join(sorted(kinds))}"
    if not all(n > 0 for x in (q, k, v) for n in x.shape):
        return "an array is empty"
    if max(q.shape[-1], v.shape[-1]) > (most := _WIDEST[_sizes(q)]):
        return f"heads are wider than {most}"
    return None


def attend(q: Tracer, k: Tracer, v: Tracer, asked: Asked) -> tuple[Tracer, Tracer]:
    """The result and the logarithms of the sums, f32, by kernels."""
    rule = Fused(
        "attention", asked, lambda *a: _forward(*a, asked), lambda *a: list(plain(*a, asked)), lambda *a: _backward(*a, asked),
        lambda *a: _plain_backward(*a, asked),
    )  # fmt: skip
    out, lse = rule(q, k, v)
    return out, lse


def _on_device() -> bool:
    frame = outermost()
    return frame is not None and frame.on_device


def _sizes(x: Tracer) -> int:
    return 2 if x._dtype in ("f16", "bf16") else 4


def _forward(q: Tracer, k: Tracer, v: Tracer, asked: Asked) -> list[Tracer]:
    from .kernels import attention as kernels

    (B, H, Sq, D), DV = q.shape, v.shape[-1]
    edged = asked.lowest is not None or asked.highest is not None
    # The logarithms of the sums are kept: no generation of devices has tiles of its own for that.
    BM, BN = kernels.tiles(Sq, D, DV, _sizes(q), int(_on_device()), edged)
    made = call(
        kernels.forward, (), {
            "Q": q, "K": k, "V": v, "X": q, "Y": q, "Z": q, "W": q, "scale": asked.scale, "lowest": asked.lowest or 0,
            "highest": asked.highest or 0, "low": asked.lowest is not None, "high": asked.highest is not None, "keep": True,
            "positive": asked.scale > 0, "BM": BM, "BN": BN,
        }, None, {"O": ((B, H, Sq, DV), q._dtype), "LSE": ((B, H, Sq), "f32")},
    )  # fmt: skip
    return list(made)


def _backward(
    q: Tracer, k: Tracer, v: Tracer, out: Tracer, lse: Tracer, d_out: Tracer, d_lse: Tracer, asked: Asked
) -> list[Tracer]:
    from .kernels import attention_backward as kernels

    (_, H, Sq, D), (HK, Sk), DV = q.shape, k.shape[1:3], v.shape[-1]
    # What the softmax takes off each row; and no weights at all for a query that sees nothing.
    delta = xp.sum(p.cast(d_out, "f32") * p.cast(out, "f32"), -1) - d_lse
    lse = xp.where(lse == -math.inf, math.inf, lse * _LOG2E)
    given = {
        "Q": q, "K": k, "V": v, "DO": d_out, "LSE": lse, "DELTA": delta, "Z": q, "W": q, "scale": asked.scale,
        "lowest": asked.lowest or 0, "highest": asked.highest or 0, "low": asked.lowest is not None,
        "high": asked.highest is not None,
    }  # fmt: skip
    BM, BN, warps = kernels.tiles_of_keys(D, DV, _sizes(q)) if _on_device() else (64, 64, 0)
    dk, dv = call(kernels.keys, (), {**given, "shared": H // HK, "BM": BM, "BN": BN, "num_warps": warps}, None,
                  {"DK": (k.shape, k._dtype), "DV_": (v.shape, v._dtype)})  # fmt: skip
    BM, BN, warps = kernels.tiles_of_queries(Sq, D, DV, _sizes(q)) if _on_device() else (64, 64, 0)
    dq = call(kernels.queries, (), {**given, "BM": BM, "BN": BN, "num_warps": warps}, None, {"DQ": (q.shape, q._dtype)})
    return [dq, dk, dv]


def plain(q: Tracer, k: Tracer, v: Tracer, asked: Asked) -> tuple[Tracer, Tracer]:
    """The same of primitives."""
    share = q.shape[1] // k.shape[1]
    if share > 1:
        k, v = xp.repeat(k, share, 1), xp.repeat(v, share, 1)
    n, m = q.shape[-2], k.shape[-2]
    s = p.dot(q, k, ([3], [3]), ([0, 1], [0, 1]), out="f32") * asked.scale
    gap = p.iota((n, m), 1) - p.iota((n, m), 0)
    sides = [] if asked.lowest is None else [gap >= asked.lowest]
    sides += [] if asked.highest is None else [gap <= asked.highest]
    for side in sides:
        s = xp.where(p.broadcast_to(side, s.shape), s, -math.inf)
    top = one("stop_gradient", [p.reduce("max", s, -1, True)])
    top = xp.where(xp.isfinite(top), top, 0.0)
    e = xp.exp(s - top)
    total = p.reduce("sum", e, -1, True)
    seen = total > 0.0
    safe = xp.where(seen, total, 1.0)
    out = p.dot(p.cast(e / safe, q._dtype), v, ([3], [2]), ([0, 1], [0, 1]))
    lse = xp.where(seen, xp.log(safe) + top, -math.inf)
    return out, p.reshape(lse, lse.shape[:-1])


def _plain_backward(
    q: Tracer, k: Tracer, v: Tracer, out: Tracer, lse: Tracer, d_out: Tracer, d_lse: Tracer, asked: Asked
) -> list[Tracer]:
    from ._transforms import vjp

    _, pull = vjp(lambda *a: plain(*a, asked), q, k, v)
    return list(pull((d_out, d_lse)))


def told(reason: str) -> None:
    """Keeps why attention is a composition of primitives, for `explain`."""
    frame = outermost()
    note = f"attention is a composition of products and a softmax, for {reason}"
    if frame is not None and note not in frame.notes:
        frame.notes.append(note)


