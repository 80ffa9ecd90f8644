"""How the arrays of a program are its arguments: by themselves, packed into bytes, or in records and lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np

#: Codes of 4 bits as an array with an element each, by the dtype of an array whose bytes hold two.
PACKED = {"fp4 @packed": "fp4_e2m1", "i4 @packed": "i4"}


@dataclass
class Record:
    """A record: the name of its class, and for each field an array's name, another record, or a number that stands for itself."""

    cls: str
    fields: dict[str, Any]


@dataclass
class Form:
    """The arguments in their order: an array's name, a record, or a list of names. Arrays are named as a kernel's text names them."""

    arguments: list[Any] = field(default_factory=list)

    def put_together(self, arrays: dict[str, Any], namespace: dict[str, Any] | None, number: Callable[[str, Any], Any] = lambda dt, v: v) -> list[Any]:
        """What a call gets. Without a namespace, records are plain objects, and lists are tuples."""

        def made(what: Any) -> Any:
            if isinstance(what, Record):
                values = {name: made(part) for name, part in what.fields.items()}
                return namespace[what.cls](**values) if namespace else SimpleNamespace(**values)
            if isinstance(what, list):
                return [made(part) for part in what] if namespace else tuple(made(part) for part in what)
            if isinstance(what, tuple):
                return number(*what)
            return arrays[what] if isinstance(what, str) else what

        return [made(what) for what in self.arguments]


def unpacked(held: np.ndarray, dt: str) -> np.ndarray:
    """The elements of bytes that hold two each, the one with the even index in the low half."""
    from .values import host_dtype

    codes = np.stack([held & 15, held >> 4], axis=-1).reshape(*held.shape[:-1], -1)
    if PACKED[dt] == "i4":
        return ((codes.astype(np.int8) ^ 8) - 8).astype(host_dtype("i4"))
    return codes.view(host_dtype(PACKED[dt]))


def packed(elements: np.ndarray) -> np.ndarray:
    codes = elements.view(np.uint8) & 15
    return codes[..., 0::2] | codes[..., 1::2] << 4
