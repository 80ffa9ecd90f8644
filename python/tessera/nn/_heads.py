"""Attention of one array to another, with fewer heads of keys and values, and with rotary positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import random, xp
from ..trace.tracer import aval, fail
from . import _functional as F
from ._functions import rope
from ._layers import Linear, _expect_last


@dataclass(frozen=True)
class MultiHeadAttention:
    """Attention of [batch, positions, size] to ``context`` of [batch, positions, context_size], or to itself. ``kv_heads`` below
    ``heads`` are shared; ``rotary`` applies rotary position embeddings to queries and keys."""

    size: int
    heads: int
    kv_heads: int | None = None
    context_size: int | None = None
    causal: bool = False
    rotary: bool = False
    base: float = 10000.0
    bias: bool = True
    dtype: Any = "f32"

    def _linears(self) -> dict[str, Linear]:
        kv = (self.kv_heads or self.heads) * (self.size // self.heads)
        given = self.context_size or self.size
        sizes = {"q": (self.size, self.size), "k": (given, kv), "v": (given, kv), "out": (self.size, self.size)}
        return {name: Linear(*s, bias=self.bias, dtype=self.dtype) for name, s in sizes.items()}

    def init(self, key: Any) -> dict:
        kv = self.kv_heads or self.heads
        if self.size % self.heads or self.heads % kv or (self.rotary and self.size // self.heads % 2):
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected {self.heads} heads to divide {self.size}, {kv} heads of keys to divide them, and with `rotary` heads of even size",
                "choose a size that is a multiple of the number of heads",
            )
        keys = random.split(key, 4)
        return {name: part.init(keys[i]) for i, (name, part) in enumerate(self._linears().items())}

    def __call__(self, params: dict, x: Any, context: Any = None, *, mask: Any = None, positions: Any = None) -> Any:
        """``mask`` [batch or 1, heads or 1, queries, keys] is true where a key counts; ``positions`` are for ``rotary``."""
        _expect_last(f"MultiHeadAttention({self.size})", x, self.size)
        given = x if context is None else context
        _expect_last("MultiHeadAttention, context", given, self.context_size or self.size)
        parts, each = self._linears(), self.size // self.heads
        q = self._split(parts["q"](params["q"], x), self.heads, each)
        k = self._split(parts["k"](params["k"], given), self.kv_heads or self.heads, each)
        v = self._split(parts["v"](params["v"], given), self.kv_heads or self.heads, each)
        if self.rotary:
            q = rope(q, positions, self.base)
            k = rope(k, positions if context is None else None, self.base)
        y = F.attention(q, k, v, causal=self.causal, mask=mask)
        batch, length, _ = aval(x)[0]
        return parts["out"](params["out"], xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), (batch, length, self.size)))

    @staticmethod
    def _split(x: Any, heads: int, each: int) -> Any:
        batch, length, _ = aval(x)[0]
        return xp.permute_dims(xp.reshape(x, (batch, length, heads, each)), (0, 2, 1, 3))


class CrossAttention(MultiHeadAttention):
    """`MultiHeadAttention` whose keys and values come from ``context``, which it needs."""

    def __call__(self, params: dict, x: Any, context: Any = None, *, mask: Any = None, positions: Any = None) -> Any:
        if context is None:
            raise fail("E_ARGUMENT", "CrossAttention: expected a context to attend to", "write `layer(params, x, context)`")
        return super().__call__(params, x, context, mask=mask, positions=positions)
