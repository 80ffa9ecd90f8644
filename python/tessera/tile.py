"""The tile language: the functions that kernels are written with.

Names and documentation come from the compiler's own table; see ``tile.pyi``.
"""

from ._api import NAMESPACES as _NAMESPACES
from ._api import members as _members
from ._api import unknown as _unknown

_inner = {name.partition(".")[2]: space for name, space in _NAMESPACES.items() if name.startswith("tile.")}
globals().update(_members("tile"))
globals().update(_inner)
__all__ = sorted([*_members("tile"), *_inner])


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    _unknown("tile", name)
