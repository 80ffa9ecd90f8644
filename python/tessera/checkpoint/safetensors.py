"""The safetensors format: eight bytes with the length of a JSON header, the header, and the elements of all arrays, one after
another, little-endian. The header says the dtype, shape and place of each array; ``__metadata__`` in it holds text by names.

Reading checks all of it against the length of the file before anything is allocated, as the format asks: no array overlaps another or
the end, and no byte belongs to none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from ..base.errors import Refusal
from .bounded_json import parse, shown

METADATA = "__metadata__"
#: Our dtypes by the format's names, and bytes an element.
_READ = {
    "BOOL": ("bool", 1), "I8": ("i8", 1), "I16": ("i16", 2), "I32": ("i32", 4), "I64": ("i64", 8),
    "U8": ("u8", 1), "U16": ("u16", 2), "U32": ("u32", 4), "U64": ("u64", 8),
    "F16": ("f16", 2), "BF16": ("bf16", 2), "F32": ("f32", 4), "F64": ("f64", 8),
    "F8_E4M3": ("fp8_e4m3", 1), "F8_E5M2": ("fp8_e5m2", 1), "F8_E8M0": ("e8m0", 1),
}  # fmt: skip
#: The format packs elements narrower than a byte; ours take one byte each, and are written as bytes.
NARROW = ("i4", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2")
_WRITTEN = {ours: name for name, (ours, _) in _READ.items()} | dict.fromkeys(NARROW, "U8")
_SIZES = {ours: size for ours, size in _READ.values()} | dict.fromkeys(NARROW, 1)
#: What the format allows a header.
_MOST = 100_000_000
_DAMAGED = "the file is damaged, or was not written to its end: use another copy, or write it again"


class Entry(NamedTuple):
    """An array of a file: the dtype that its bytes are stored as, its shape, and its place among the elements."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def header(arrays: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """The first bytes of a file of arrays with these dtypes and shapes, and the names in the order in which their elements
    follow: the widest first, so that all are aligned to their size."""
    order = sorted(arrays, key=lambda name: (-_SIZES[arrays[name][0]], name))
    rows: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    place = 0
    for name in order:
        dtype, shape = arrays[name]
        end = place + math.prod(shape) * _SIZES[dtype]
        rows[name] = {"dtype": _WRITTEN[dtype], "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MOST:
        raise Refusal(f"expected a header of at most {_MOST} bytes, got {len(text)}", "save fewer, larger arrays, or several files")
    return len(text).to_bytes(8, "little") + text, order


def read_header(file: BinaryIO, size: int) -> tuple[dict[str, Entry], dict[str, str], int]:
    """The arrays by name, the metadata, and where the elements begin, of a file with ``size`` bytes."""
    first = file.read(8)
    if len(first) < 8:
        raise Refusal(f"expected a safetensors file, got {size} bytes", _DAMAGED)
    length = int.from_bytes(first, "little")
    if length > min(_MOST, size - 8):
        raise Refusal(f"expected a header of at most {min(_MOST, size - 8)} bytes, got one that says it has {length}", _DAMAGED)
    text = file.read(length)
    if len(text) < length:
        raise Refusal(f"expected a header of {length} bytes, got {len(text)}", _DAMAGED)
    rows = parse(text, 3, "the header")
    if not isinstance(rows, dict):
        raise Refusal("expected the header to be a JSON object, got something else", _DAMAGED)
    metadata = rows.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Refusal(f"expected `{METADATA}` to hold text by names, got something else", _DAMAGED)
    entries = {name: _entry(name, row) for name, row in rows.items()}
    _check_places(entries.items(), size - 8 - length)
    return entries, metadata, 8 + length


def _entry(name: str, row: Any) -> Entry:
    at = f"of `{shown(name)}`"
    if not isinstance(row, dict):
        raise Refusal(f"expected dtype, shape and place {at}, got something else", _DAMAGED)
    dtype, shape, place = row.get("dtype"), row.get("shape"), row.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _READ:
        raise Refusal(f"expected the dtype {at} to be one of {', '.join(_READ)}, got {shown(dtype)}",
                      "convert the array with the program that wrote the file")  # fmt: skip
    if not _whole(shape):
        raise Refusal(f"expected the shape {at} to be a list of extents, got {shown(shape)}", _DAMAGED)
    if not _whole(place) or len(place) != 2:
        raise Refusal(f"expected the place {at} to be two numbers, got {shown(place)}", _DAMAGED)
    ours, width = _READ[dtype]
    if place[1] - place[0] != math.prod(shape) * width:
        raise Refusal(f"expected {math.prod(shape) * width} bytes {at}, {dtype} of shape {shown(shape)}, got {place[1] - place[0]}", _DAMAGED)
    return Entry(ours, tuple(shape), *place)


def _whole(numbers: Any) -> bool:
    """Whether something is a list of extents or offsets that 63 bits hold, no longer than any array's."""
    return isinstance(numbers, list) and len(numbers) <= 64 and all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)


def _check_places(entries: Iterable[tuple[str, Entry]], length: int) -> None:
    place = 0
    for name, entry in sorted(entries, key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != place:
            how = "inside the array before" if entry.begin < place else "behind bytes of no array"
            raise Refusal(f"expected `{shown(name)}` to begin at {place}, got {entry.begin}, {how}", _DAMAGED)
        place = entry.end
    if place != length:
        raise Refusal(f"expected {place} bytes of elements, got {length}", _DAMAGED)
