"""Attention as a composite: the composition of matmuls and a softmax says what it means, and the kernels of the library compute it where
they are faster, forward and backward. Which kernels and tiles is chosen when the function is compiled for a machine."""

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
from ..transforms.composites import Request, capabilities, composite
from ..transforms.derivatives import vjp
from ..xp._softmax import LOW, log_sum_exp, softmax

#: Dtypes that the kernels take, and the widest heads with an accumulator that fits in registers, by bytes of an element.
_TAKEN = ("f16", "bf16", "f32")
_WIDEST = {2: 256, 4: 128}
_LOG2E = 1.4426950408889634
#: On the host, kernels are worth it from this many positions on.
_LONG = 256


@dataclass(frozen=True)
class Options:
    """The static options of a call of attention: `sight` says what ``causal`` and ``window`` mean for the lengths at hand."""

    scale: float
    causal: Any
    window: Any
    scores: Func | None = None
    mask: Func | None = None
    #: Whether the logsumexp of each row is a result too.
    keep: bool = False
    #: Whether the online softmax may rescale lazily; see `ts.op.flash_attention`.
    free: bool = True

    def seen(self, q: Tracer, k: Tracer) -> Any:
        from ..kernels.attention_plan import sight

        return sight(self.causal, self.window, q.shape[-2], k.shape[-2])

    def functions(self, q: Tracer, changes: Sequence[Tracer], masks: Sequence[Tracer]) -> tuple[Any, Any]:
        """``scores`` and ``mask`` as kernels take them, with the arrays that they read."""
        from ..kernels.functions import Function

        return Function.filled(self.scores, list(changes), 2, q), Function.filled(self.mask, list(masks), 2, q)


# What it means


def composed(q: Tracer, k: Tracer, v: Tracer, seen: Any, scale: Any, keep: bool, *, mask: Any = None, bias: Any = None,
             scores: tuple[Func | None, Sequence[Tracer]] = (None, ()), masks: tuple[Func | None, Sequence[Tracer]] = (None, ())) -> Any:  # fmt: skip
    """Of [.., heads, positions, size], by primitives; functions of the caller are kernels on scores in memory."""
    heads = q.ndim - 3
    if k.shape[heads] != q.shape[heads]:
        share = q.shape[heads] // k.shape[heads]
        k, v = xp.repeat(k, share, heads), xp.repeat(v, share, heads)
    dtype = q._dtype
    wide = "f32" if dtype in LOW else dtype
    batch = list(range(q.ndim - 2))
    s = p.dot(q, k, ([q.ndim - 1], [k.ndim - 1]), (batch, batch), out=wide)
    s = s * scale
    if bias is not None:
        s = s + p.cast(bias, wide)
    if scores[0] is not None:
        s = _on_scores(changed, s, *scores)
    ok = None if mask is None else p.cast(mask, "bool")
    if (near := inside(q.shape[-2], k.shape[-2], seen.lowest, seen.highest)) is not None:
        ok = near if ok is None else xp.logical_and(ok, near)
    if ok is not None:
        s = xp.where(p.broadcast_to(ok, s.shape), s, -math.inf)
    if masks[0] is not None:
        s = _on_scores(masked, s, *masks)
    w = softmax(s, -1, safe=True)
    out = p.dot(p.cast(w, dtype), v, ([w.ndim - 1], [v.ndim - 2]), (batch, batch))
    return (out, log_sum_exp(s, -1)) if keep else out


def inside(n: int, m: int, lowest: int | None, highest: int | None) -> Tracer | None:
    """Which of ``m`` keys each of ``n`` queries sees; None for all."""
    if lowest is None and highest is None:
        return None
    gap = p.iota((n, m), 1) - p.iota((n, m), 0)
    sides = [] if lowest is None else [gap >= lowest]
    sides += [] if highest is None else [gap <= highest]
    return sides[0] if len(sides) == 1 else xp.logical_and(*sides)


def _on_scores(how: Any, s: Tracer, function: Func, given: Sequence[Tracer]) -> Tracer:
    """Scores changed or masked by a function of tiles, which know a batch and a head."""
    return p.reshape(how(p.reshape(s, [1, *s.shape]) if s.ndim == 3 else s, function, given), s.shape)


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

    return Function.filled(function, list(arrays), 2, s)


# Composites


@composite
def attention(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, *, options: Options) -> Any:
    """The result, and with ``options.keep`` the logsumexp: of q, k, v and the arrays that functions of the caller read."""
    return composed(q, k, v, options.seen(q, k), options.scale, options.keep,
                    scores=(options.scores, changes), masks=(options.mask, masks))  # fmt: skip


