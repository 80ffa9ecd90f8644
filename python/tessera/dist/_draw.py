"""Pictures of placements: the blocks of an array, with the ranks that hold them."""

from __future__ import annotations

from html import escape
from typing import Any


#: The most blocks of a dim that are drawn.
_MOST = 16
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f")


class Drawing(str):
    """A picture of a placement, as text. ``.svg()`` gives it as SVG."""

    _svg: str

    def __new__(cls, text: str, svg: str) -> Drawing:
        self = super().__new__(cls, text)
        self._svg = svg
        return self

    def svg(self) -> str:
        """The picture as SVG."""
        return self._svg

    def _repr_svg_(self) -> str:
        return self._svg

    def __repr__(self) -> str:
        return str(self)


def _ranks(ranks: list[int]) -> str:
    """``0-3,6``."""
    spans: list[list[int]] = []
    for r in ranks:
        if spans and spans[-1][1] == r - 1:
            spans[-1][1] = r
        else:
            spans.append([r, r])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _text(runs: list) -> str:
    slices = []
    for start, step, count in runs[:2]:
        end = start + (count - 1) * step + 1
        slices.append(f"{start}:{end}" + (f":{step}" if step > 1 else ""))
    return "+".join(slices) + ("+…" if len(runs) > 2 else "") if runs else "nothing"


def draw(x: Any) -> Drawing:
    """The picture of an array: the last two dims that are split are down and across, one alone is down, and each cell lists its ranks."""
    rows = x._rows
    varied = [d for d in range(x.ndim) if len({repr(runs[d]) for _, runs, _ in rows}) > 1]
    across = varied[-1] if len(varied) > 1 else None
    down = varied[-2] if len(varied) > 1 else varied[0] if varied else None
    cells: dict[tuple[str, str], list[str]] = {}
    for ranks, runs, contribution in rows:
        key = (_text(runs[down]) if down is not None else "", _text(runs[across]) if across is not None else "")
        mark = f"{x._placed.combine} {contribution}: " if x._placed.combine else ""
        cells.setdefault(key, []).append(mark + _ranks(ranks))
    lines, columns = (list(dict.fromkeys(k[i] for k in cells))[:_MOST] for i in (0, 1))
    title = f"{x.shape} {x.dtype}, {x._placed.spec()!r} on {x.mesh!r}"
    dims = [f"dim {d} {word}" for d, word in ((down, "down"), (across, "across")) if d is not None]
    note = f"{' and '.join(dims) or 'one block'}; a cell lists the ranks that hold the block"

    def cell(line: str, column: str) -> str:
        held = cells.get((line, column), [])
        return "; ".join(held[:4]) + ("; …" if len(held) > 4 else "")

    table = [["", *columns], *([line, *(cell(line, c) for c in columns)] for line in lines)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    rule = "+".join("-" * (w + 2) for w in widths)
    text = [title, note, ""]
    for at, row in enumerate(table):
        text.append(" | ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip())
        if at < len(table) - 1:
            text.append(rule)
    return Drawing("\n".join(text), _svg(title, lines, columns, cell))


def _svg(title: str, lines: list[str], columns: list[str], cell: Any) -> str:
    wide = max([10, *(len(cell(a, b)) for a in lines for b in columns), *(len(c) for c in columns)]) * 8 + 16
    tall, left, top = 44, max([4, *(len(line) for line in lines)]) * 8 + 16, 56
    width, height = left + wide * len(columns) + 8, top + tall * len(lines) + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, len(title) * 8)}" height="{height}" font-family="monospace" font-size="13">']
    parts.append(f'<text x="8" y="18">{escape(title)}</text>')
    for i, column in enumerate(columns):
        parts.append(f'<text x="{left + wide * i + 8}" y="{top - 8}">{escape(column)}</text>')
    for j, line in enumerate(lines):
        parts.append(f'<text x="8" y="{top + tall * j + 26}">{escape(line)}</text>')
        for i, column in enumerate(columns):
            colour = _COLOURS[(j * len(columns) + i) % len(_COLOURS)]
            x, y = left + wide * i, top + tall * j
            parts.append(f'<rect x="{x}" y="{y}" width="{wide - 4}" height="{tall - 4}" fill="{colour}" fill-opacity="0.35" stroke="{colour}"/>')
            parts.append(f'<text x="{x + 8}" y="{y + 26}">{escape(cell(line, column))}</text>')
    return "\n".join([*parts, "</svg>"])


