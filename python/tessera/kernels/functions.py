"""Functions of the caller inside library kernels, with the arrays that they read: the record that kernels take them as."""

from __future__ import annotations

from typing import Any, Sequence

import tessera as ts

#: What stands for the function where there is none.
_NONE = ts.identity


@ts.struct
class Function:
    """A function of the caller, and the arrays that it reads.

    ``kinds`` has a letter for each array that it reads, which says how the array broadcasts to a tile: "r" has one row, "c" one
    column, "1" one element, "-" all of them. ``arrays`` has further ones after those, which kernels do not touch: a kernel is
    compiled for the same arguments whatever the function reads.
    """

    arrays: tuple
    of: ts.Fn
    kinds: str = ""
    #: Whether there is a function.
    given: bool = False

    @classmethod
    def filled(cls, of: Any, read: Sequence[Any], most: int, other: Any, kinds: str | None = None) -> Any:
        """A function that reads some arrays, at most ``most``. ``other`` is any array that the kernel may take in place of more;
        ``of`` is None where there is no function."""
        count = len(read)
        given = (*read, *(other,) * (most - count)) if count < most else tuple(read)
        if of is None:
            return cls(given, _NONE)
        return cls(given, of, "-" * count if kinds is None else kinds, True)


@ts.func
def read(f):
    """The arrays that a function reads."""
    return f.arrays[:len(f.kinds)]


@ts.func
def spans(kind, m, R, n, C):
    """Rows and columns of the part of an array of this kind that belongs to the tile at ``m:m + R, n:n + C``: a start and an extent
    of each."""
    rows = (0, 1) if kind == "1" or kind == "r" else (m, R)
    columns = (0, 1) if kind == "1" or kind == "c" else (n, C)
    return rows + columns
