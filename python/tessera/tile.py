"""The tile language: the functions that kernels are written with.

Names and documentation come from the compiler's own table; see ``tile.pyi``.
"""

from ._api import members as _members
from ._api import unknown as _unknown

globals().update(_members("tile"))
__all__ = sorted(_members("tile"))


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    _unknown("tile", name)
