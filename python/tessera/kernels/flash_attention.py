"""Attention of whole arrays: checks arguments, chooses tiles and launches a kernel. Rarely used kernels are imported on demand."""

from __future__ import annotations

import math
from typing import Any

import tessera as ts

from .. import _core
from . import arrays, checks
from .attention import Heads, forward
from .attention_plan import BlockMask, bound, exact, scaled, shaped, sight
from .functions import Function

#: The tile in the options of the tuned kernel, which does not read it.
TUNED_TILE = (0, 0)


def attend(
    q: Any, k: Any, v: Any, *, causal: Any, scale: Any, window: Any, score_mod: Any, mask_mod: Any, return_lse: bool, layout: str,
    tile: Any, free: bool | None,
) -> Any:  # fmt: skip
    given = shaped(q, k, v, layout)
    exact(free)
    keep = checks.flag(return_lse, "return_lse")
    B, H, Sq, Sk, D, DV = given.extents
    blocks = mask_mod if isinstance(mask_mod, BlockMask) else None
    measured = isinstance(tile, str) and tile == "tune"
    wanted = scaled(scale, D)
    if blocks is None:
        seen = sight(causal, window, Sq, Sk)
        mask, more = bound(mask_mod, "mask_mod") if mask_mod is not None else (None, [])
        plain = score_mod is None and mask_mod is None and not keep
        sides = given.tiles(None if measured else tile, seen, plain)
    else:
        blocks.check(given, causal, window, tile)
        seen, mask, more, sides = blocks.seen, blocks.function, blocks.arrays, blocks.tile
    score, extra = bound(score_mod, "score_mod") if score_mod is not None else (None, [])
    of = arrays.dtype_of(given.q)
    kept_in = checks.accumulator(of)
    if kept_in == ts.f64 and (measured or blocks is not None):
        what = 'tile="tune"' if measured else "a block mask"
        help = "leave out `tile`" if measured else "hand over the mask's function itself"
        raise _core.error("E_UNSUPPORTED", f"expected {what} with arrays of f32 or narrower floats, got f64", help)
    shape = (B, Sq, H, DV) if given.turned else (B, H, Sq, DV)
    # Without keys the result is zeros, and nothing is launched.
    out = arrays.empty(shape, of, given.q) if Sk else arrays.full(shape, 0.0, of, given.q)
    o = arrays.permuted(out, (0, 2, 1, 3)) if given.turned else out
    if not keep:
        lse = arrays.unused((B, H, Sq), kept_in, given.q)
    else:
        lse = arrays.empty((B, H, Sq), kept_in, given.q) if Sk else arrays.full((B, H, Sq), -math.inf, kept_in, given.q)
    if arrays.size(out) and Sk:
        heads = given.q, given.k, given.v, o, lse
        functions = Function.filled(score, extra, 2, given.q), Function.filled(mask, more, 2, given.q)
        rest = (*functions, wanted, seen.span, given.options(sides, keep, wanted, free))
        if blocks is not None:
            from . import block_mask

            block_mask.forward(Heads(*heads), block_mask.table_of(blocks, given), *rest)
        elif measured and not checks.checked():  # checked mode does not tune
            from . import tuned

            # The tile is the tuner's: every shape has the same options.
            how = given.options(TUNED_TILE, keep, wanted, free)
            tuned.attention_of(free)(Heads(*heads), *rest[:-1], how)
        elif kept_in == ts.f64:
            from . import attention_f64

            attention_f64.forward(attention_f64.Heads(*heads), *rest)
        else:
            forward(Heads(*heads), *rest)
    if given.rank == 3:
        out, lse = out.reshape(out.shape[1:]), lse.reshape(lse.shape[1:]) if keep else lse
    return (out, lse) if keep else out