@composite
def attention_forward(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, *, options: Options) -> tuple[Tracer, Tracer]:
    """The result and the logsumexp in f32, which the backward pass reads."""
    out, lse = composed(q, k, v, options.seen(q, k), options.scale, True, scores=(options.scores, changes), masks=(options.mask, masks))
    return out, p.cast(lse, "f32")


@composite
def attention_backward(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, out: Tracer, lse: Tracer, cotangent: Any, *,
                       options: Options) -> tuple[Tracer, Tracer, Tracer]:  # fmt: skip
    """The cotangents of q, k and v."""
    return vjp(lambda *a: attention._fn(*a, changes, masks, options=options), q, k, v)[1](cotangent)


@attention_backward.shard
def _factors(ranks: list[int]) -> str:
    # Of heads of k and v, and of arrays that functions of the caller read, the decomposition says enough.
    at = next(i for i in range(len(ranks) - 1, 0, -1) if ranks[i - 1 : i + 1] == [4, 3])
    others = ["b _ _ _"] * 2 + [" ".join("_" * rank) for rank in ranks[3 : at - 1]]
    cotangents = ["b h _ _", "b h _"][: len(ranks) - at - 1]
    return ", ".join(["b h _ _", *others, "b h _ _", "b h _", *cotangents]) + " -> b h _ _, b _ _ _, b _ _ _"


def _fwd(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, *, options: Options) -> tuple:
    out, lse = attention_forward(q, k, v, changes, masks, options=options)
    # The logsumexp as the decomposition gives it has the dtype of the scores.
    result = (out, p.cast(lse, "f32" if q._dtype in LOW else q._dtype)) if options.keep else out
    return result, (q, k, v, changes, masks, out, lse)


attention.defvjp(_fwd, lambda kept, ct, *, options: (*attention_backward(*kept, ct, options=options), None, None), without=(3, 4))


# Kernels


def _taken(request: Request) -> str | bool:
    """Whether kernels can take these arrays of [batch, heads, positions, size], and should."""
    (q, k, v), kinds = request.shapes[:3], request.dtypes[:3]
    if not request.capabilities.get("processors", 0):
        # Where scores fit in the caches, matmuls of whole matrices are faster, and so are their units for narrow floats.
        if kinds[0] != "f32" or min(q[2], k[2]) < _LONG:
            return f"on the host its kernels are for f32 and {_LONG} positions or more"
    if len(set(kinds)) > 1 or kinds[0] not in _TAKEN:
        return f"its kernels take q, k and v of one dtype of {', '.join(_TAKEN)}, and not {', '.join(sorted(set(kinds)))}"
    if not all(n > 0 for x in (q, k, v) for n in x):
        return "an array is empty"
    if max(q[-1], v[-1]) > (most := _WIDEST[4 if kinds[0] == "f32" else 2]):
        return f"heads are wider than {most}"
    return True


def _machine() -> Any:
    """The machine that kernels are traced for."""
    from ..kernels import machine

    frame = outermost()
    caps = capabilities(None if frame is None else frame.target)
    if not caps.get("processors"):
        return machine.HOST
    return machine.Machine(caps["processors"], caps["shared_bytes_per_block"], caps["wgmma"])


def _sizes(x: Tracer) -> int:
    return 2 if x._dtype in ("f16", "bf16") else 4


def _widened(*arrays: Tracer) -> list[Tracer]:
    """Heads padded with zeros to the multiple that tensor cores need, forward and backward."""
    from ..kernels.attention_plan import unit

    q, _, v = arrays[:3]
    by = unit(q.shape[-1], v.shape[-1], _sizes(q), _machine())
    return [p.pad(x, [0] * 4, [0, 0, 0, -x.shape[-1] % by]) if by and x.shape[-1] % by else x for x in arrays]


def _narrowed(x: Tracer, size: int) -> Tracer:
    return x if x.shape[-1] == size else p.slice_(x, [0] * 4, [*x.shape[:-1], size], [1] * 4)


@attention_forward.kernel(takes=_taken)
def _forward(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, *, options: Options) -> tuple[Tracer, Tracer]:
    from ..kernels import attention as kernels, attention_plan as plan

    size, seen = v.shape[-1], options.seen(q, k)
    q, k, v = _widened(q, k, v)
    (B, H, Sq, D), DV = q.shape, v.shape[-1]
    # The logsumexp is stored: there are no tiles for a particular GPU generation in that case.
    BM, BN = plan.tiles(Sq, D, DV, _sizes(q), _machine(), seen.edges, low=options_low(seen), units=not plan.in_order())
    how = kernels.Options(BM, BN, True, options.scale >= kernels.SMALLEST, options.free)
    given = (kernels.Heads(q, k, v, None, None), *options.functions(q, changes, masks), options.scale, seen.span, how)
    out, lse = call(kernels.forward, given, {}, None, {"x.O": ((B, H, Sq, DV), q._dtype), "x.LSE": ((B, H, Sq), "f32")})
    return _narrowed(out, size), lse


