"""Tessera: tile kernels, models and distribution in one language."""

from ._core import __version__

__all__ = ["__version__"]
