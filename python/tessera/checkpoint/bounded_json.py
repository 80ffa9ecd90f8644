"""JSON of files that nobody vouches for: bounded in depth, each key once, and one error for all that can be wrong with it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy

from ..base.errors import Refusal

_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_ESCAPED = re.compile(rb"\\.", re.S)
_TEXT = re.compile(rb'"[^"]*"')


def parse(data: bytes, depth: int, what: str) -> Any:
    """The value that ``data`` says, of lists and objects nested no deeper than ``depth``; ``what`` it is, for messages."""
    damaged = "the file is damaged, or is no safetensors file: write it again"
    # Before the parser, which recurses as deep as the file says.
    brackets = numpy.frombuffer(_TEXT.sub(b"", _ESCAPED.sub(b"", data)).translate(None, _OTHERS), numpy.uint8)
    levels = numpy.cumsum(numpy.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1), dtype=numpy.int32)
    if levels.size and levels.max() > depth:
        raise Refusal(f"expected {what} to be JSON of at most {depth} levels, got {levels.max()}", damaged)
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError:
        raise Refusal(f"expected {what} to be UTF-8, got other bytes", damaged) from None
    except json.JSONDecodeError as error:
        raise Refusal(f"expected {what} to be JSON, got other text at character {error.pos}", damaged) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; a stack that is nearly full already
        raise Refusal(f"expected {what} to be JSON, got what no reader takes", damaged) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))
        raise Refusal(f"expected each entry once, got `{shown(twice)}` twice", "the file is damaged: write it again")
    return made


def shown(text: Any, most: int = 60) -> str:
    """Text of a file for a message: printable, and not long."""
    try:
        whole = str(text)
    except RecursionError:
        whole = f"a {type(text).__name__} of many levels"
    line = "".join(c if c.isprintable() else "�" for c in whole[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"
