"""The tile language: the functions that kernels are written with.

Names and documentation come from the compiler's own table; see ``tile.pyi``.
"""

from .base.deprecation import warn as _warn
from .kernel.builtins import NAMESPACES as _NAMESPACES
from .kernel.builtins import members as _members
from .kernel.builtins import unknown as _unknown

_inner = {name.partition(".")[2]: space for name, space in _NAMESPACES.items() if name.startswith("tile.")}
globals().update(_members("tile"))
globals().update(_inner)
#: Functions by the names that they had in the last release.
_FORMER = {"slope": "value_and_grad"}
__all__ = sorted([*_members("tile"), *_inner])


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _FORMER:
        _warn(f"ts.tile.{name}", f"ts.tile.{_FORMER[name]}")
        return globals()[_FORMER[name]]
    _unknown("tile", name)
