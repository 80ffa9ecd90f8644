"""``tessera cache``: the kernels that are kept on disk between processes."""

from __future__ import annotations

import json
import sys

from .. import _core


def list_cache(as_json: bool = False) -> int:
    """Prints what is kept, last used first; gives 0 when all of it could be read."""
    found = _core.cache_entries()
    warnings = found.pop("warnings")
    entries = found["entries"]
    total = sum(entry["bytes"] for entry in entries)
    if as_json:
        print(json.dumps({**found, "bytes": total}, indent=2))
    else:
        rows = [(_age(entry["age_s"]), size_text(entry["bytes"]), entry["about"]) for entry in entries]
        for age, size, about in [("age", "size", "kernel"), *rows] if rows else []:
            print(f"{age:>8}  {size:>9}  {about}")
        place = f"{size_text(total)} of at most {size_text(found['limit'])}, in {found['directory']}"
        print(f"{_count(len(entries))}, {place}" if found["directory"] else _NOWHERE)
    return _tell(warnings)


def clear_cache() -> int:
    """Removes what is kept; gives 0 when all of it could be removed."""
    done = _core.cache_clear()
    if done["directory"]:
        print(f"removed {_count(done['entries'])}, {size_text(done['bytes'])}, from {done['directory']}")
    else:
        print(_NOWHERE)
    return _tell(done["warnings"])


_NOWHERE = "there is no home directory and TESSERA_CACHE_DIR is not set: nothing is kept"


def _tell(warnings: list[str]) -> int:
    for text in warnings:
        print(text, file=sys.stderr)
    return int(bool(warnings))


def _count(entries: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}"


def _age(seconds: float) -> str:
    """The two-digit number of the largest unit that gives one: 90 min, 36 h."""
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{int(seconds / length)} {unit}"
    return f"{int(seconds / 86400)} days"


def size_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            break
        count /= 1024
    else:
        unit = "GiB"
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
