"""Tokens for language models: batches of windows from one long array, in an order that is a function of the seed and the
step alone, so that training resumes exactly where it stopped."""

from __future__ import annotations

import os
from typing import Any

import numpy

from ._trace import fail

__all__ = ["CharTokenizer", "TokenLoader"]


class CharTokenizer:
    """Characters as integers, in the order of their code points."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        self._index = {c: i for i, c in enumerate(self.characters)}

    @property
    def size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> numpy.ndarray:
        missing = sorted(set(text) - set(self._index))
        if missing:
            raise fail(
                "E_ARGUMENT",
                f"expected characters of the vocabulary, got {missing[0]!r}",
                "make the vocabulary from all of the text",
            )
        return numpy.fromiter((self._index[c] for c in text), numpy.int32, len(text))

    def decode(self, tokens: Any) -> str:
        return "".join(self.characters[int(t)] for t in numpy.asarray(tokens).reshape(-1))


class TokenLoader:
    """Gives ``(inputs, targets)`` of shape [batch, length]: windows at random places, targets one token later. ``state()``
    is a dict for a checkpoint, and ``restore`` goes on from it. A file name is mapped, not read."""

    def __init__(self, tokens: Any, batch: int, length: int, seed: int = 0, dtype: Any = numpy.uint16) -> None:
        if isinstance(tokens, (str, os.PathLike)):
            tokens = numpy.memmap(tokens, dtype=dtype, mode="r")
        self._tokens = tokens
        if len(tokens) < length + 1:
            raise fail("E_ARGUMENT", f"expected more than {length} tokens, got {len(tokens)}", "use a shorter length, or more text")
        self.batch, self.length, self.seed, self.step = batch, length, seed, 0

    def at(self, step: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The batch of a step."""
        pick = numpy.random.Generator(numpy.random.Philox(key=[self.seed, step]))
        starts = pick.integers(0, len(self._tokens) - self.length, self.batch)
        windows = numpy.stack([numpy.asarray(self._tokens[s : s + self.length + 1]) for s in starts]).astype(numpy.int32)
        return windows[:, :-1].copy(), windows[:, 1:].copy()

    def __iter__(self) -> TokenLoader:
        return self

    def __next__(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        made = self.at(self.step)
        self.step += 1
        return made

    def state(self) -> dict:
        return {"seed": self.seed, "step": self.step}

    def restore(self, state: dict) -> None:
        self.seed, self.step = int(state["seed"]), int(state["step"])
