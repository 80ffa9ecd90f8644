"""Domains: the shapes of index spaces, without a placement."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..base.caller import fail
from . import _given


class Rect:
    """All tuples of indices below these extents."""

    def __init__(self, dims: Sequence[int] | int) -> None:
        sizes = _given.extents(dims, 1, "E_SHAPE_MISMATCH", "write `domain.Rect((4, 8))`")
        if not sizes:
            raise fail("E_SHAPE_MISMATCH", "expected extents of at least 1, got none", "write `domain.Rect((4, 8))`")
        #: The extents.
        self.shape: tuple[int, ...] = sizes

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def volume(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def numel(self) -> int:
        """The number of elements."""
        return self.volume

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Rect) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)

    def __repr__(self) -> str:
        return f"Rect({self.shape})"
