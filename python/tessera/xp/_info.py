"""The inspection API of the array API standard."""

from __future__ import annotations

from typing import Any

from ..trace.tracer import fail
from . import _types

_KINDS = {
    "bool": ("bool",), "signed integer": ("int8", "int16", "int32", "int64"), "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"), "complex floating": (),
}  # fmt: skip
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"]


class Info:
    """Of ``xp``; outside traced functions its arrays are NumPy's, on the host."""

    def capabilities(self) -> dict[str, Any]:
        """Shapes are known when a function is traced: nothing may depend on values."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def devices(self) -> list[str]:
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        names = {"real floating": "float32", "integral": "int64", "indexing": "int64"}
        return {kind: getattr(_types, name) for kind, name in names.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        wanted = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        if unknown := [one for one in wanted if one not in _KINDS]:
            raise fail(
                "E_ARGUMENT",
                f"expected a kind of dtypes (one of {', '.join(_KINDS)}), got {unknown[0]!r}",
                "leave it out for all dtypes",
            )
        return {name: getattr(_types, name) for one in wanted for name in _KINDS[one]}


def __array_namespace_info__() -> Info:
    """Inspection of the namespace, as the array API defines it."""
    return Info()
