"""Attention inside traced functions: library kernels, forward and backward, compiled with the function. The same computation is
also written as a composition of primitives, for the other transforms: forward mode, second derivatives and batching."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .. import xp
from ..base.errors import TesseraError
from ..base.promotion import is_float
from ..kernel.func import Func
from ..kernel.traced_call import call, for_sizes
from ..trace import prim as p
from ..trace.tracer import Tracer, one, outermost
from ..transforms.custom_rules import Fused
from ..transforms.derivatives import vjp

#: Dtypes that the kernels take, and the widest heads with an accumulator that fits in registers, by bytes of an element.
_TAKEN = ("f16", "bf16", "f32")
_WIDEST = {2: 256, 4: 128}
_LOG2E = 1.4426950408889634
#: On the host, kernels are worth it from this many positions on.
_LONG = 256


@dataclass(frozen=True)
class Options:
    """The options of a call of attention. Query ``i`` sees the keys from ``i + lowest`` to ``i + highest``. ``changes`` and ``masks``
    count the arrays that ``scores`` and ``mask`` read, -1 without the function; those arrays follow q, k and v in this order."""

    scale: float
    lowest: int | None
    highest: int | None
    scores: Func | None = None
    mask: Func | None = None
    changes: int = -1
    masks: int = -1
    #: Whether the online softmax may rescale lazily; see `ts.op.flash_attention`.
    free: bool = True

    @property
    def seen(self) -> Any:
        from ..kernels.attention_plan import Sight

        return Sight(self.lowest, self.highest)

    def functions(self, arrays: tuple[Tracer, ...]) -> tuple[Any, Any]:
        """``scores`` and ``mask`` as kernels take them, with the arrays that they read."""
        from ..kernels.functions import Function

        first = 3 + max(self.changes, 0)
        return Function.filled(self.scores, arrays[3:first], 2, arrays[0]), Function.filled(self.mask, arrays[first:], 2, arrays[0])


def refused(q: Tracer, k: Tracer, v: Tracer) -> str | None:
    """Why kernels cannot take these arrays of [batch, heads, positions, size], or should not; None where they do."""
    if not _on_device():
        # Where scores fit in the caches, matmuls of whole matrices are faster, and so are their units for narrow floats.
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


def unlike(options: Options, arrays: Sequence[Tracer], q: Tracer) -> str | None:
    """Why ``score_mod`` has no derivative inside the kernels; None where it has one, or where there is no function."""
    from ..kernels import attention_backward as kernels
    from ..kernels.functions import Function

    if options.scores is None:
        return None
    # A placeholder: only its shape and dtype are used.
    s: Any = SimpleNamespace(shape=q.shape[-2:], _dtype="f32")
    kernel, given, _ = kernels.derived.apart((s, s, Function.filled(options.scores, arrays, 2, q)), {})
    values = {name: value for (name, kind, *_), value in zip(kernel.spec.params, given) if kind == "tensor"}
    fixed = {name: value for (name, *_), value in zip(kernel.spec.params, given) if name not in values}
    sizes = {"M": s.shape[0], "N": s.shape[1]}
    try:
        for_sizes(kernel, sizes, values, fixed, None)
    except TesseraError as error:
        if error.code != "E_UNSUPPORTED":
            raise
        return f"the derivative of `{options.scores.name}`: {error.message}"
    return None


def attend(arrays: tuple[Tracer, ...], options: Options) -> tuple[Tracer, Tracer]:
    """The result and the logsumexp in f32, by kernels: of q, k, v and the arrays that functions of the caller read."""
    first = 3 + max(options.changes, 0)
    # Arrays that a mask reads have no derivative.
    arrays = (*arrays[:first], *(one("stop_gradient", [x]) if is_float(x._dtype) else x for x in arrays[first:]))
    moving = tuple(i for i in range(3, len(arrays)) if is_float(arrays[i]._dtype))
    if options.scores is not None and any(i < first for i in moving):
        noted(f"where the derivative by an array that `{options.scores.name}` reads is requested, attention is a composition of matmuls "
              "and a softmax: its kernels have only the derivative by the scores")  # fmt: skip
    rule = Fused(
        "attention", options, lambda *a: _forward(a, options), lambda *a: list(plain(a, options)), lambda *a: _backward(a, options),
        lambda *a: _plain_backward(a, options), moving,
    )  # fmt: skip
    out, lse = rule(*arrays)
    return out, lse


def _machine() -> Any:
    """The machine that the function is made for."""
    from ..kernels import machine

    return machine.gpu() if _on_device() else machine.HOST


def _on_device() -> bool:
    frame = outermost()
    return frame is not None and frame.on_device


def _sizes(x: Tracer) -> int:
    return 2 if x._dtype in ("f16", "bf16") else 4


def widened(q: Tracer, k: Tracer, v: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Heads padded with zeros to the multiple that tensor cores need, forward and backward."""
    from ..kernels.attention_plan import unit

    by = unit(q.shape[-1], v.shape[-1], _sizes(q), _machine())

    def wide(x: Tracer) -> Tracer:
        return p.pad(x, [0] * 4, [0, 0, 0, -x.shape[-1] % by]) if by and x.shape[-1] % by else x

    return wide(q), wide(k), wide(v)