def options_low(seen: Any) -> bool:
    return seen.lowest is not None


@attention.kernel(takes=_taken)
def _result(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, *, options: Options) -> Any:
    made = _forward(q, k, v, changes, masks, options=options)
    return made if options.keep else made[0]


@attention_backward.kernel(takes=_taken)
def _backward(q: Tracer, k: Tracer, v: Tracer, changes: list, masks: list, out: Tracer, lse: Tracer, cotangent: Any, *,
              options: Options) -> Any:  # fmt: skip
    from ..kernels import attention_backward as kernels

    if (reason := unlike(options, changes, q)) is not None:
        return reason
    d_out, d_lse = cotangent if options.keep else (cotangent, None)
    # `delta` of the module `attention_backward`; and zero probabilities for a query that sees nothing.
    delta = xp.sum(p.cast(d_out, "f32") * p.cast(out, "f32"), -1)
    if d_lse is not None:
        delta = delta - p.cast(d_lse, "f32")
    lse = xp.where(lse == -math.inf, math.inf, lse * _LOG2E)
    sizes, seen = [x.shape[-1] for x in (q, k, v)], options.seen(q, k)
    q, k, v, d_out = _widened(q, k, v, d_out)
    (_, H, Sq, D), HK, DV = q.shape, k.shape[1], v.shape[-1]
    saved, span = kernels.Saved(q, k, v, d_out, lse, delta), seen.span
    rest = (*options.functions(q, changes, masks), kernels.Scores(options.scale, span.lowest, span.highest, span.low, span.high))
    gpu = _machine().is_gpu
    blocks = kernels.Blocks(*kernels.tiles_of_keys(D, DV, _sizes(q)) if gpu else (64, 64, 0))
    dk, dv = call(kernels.keys, (saved, None, None, *rest, blocks, H // HK), {}, None,
                  {"DK": (k.shape, k._dtype), "DV_": (v.shape, v._dtype)})  # fmt: skip
    blocks = kernels.Blocks(*kernels.tiles_of_queries(Sq, D, DV, _sizes(q)) if gpu else (64, 64, 0))
    dq = call(kernels.queries, (saved, None, *rest, blocks), {}, None, {"DQ": (q.shape, q._dtype)})
    return tuple(_narrowed(x, size) for x, size in zip((dq, dk, dv), sizes, strict=True))


def unlike(options: Options, arrays: Sequence[Tracer], q: Tracer) -> str | None:
    """Why ``score_mod`` has no derivative inside the kernels; None where it has one, or where there is no function."""
    from ..kernels import attention_backward as kernels
    from ..kernels.functions import Function

    if options.scores is None:
        return None
    # A placeholder: only its shape and dtype are used.
    s: Any = SimpleNamespace(shape=q.shape[-2:], _dtype="f32")
    kernel, given, _ = kernels.derived.apart((s, s, Function.filled(options.scores, list(arrays), 2, q)), {})
    values = {name: value for (name, kind, *_), value in zip(kernel.spec.params, given) if kind == "tensor"}
    fixed = {name: value for (name, *_), value in zip(kernel.spec.params, given) if name not in values}
    try:
        for_sizes(kernel, {"M": s.shape[0], "N": s.shape[1]}, values, fixed, None)
    except TesseraError as error:
        if error.code != "E_UNSUPPORTED":
            raise
        return f"the derivative of `{options.scores.name}`: {error.message}"
    return None


def attend(q: Tracer, k: Tracer, v: Tracer, changes: Sequence[Tracer], masks: Sequence[Tracer], options: Options) -> Any:
    """Of [batch, heads, positions, size] or [heads, positions, size]."""
    if any(is_float(x._dtype) for x in changes) and options.scores is not None:
        noted(f"where the derivative by an array that `{options.scores.name}` reads is requested, attention is a composition of matmuls "
              "and a softmax: its kernels have only the derivative by the scores")  # fmt: skip
    # Arrays that a mask reads have no derivative.
    masks = [one("stop_gradient", [x]) if is_float(x._dtype) else x for x in masks]
    flat = q.ndim == 3
    given = [p.reshape(x, [1, *x.shape]) for x in (q, k, v)] if flat else [q, k, v]
    made = attention(*given, list(changes), masks, options=options)
    if not flat:
        return made
    return tuple(p.reshape(x, x.shape[1:]) for x in made) if options.keep else p.reshape(made, made.shape[1:])


def note_composition(reason: str) -> None:
    """Records why attention is a composition of primitives, for `explain`."""
    noted(f"attention is a composition of matmuls and a softmax, for {reason}")


def noted(note: str) -> None:
    frame = outermost()
    if frame is not None and note not in frame.notes:
        frame.notes.append(note)
