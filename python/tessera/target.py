"""What is written for one target alone: assembly text inside kernels.

Names and documentation come from the compiler's own table; see ``target.pyi``.
"""

from .kernel.builtins import members as _members
from .kernel.builtins import unknown as _unknown

globals().update(_members("target"))
__all__ = sorted(_members("target"))


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    _unknown("target", name)