def _forward(arrays: tuple[Tracer, ...], options: Options) -> list[Tracer]:
    from ..kernels import attention as kernels, attention_plan as plan

    q, k, v = arrays[:3]
    (B, H, Sq, D), DV = q.shape, v.shape[-1]
    # The logsumexp is stored: there are no tiles for a particular GPU generation in that case.
    seen = options.seen
    BM, BN = plan.tiles(Sq, D, DV, _sizes(q), _machine(), seen.edges, low=options.lowest is not None, units=not plan.in_order())
    how = kernels.Options(BM, BN, True, options.scale >= kernels.SMALLEST, options.free)
    given = (kernels.Heads(q, k, v, None, None), *options.functions(arrays), options.scale, seen.span, how)
    made = call(kernels.forward, given, {}, None, {"x.O": ((B, H, Sq, DV), q._dtype), "x.LSE": ((B, H, Sq), "f32")})
    return list(made)


def _backward(kept: tuple[Tracer, ...], options: Options) -> list[Tracer]:
    """The cotangents of q, k and v, from the arguments, the results and their cotangents."""
    from ..kernels import attention_backward as kernels

    arrays, (out, lse, d_out, d_lse) = kept[:-4], kept[-4:]
    q, k, v = arrays[:3]
    (_, H, Sq, D), HK, DV = q.shape, k.shape[1], v.shape[-1]
    # `delta` of the module `attention_backward`; and zero probabilities for a query that sees nothing.
    delta = xp.sum(p.cast(d_out, "f32") * p.cast(out, "f32"), -1) - d_lse
    lse = xp.where(lse == -math.inf, math.inf, lse * _LOG2E)
    saved, span = kernels.Saved(q, k, v, d_out, lse, delta), options.seen.span
    rest = (*options.functions(arrays), kernels.Scores(options.scale, span.lowest, span.highest, span.low, span.high))
    blocks = kernels.Blocks(*kernels.tiles_of_keys(D, DV, _sizes(q)) if _on_device() else (64, 64, 0))
    dk, dv = call(kernels.keys, (saved, None, None, *rest, blocks, H // HK), {}, None,
                  {"DK": (k.shape, k._dtype), "DV_": (v.shape, v._dtype)})  # fmt: skip
    blocks = kernels.Blocks(*kernels.tiles_of_queries(Sq, D, DV, _sizes(q)) if _on_device() else (64, 64, 0))
    dq = call(kernels.queries, (saved, None, *rest, blocks), {}, None, {"DQ": (q.shape, q._dtype)})
    return [dq, dk, dv]


def plain(arrays: tuple[Tracer, ...], options: Options) -> tuple[Tracer, Tracer]:
    """The same by primitives; functions of the caller are kernels on scores in memory."""
    q, k, v = arrays[:3]
    changes = max(options.changes, 0)
    share = q.shape[1] // k.shape[1]
    if share > 1:
        k, v = xp.repeat(k, share, 1), xp.repeat(v, share, 1)
    s = p.dot(q, k, ([3], [3]), ([0, 1], [0, 1]), out="f32") * options.scale
    if options.scores is not None:
        s = changed(s, options.scores, arrays[3 : 3 + changes])
    keep = inside(q.shape[-2], k.shape[-2], options.lowest, options.highest)
    if keep is not None:
        s = xp.where(p.broadcast_to(keep, s.shape), s, -math.inf)
    if options.mask is not None:
        s = masked(s, options.mask, arrays[3 + changes :])
    top = one("stop_gradient", [p.reduce("max", s, -1, True)])
    top = xp.where(xp.isfinite(top), top, 0.0)
    e = xp.exp(s - top)
    total = p.reduce("sum", e, -1, True)
    seen = total > 0.0
    safe = xp.where(seen, total, 1.0)
    out = p.dot(p.cast(e / safe, q._dtype), v, ([3], [2]), ([0, 1], [0, 1]))
    lse = xp.where(seen, xp.log(safe) + top, -math.inf)
    return out, p.reshape(lse, lse.shape[:-1])


def inside(n: int, m: int, lowest: int | None, highest: int | None) -> Tracer | None:
    """Which of ``m`` keys each of ``n`` queries sees; None for all."""
    if lowest is None and highest is None:
        return None
    gap = p.iota((n, m), 1) - p.iota((n, m), 0)
    sides = [] if lowest is None else [gap >= lowest]
    sides += [] if highest is None else [gap <= highest]
    return sides[0] if len(sides) == 1 else xp.logical_and(*sides)


def changed(s: Tracer, function: Func, arrays: Sequence[Tracer]) -> Tracer:
    """Scores in memory, changed by a function of tiles: a kernel, which the compiler differentiates where it can."""
    from ..kernels import attention as kernels

    return call(kernels.apply_scores, (s, None, _given(function, arrays, s)), {}, None, {"T": (s.shape, s._dtype)})


def masked(s: Tracer, function: Func, arrays: Sequence[Tracer]) -> Tracer:
    """Scores in memory, -inf where a function of tiles says so."""
    from ..kernels import attention as kernels

    return call(kernels.apply_mask, (s, None, _given(function, arrays, s)), {}, None, {"T": (s.shape, s._dtype)})


def _given(function: Func, arrays: Sequence[Tracer], s: Tracer) -> Any:
    from ..kernels.functions import Function

    return Function.filled(function, arrays, 2, s)


def _plain_backward(kept: tuple[Tracer, ...], options: Options) -> list[Tracer]:
    arrays, cts = kept[:-4], kept[-2:]
    _, pull = vjp(lambda *a: plain((*a, *arrays[3:]), options), *arrays[:3])
    return list(pull((cts[0], cts[1])))


def note_composition(reason: str) -> None:
    """Records why attention is a composition of primitives, for `explain`."""
    noted(f"attention is a composition of matmuls and a softmax, for {reason}")


def noted(note: str) -> None:
    frame = outermost()
    if frame is not None and note not in frame.notes:
        frame.notes.append(note)
