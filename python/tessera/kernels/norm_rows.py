"""Layer norm and RMS norm of whole arrays, and their gradients: views, tiles, and which kernels of `norm` run."""

from __future__ import annotations

from typing import Any

from . import arrays, checks, machine, reduce, schedule
from .layout import Layout, along, strides_with
from .norm import Rows, Saved, Statistics, from_statistics, parameters, pieces, pieces_backward, statistics, whole, whole_backward


def _operand(x: Any, name: str, width: int) -> Any:
    """A scale or a shift, if there is one."""
    return None if x is None else checks.shape(checks.floating(x, name), (width,), name, "the last axis of `x` has")


def forward(
    x: Any, scale: Any, shift: Any, eps: float, centre: bool, keep: bool, *, out_dtype: Any, rows: Any, block: Any
) -> tuple[Any, Any, Any]:
    """The result, the means and the reciprocal deviations; the two are None unless they are kept."""
    x = checks.floating(x, "x")
    axis = checks.one_axis(-1, x)
    scale, shift = _operand(scale, "scale", x.shape[-1]), _operand(shift, "shift", x.shape[-1])
    rows, block = checks.extents(rows, block)
    of = arrays.dtype_of(x)
    wide = checks.accumulator(of)
    y = arrays.empty_like(x, checks.out_dtype(out_dtype, of))
    stats = [arrays.empty(x.shape[:-1], wide, x) if kept else None for kept in (keep and centre, keep)]
    if not arrays.size(x):
        # Rows without elements have no mean.
        stats = [s if s is None else arrays.full(s.shape, float("nan"), wide, x) for s in stats]
        return y, *stats
    layout = _layout((x, y), stats, axis)
    tile = schedule.rows(*layout.sizes, arrays.itemsize(x), 1, rows, block, groups=machine.groups(x))
    xs, ys = layout.view(x), layout.view(y)
    means, rstds = (layout.view_without(s if s is not None else x[..., 0]) for s in stats)
    row = x[(0,) * axis]
    P, M, N = layout.sizes
    is_shared = not (keep or tile.whole or block) and checks.free(x)
    shares = schedule.shared(P * M, N, arrays.itemsize(x), groups=machine.groups(x)) if is_shared else None
    for at in layout.launches:
        given = Rows(xs[at], row if scale is None else scale, row if shift is None else shift, centre, scale is not None, shift is not None)
        if tile.whole:
            whole(given, ys[at], means[at], rstds[at], arrays.scalar(eps, wide), tile.rows, keep)
        elif shares:
            few(given, ys[at], arrays.scalar(eps, wide), shares)
        else:
            pieces(given, ys[at], means[at], rstds[at], arrays.scalar(eps, wide), tile.block, keep)
    return y, *stats


def few(given: Rows, y: Any, eps: Any, shares: schedule.Shares) -> None:
    """Few long rows ``[P, M, N]``: several groups share each, in two launches."""
    x = given.x
    P, M, _ = x.shape
    # One of a few numbers, so that most new shapes need no new compilation.
    C, wide = schedule.parts(shares.chunks), checks.accumulator(arrays.dtype_of(x))
    means, squares = (arrays.empty((P, M, C), wide, x) for _ in range(2))
    statistics(x, means, squares, shares.pieces, eps, shares.block, given.centre)
    from_statistics(given, means, squares, y, shares.pieces, eps, shares.block)


def backward(
    dy: Any, x: Any, scale: Any, mean: Any, rstd: Any, centre: bool, sums: bool | None, *, out_dtype: Any, rows: Any, block: Any
) -> tuple[Any, Any, Any]:
    """dx, and where ``sums`` asks for them dscale and, with ``centre``, dshift."""
    x, dy = checks.floating(x, "x"), checks.floating(dy, "dy")
    axis = checks.one_axis(-1, x)
    checks.shape(dy, x.shape, "dy", "`x` has")
    scale = _operand(scale, "scale", x.shape[-1])
    wanted = [("mean", mean), ("rstd", rstd)] if centre else [("rstd", rstd)]
    stats = [checks.shape(checks.floating(s, name), x.shape[:-1], name, "the rows of `x` have") for name, s in wanted]
    stats = stats if centre else [None, *stats]
    rows, block = checks.extents(rows, block)
    sums = scale is not None if sums is None else sums
    of = arrays.dtype_of(x)
    wide = checks.accumulator(of)
    dx = arrays.empty_like(x, checks.out_dtype(out_dtype, of))
    of_sums = of if scale is None else arrays.dtype_of(scale)
    if not arrays.size(x):
        zeros = [arrays.full(x.shape[-1:], 0, of_sums, x) if wanted else None for wanted in (sums, sums and centre)]
        return dx, *zeros
    layout = _layout((x, dy, dx), stats, axis)
    P, M, N = layout.sizes
    tile = schedule.rows(P, M, N, arrays.itemsize(x), 2, rows, block, groups=machine.groups(x))
    shares = schedule.shares(P, M, N, tile.rows, groups=machine.groups(x)) if sums and tile.whole else None
    strip = schedule.strip(P, M, N, arrays.itemsize(x))
    G, chunk = shares or schedule.chunks(P * -(-N // strip.columns), M, strip.block, groups=machine.groups(x))
    count = len(layout.launches)
    parts = [arrays.empty((count, P, G, N), wide, x) if wanted else None for wanted in (sums, sums and centre)]
    views = [layout.view(a) for a in (dy, x, dx)]
    means, rstds = (layout.view_without(s if s is not None else x[..., 0]) for s in stats)
    for i, at in enumerate(layout.launches):
        d, t, into = (v[at] for v in views)
        row = t[0, 0]
        saved = Saved(d, t, row if scale is None else scale, means[at], rstds[at], centre, scale is not None)
        # Results that are not requested are not touched: any array of the right shape stands in for them.
        held = [arrays.expand(row, (P, G, N)) if part is None else part[i] for part in parts]
        if not tile.whole:
            pieces_backward(saved, into, arrays.scalar(0, wide), tile.block)
        elif shares:
            whole_backward(saved, into, *held, chunk, tile.rows, True)
        else:
            none = arrays.expand(row, (P, -(-M // tile.rows), N))
            whole_backward(saved, into, none, none, tile.rows, tile.rows, False)
        if sums and not shares:
            parameters(d, t, Statistics(means[at], rstds[at], centre), *held, chunk, strip.block, strip.columns)
    return dx, *(
        None if part is None else reduce.forward(part.reshape(count * P * G, N), 0, "sum", False, of_sums, None, None)
        for part in parts
    )


def _layout(operands: tuple, stats: list, axis: int) -> Layout:
    first = operands[0]
    strides = [arrays.strides(x) for x in operands] + [strides_with(s, axis) for s in stats if s is not None]
    return along(tuple(first.shape), tuple(strides), axis, False)
