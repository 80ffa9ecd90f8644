"""Calls of `tessera.xp` beyond the array API, written once for it and for NumPy: ``call(xp, *arrays)`` and ``call(numpy, *arrays)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

NAN, INF = np.nan, np.inf


class Case(NamedTuple):
    """``names`` are the functions that the case is for; ``smooth`` says that derivatives exist around the arguments."""

    names: str
    call: Callable
    args: tuple
    smooth: bool = False
    bound: float = 1e-6
    reference: Callable | None = None

    @property
    def id(self) -> str:
        return f"{self.names.replace(' ', '_')}-{'-'.join('x'.join(map(str, np.shape(a))) or '0d' for a in self.args)}"


def f(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng((seed, *shape)).uniform(low, high, shape)
    return np.asarray(made, np.float32)


def i(*shape: int, low: int = -9, high: int = 9, seed: int = 0, dtype: Any = np.int32) -> np.ndarray:
    return np.asarray(np.random.default_rng((seed, *shape)).integers(low, high, shape), dtype)


def holed(*shape: int) -> np.ndarray:
    x = f(*shape)
    x.reshape(-1)[::3] = NAN
    return x


EDGES = np.float32([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.5, 2.5, 1e-40, 3e38, 0.5, -0.5])
SHAPES = [(), (1,), (5,), (0,), (3, 4), (2, 0), (2, 3, 4)]
SQUARE = f(4, 4, seed=7)


def each(names: str, call: Callable, shapes: list = SHAPES, smooth: bool = False, **how: Any) -> list[Case]:
    return [Case(names, call, (f(*s, **how),), smooth and 0 not in s) for s in shapes]


def named(names: str, arguments: list[tuple], smooth: bool = False, **how: Any) -> list[Case]:
    """Functions of arrays alone."""
    return [Case(n, lambda ns, *a, n=n: getattr(ns, n)(*a), given, smooth, **how) for n in names.split() for given in arguments]


PAIRS = [(f(3, 4), f(3, 4, seed=1)), (f(3, 1), f(4, seed=1)), (f(0, 3), f(1, 3)), (f(), f(2, 3)), (EDGES, EDGES[::-1].copy())]
INT_PAIRS = [(i(3, 4), i(3, 4, seed=1)), (i(5, dtype=np.int64), i(5, seed=1, low=1, dtype=np.int64)), (i(4, low=0, dtype=np.uint8), i(4, low=1, seed=1, dtype=np.uint8))]

ELEMENTWISE = [
    *named("deg2rad rad2deg degrees radians fabs", [(f(3, 4),), (f(),), (f(0,),), (EDGES,)]),
    *each("deg2rad", lambda ns, x: ns.deg2rad(x), smooth=True),
    *each("cbrt", lambda ns, x: ns.cbrt(x)), Case("cbrt", lambda ns, x: ns.cbrt(x), (EDGES[EDGES != np.float32(1e-40)],)),
    *each("cbrt", lambda ns, x: ns.cbrt(x), [(3, 4)], True, low=0.5),
    *named("arccos arcsin arctanh", [(f(3, 4, low=-0.9, high=0.9),)]), *named("arctan arcsinh", [(f(3, 4),)]), *named("arccosh", [(f(3, 4, low=1.5),)]),
    *named("arctan2 true_divide", PAIRS[:4]), *named("power float_power", [(f(3, 4, low=0.5), f(4))], True),
    *named("mod fmod", [(f(3, 4), f(4, low=0.5)), (f(4), -f(4, low=0.5)), INT_PAIRS[1]]),
    *named("fmax fmin", PAIRS), *named("fmax fmin", INT_PAIRS), *named("divmod", [(f(3, 4), f(4, low=0.5)), INT_PAIRS[1]]),
    *named("modf", [(f(3, 4),), (EDGES,)]), *named("frexp", [(f(3, 4),), (EDGES,), (f(0,),)]),
    Case("ldexp", lambda ns, x, n: ns.ldexp(x, n), (EDGES[:8], np.int32([0, 1, -3, 5, 300, -300, 127, -149]))),
    Case("ldexp", lambda ns, x, n: ns.ldexp(x, n), (f(3, 4), i(4)), True),
    *named("nextafter", PAIRS), *named("spacing", [(f(3, 4),), (np.float32([1, -1, 2, 1e10]),)]),
    *named("heaviside", [(EDGES, np.float32(0.5)), (f(3, 4), f(4))]), *named("logaddexp2", PAIRS[:4]), *named("logaddexp2", PAIRS[:2], True),
    *named("gcd lcm", [(i(3, 4), i(4, seed=1)), (i(5, dtype=np.int64, low=-900, high=900), i(5, seed=1, dtype=np.int64)), (np.int32([0, 0, 5]), np.int32([0, 7, 0]))]),
    *[Case("bitwise_count", lambda ns, x: ns.bitwise_count(x), (i(6, low=0 if dt in "BHIQ" else -99, high=100, dtype=dt),)) for dt in "bhilBHIQ"],
    Case("bitwise_count", lambda ns, x: ns.bitwise_count(x), (np.int8([-128, 127, 0]),)),
    *named("isneginf isposinf isreal iscomplex", [(EDGES,), (f(2, 0),)]),
    *named("fix rint", [(EDGES,), (f(3, 4),)]), *named("fix", [(i(3),)], reference=lambda ns, x: x),
    *[Case("around", lambda ns, x, d=d: ns.around(x, d), (f(3, 4, low=-200, high=200),), bound=1e-5) for d in (0, 1, 2, -1)],
    Case("around", lambda ns, x: ns.around(x, -1), (np.int64([5, 15, 25, -5, -14, 149]),)),
    *named("nan_to_num", [(EDGES,), (f(0,),), (i(3),)]), Case("nan_to_num", lambda ns, x: ns.nan_to_num(x, nan=7.0, posinf=8.0, neginf=-9.0), (EDGES,)),
    *named("isclose", PAIRS), Case("isclose", lambda ns, a, b: ns.isclose(a, b, equal_nan=True), (EDGES, EDGES)),
    Case("isclose", lambda ns, a: ns.isclose(a, a + 1e-6), (f(5),)), Case("isclose", lambda ns, a: ns.isclose(a, a + 1), (i(5, dtype=np.int64),)),
    *named("allclose array_equal array_equiv", [(f(3, 4), f(3, 4)), (f(3, 4), f(3, 4, seed=1)), (f(0,), f(0,))]),
    Case("array_equal", lambda ns, a: ns.array_equal(a, a, equal_nan=True), (EDGES,)), Case("array_equal", lambda ns, a, b: ns.array_equal(a, b), (f(3), f(4))),
    Case("array_equiv", lambda ns, a, b: ns.array_equiv(a, b), (np.ones((2, 3), "f"), np.ones(3, "f"))),
    Case("array_equiv", lambda ns, a, b: ns.array_equiv(a, b), (f(2), f(3))),
    Case("select", lambda ns, x: ns.select([x > 1, x > 0, x > -1], [x, x * 2, x * 3], 5.0), (f(3, 4),), True),
    Case("piecewise", lambda ns, x: ns.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * v]), (f(3, 4),), True),
    Case("piecewise", lambda ns, x: ns.piecewise(x, [x < -1], [1.5, 2.5]), (f(5),)),
    Case("choose", lambda ns, a, x, y, z: ns.choose(a, [x, y, z]), (i(3, 4, low=0, high=3), f(3, 4), f(4), f(3, 1)), True),
    Case("choose", lambda ns, a, x, y: ns.choose(a, [x, y], mode="wrap"), (i(4), f(4), f(4, seed=1))),
    Case("vectorize", lambda ns, x, y: ns.vectorize(lambda a, b: a * b + 1)(x, y), (f(3, 1), f(4))),
    *named("absolute", [(EDGES,)]), *named("invert bitwise_not", [(i(4),)]), *named("left_shift right_shift", [(i(4, low=0), i(4, low=0, high=5, seed=1))]),
]  # fmt: skip

STATISTICS = [
    *[Case(n, lambda ns, x, n=n, k=k: getattr(ns, n)(x, **k), (x,), bound=2e-6)
      for n in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "ptp", "amax", "amin")
      for x, k in ((holed(3, 4) if n.startswith("nan") else f(3, 4), {}), (holed(2, 3, 4), {"axis": -1, "keepdims": True}), (f(5), {"axis": 0}),
                   (holed(2, 3, 4), {"axis": (0, -1)}))],
    *[Case(n, lambda ns, x, n=n: getattr(ns, n)(x, axis=-1), (f(3, 4),), True) for n in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "ptp")],
    *[Case(n, lambda ns, x, n=n, a=a: getattr(ns, n)(x, axis=a), (holed(3, 5),)) for n in ("nanargmax", "nanargmin", "nancumsum", "nancumprod") for a in (0, -1, None)],
    *[Case("nanvar nanstd", lambda ns, x, d=d: (ns.nanvar(x, ddof=d), ns.nanstd(x, ddof=d)), (holed(4, 3),)) for d in (0, 1, 2)],
    *named("nansum nanmax", [(i(3, 4),)]), Case("nanmean", lambda ns, x: ns.nanmean(x, axis=0), (np.float32([[NAN, 1], [NAN, 2]]),)),
    Case("average", lambda ns, x: ns.average(x, axis=1), (f(3, 4),), True), Case("average", lambda ns, x, w: ns.average(x, 1, w), (f(3, 4), f(4, low=0.1)), True),
    Case("average", lambda ns, x, w: ns.average(x, weights=w, returned=True), (f(3, 4), f(3, 4, low=0.1)), True),
    Case("average", lambda ns, x, w: ns.average(x, (0, 1), w), (f(3, 4, 2), f(3, 4, low=0.1))),
    *[Case(n, lambda ns, x, n=n, a=a: getattr(ns, n)(x, axis=a), (x,), bound=2e-6) for n in ("median", "nanmedian")
      for x, a in ((f(5), None), (f(3, 4), 0), (f(2, 3, 4), (0, 2)), (holed(3, 5), -1), (f(1, 1), None), (i(3, 4), 1), (np.float32([INF, 1, INF]), 0))],
    *[Case(n, lambda ns, x, n=n, q=q, k=k: getattr(ns, n)(x, q, **k), (x,), bound=3e-6) for n in ("quantile", "nanquantile")
      for x in (f(3, 5), holed(3, 5)) for q, k in ((0.3, {}), ([0.0, 0.25, 1.0], {"axis": -1}), (0.7, {"axis": 0, "keepdims": True}))],
    *[Case("quantile", lambda ns, x, m=m: ns.quantile(x, [0.1, 0.5, 0.77], axis=1, method=m), (f(3, 6),)) for m in ("lower", "higher", "midpoint", "nearest")],
    *[Case(n, lambda ns, x, n=n: getattr(ns, n)(x, [10.0, 50.0, 90.0], axis=0), (f(7, 2),), True, bound=3e-6) for n in ("percentile", "nanpercentile")],
    Case("median", lambda ns, x: ns.median(x, axis=1, keepdims=True), (f(3, 4),), True), Case("quantile", lambda ns, x: ns.quantile(x, 0.3), (f(9),), True),
    Case("cov", lambda ns, x: ns.cov(x), (f(3, 5),), True), Case("cov", lambda ns, x, y: ns.cov(x, y, bias=True), (f(5), f(5, seed=1)), True),
    Case("cov", lambda ns, x: ns.cov(x, rowvar=False, ddof=0), (f(5, 3),)), Case("cov", lambda ns, x: ns.cov(x), (f(6),)),
    Case("cov", lambda ns, x, w: ns.cov(x, aweights=w), (f(3, 5), f(5, low=0.1))), Case("cov", lambda ns, x, w: ns.cov(x, fweights=w), (f(3, 5), i(5, low=1, dtype=np.int64))),
    Case("corrcoef", lambda ns, x: ns.corrcoef(x), (f(3, 5),), True), Case("corrcoef", lambda ns, x, y: ns.corrcoef(x, y), (f(5), f(5, seed=1))),
    *[Case("digitize", lambda ns, x, b, r=r: ns.digitize(x, b, right=r), (x, b)) for r in (False, True)
      for x, b in ((f(3, 4), np.float32([-1, 0, 1])), (f(4), np.float32([1, 0, -1])), (np.float32([0, 1, NAN]), np.float32([0, 1])), (f(9), np.linspace(-2, 2, 100).astype("f")))],
    *[Case("histogram", lambda ns, x, k=k: ns.histogram(x, **k), (x,)) for x in (f(50), f(5, 7), np.float32([1, 1, 1]))
      for k in ({}, {"bins": 5, "range": (-1, 1)}, {"bins": 4, "density": True})],
    Case("histogram", lambda ns, x, b, w: ns.histogram(x, b, weights=w), (f(20), np.float32([-2, -1, 0.5, 2]), f(20, seed=3)), bound=3e-6),
    Case("histogram_bin_edges", lambda ns, x: ns.histogram_bin_edges(x, 7), (f(20),)), Case("histogram_bin_edges", lambda ns, x: ns.histogram_bin_edges(x, 3), (f(0,),)),
    Case("histogram2d", lambda ns, x, y: ns.histogram2d(x, y, bins=[3, 4]), (f(30), f(30, seed=1))), Case("histogram2d", lambda ns, x, y: ns.histogram2d(x, y, bins=4, density=True), (f(30), f(30, seed=1))),
]  # fmt: skip

CALCULUS = [
    *[Case("diff", lambda ns, x, k=k: ns.diff(x, **k), (f(3, 5),), True) for k in ({}, {"n": 2}, {"axis": 0}, {"n": 0}, {"prepend": 0.0, "append": 1.0})],
    Case("diff", lambda ns, x: ns.diff(x, n=3), (f(2),)), *named("diff", [(i(5),), (np.array([True, False, False]),), (f(3, 0),)]),
    Case("ediff1d", lambda ns, x: ns.ediff1d(x, to_begin=np.float32([1, 2]), to_end=np.float32([9])), (f(2, 3),)),
    Case("gradient", lambda ns, x: ns.gradient(x), (f(6),), True), Case("gradient", lambda ns, x: list(ns.gradient(x, 0.5)), (f(3, 4),)), Case("gradient", lambda ns, x: ns.gradient(x, edge_order=2, axis=-1), (f(3, 5),), True, bound=3e-6),
    Case("gradient", lambda ns, x, h: ns.gradient(x, h), (f(5), np.float32([0, 1, 1.5, 3, 4])), bound=3e-6), Case("gradient", lambda ns, x, h: ns.gradient(x, h, edge_order=2), (f(5), np.float32([0, 1, 1.5, 3, 4])), bound=1e-5),
    Case("gradient", lambda ns, x: ns.gradient(x), (f(2),)),
    Case("trapezoid", lambda ns, y: ns.trapezoid(y, dx=0.5), (f(3, 5),), True, bound=3e-6), Case("trapezoid", lambda ns, y, x: ns.trapezoid(y, x, axis=0), (f(5, 2), np.float32([0, 1, 3, 4, 7])), True, bound=3e-6), Case("trapezoid", lambda ns, y: ns.trapezoid(y), (f(1),)),
    Case("unwrap", lambda ns, x: ns.unwrap(x), (f(3, 8, low=-9, high=9),), bound=1e-5), Case("unwrap", lambda ns, x: ns.unwrap(x, period=4), (f(8, low=-9, high=9),), bound=1e-5), Case("unwrap", lambda ns, x: ns.unwrap(x, discont=5.0, axis=0), (f(8, 2, low=-9, high=9),), bound=1e-5),
    *[Case("interp", lambda ns, x, a, b, k=k: ns.interp(x, a, b, **k), (f(3, 4, low=-3, high=3), np.float32([-2, -1, 0.3, 1.7]), f(4, seed=5)), not k, bound=1e-5) for k in ({}, {"left": 9.0, "right": -9.0}, {"period": 3.0})],
    Case("interp", lambda ns, x, a, b: ns.interp(x, a, b), (np.float32([0.0, 1.0, 5.0]), np.float32([1.0]), np.float32([2.0]))), Case("interp", lambda ns, x, a, b: ns.interp(x, a, b), (np.float32([NAN, INF, -INF, 1.0]), np.float32([1.0, 2.0]), np.float32([2.0, 4.0]))), Case("interp", lambda ns, x, a, b: ns.interp(x, a, b), (f(9), np.linspace(-1, 1, 200).astype("f"), f(200)), bound=1e-4),
    *[Case(n, lambda ns, a, v, n=n, m=m: getattr(ns, n)(a, v, m), (f(a), f(b, seed=1)), m == "full", bound=3e-6) for n in ("convolve", "correlate") for m in ("full", "same", "valid") for a, b in ((7, 3), (3, 7), (4, 4), (6, 2))],
    *named("convolve", [(i(5), i(3))]),
    *[Case("polyval", lambda ns, c, x: ns.polyval(c, x), (f(n), f(3, 2)), n == 4, bound=1e-4) for n in (0, 1, 4, 80)], *named("polyadd polysub polymul", [(f(3), f(5, seed=1))], True, bound=3e-6),
    *[Case("polyder polyint", lambda ns, c, m=m: (ns.polyder(c, m), ns.polyint(c, m)), (f(5),), True) for m in (1, 2)], Case("polyint", lambda ns, c: ns.polyint(c, 2, [1.0, 2.0]), (f(3),)), Case("polyder", lambda ns, c: ns.polyder(c), (f(1),)),
    *[Case("vander", lambda ns, x, k=k: ns.vander(x, **k), (f(4),), True, bound=3e-6) for k in ({}, {"N": 2}, {"N": 6, "increasing": True}, {"N": 0})],
    *named("dot", [(f(3), f(3, seed=1)), (f(3, 4), f(4)), (f(3, 4), f(4, 2)), (f(2, 3, 4), f(5, 4, 3)), (f(), f(2, 3)), (i(3), i(3))], True, bound=3e-6),
    *named("inner", [(f(3), f(3, seed=1)), (f(2, 4), f(3, 4)), (f(), f(3))], True, bound=3e-6), *named("vdot", [(f(2, 3), f(2, 3, seed=1))], True, bound=3e-6),
    *named("matvec", [(f(2, 3, 4), f(4))], True, bound=3e-6), *named("vecmat", [(f(2, 3), f(3, 4))], True, bound=3e-6),
    *named("kron", [(f(2), f(3)), (f(2, 3), f(3, 2)), (f(2, 2), f(3)), (f(), f(3))], True),
    *named("cross", [(f(3), f(3, seed=1)), (f(4, 3), f(3))], True), Case("cross", lambda ns, a, b: ns.cross(a, b, axis=0), (f(3, 4), f(3, 4, seed=1)), bound=3e-6),
]  # fmt: skip

SHAPED = [
    *[Case("diagonal", lambda ns, x, k=k: ns.diagonal(x, **k), (x,), True) for x in (f(3, 4), f(4, 2)) for k in ({}, {"offset": 1}, {"offset": -2}, {"offset": 7})],
    Case("diagonal", lambda ns, x: ns.diagonal(x, 1, -1, 0), (f(2, 3, 4),), True), *[Case("diag diagflat", lambda ns, x, k=k: (ns.diag(x, k), ns.diagflat(x, k)), (f(3),), True) for k in (0, 2, -1)],
    *[Case("diag", lambda ns, x, k=k: ns.diag(x, k), (x,)) for x in (f(3, 4), f(0,), f(1), i(3)) for k in (0, -1)],
    Case("trace", lambda ns, x: ns.trace(x), (f(3, 4),), True), Case("trace", lambda ns, x: ns.trace(x, 1, 2, 0), (f(2, 3, 4),), True), *named("trace", [(i(3, 3),)]),
    Case("fill_diagonal", lambda ns, x: ns.fill_diagonal(x, 5.0, inplace=False) if ns is not np else _filled(x, 5.0), (f(3, 4),), True), Case("fill_diagonal", lambda ns, x, v: ns.fill_diagonal(x, v, inplace=False) if ns is not np else _filled(x, v), (f(4, 3), f(3)), True),
    *[Case("tri", lambda ns, k=k: ns.tri(3, 5, k), ()) for k in (0, 1, -1)],
    *[Case("tril_indices triu_indices", lambda ns, k=k: (*ns.tril_indices(4, k, 3), *ns.triu_indices(4, k, 3)), ()) for k in (0, 1, -2)],
    Case("tril_indices_from triu_indices_from diag_indices_from", lambda ns, x: (*ns.tril_indices_from(x), *ns.triu_indices_from(x, 1), *ns.diag_indices_from(x)), (f(3, 3),)), Case("diag_indices", lambda ns: ns.diag_indices(4, 3), ()),
    Case("mask_indices", lambda ns: ns.mask_indices(3, ns.triu, 1, size=3) if ns is not np else np.mask_indices(3, np.triu, 1), ()),
    Case("indices", lambda ns: ns.indices((2, 3)), ()), Case("indices", lambda ns: ns.indices((2, 3), sparse=True), ()), Case("ix_", lambda ns, a, b: ns.ix_(a, b), (i(3), i(2))),
    Case("unravel_index", lambda ns, x: ns.unravel_index(x, (3, 4, 2)), (i(5, low=0, high=24),)), Case("ravel_multi_index", lambda ns, a, b: ns.ravel_multi_index((a, b), (3, 4)), (i(5, low=0, high=3), i(5, low=0, high=4))),
    *[Case("ravel_multi_index", lambda ns, a, b, m=m: ns.ravel_multi_index((a, b), (3, 4), mode=m), (i(5), i(5, seed=1))) for m in ("wrap", "clip")],
    Case("mgrid ogrid", lambda ns: (ns.mgrid[0:3, 1:5], *ns.ogrid[0:3, 1:5]), ()), Case("mgrid", lambda ns: ns.mgrid[0:1:5j], ()), Case("identity", lambda ns: ns.identity(3), ()), Case("array copy", lambda ns, x: (ns.array(x, ndmin=3), ns.copy(x)), (f(3),), True),
    Case("logspace", lambda ns: (ns.logspace(0, 3, 5), ns.logspace(0, 3, 4, endpoint=False, base=2.0)), (), bound=2e-6), Case("geomspace", lambda ns: (ns.geomspace(1, 1000, 4), ns.geomspace(-2, -32, 5)), (), bound=2e-6),
    Case("fromfunction", lambda ns: ns.fromfunction(lambda a, b: a + 2 * b, (3, 4)), ()), *[Case("hanning hamming blackman bartlett", lambda ns, n=n: (ns.hanning(n), ns.hamming(n), ns.blackman(n), ns.bartlett(n)), (), bound=2e-6) for n in (1, 2, 7)],
    *[Case("kaiser", lambda ns, n=n: ns.kaiser(n, 8.6), (), bound=2e-6) for n in (1, 2, 7)],
    *each("ravel", lambda ns, x: (ns.ravel(x), ns.ravel(x, order="F")), smooth=True), *each("atleast_1d atleast_2d atleast_3d", lambda ns, x: (ns.atleast_1d(x), ns.atleast_2d(x), ns.atleast_3d(x)), smooth=True),
    *[Case("hstack vstack dstack column_stack", lambda ns, x, y: (ns.hstack([x, y]), ns.vstack([x, y]), ns.dstack([x, y]), ns.column_stack([x, y])), a, True) for a in ((f(3), f(3, seed=1)), (f(2, 3), f(2, 3, seed=1)))],
    Case("block", lambda ns, a, b, c: ns.block([[a, b], [c, c]]), (f(2, 2), f(2, 2), f(1, 2)), True), Case("block", lambda ns, a, b: ns.block([a, b]), (f(2), f(3))),
    *[Case("array_split", lambda ns, x, k=k: ns.array_split(x, k, 1), (f(2, 7),), True) for k in (3, [2, 5], 9)], Case("hsplit vsplit dsplit", lambda ns, x: (*ns.hsplit(x, 2), *ns.vsplit(x, [1]), *ns.dsplit(x, 3)), (f(2, 4, 6),), True), Case("hsplit", lambda ns, x: ns.hsplit(x, 2), (f(4),)),
    Case("append", lambda ns, x, y: (ns.append(x, y), ns.append(x, y, axis=0)), (f(2, 3), f(1, 3)), True),
    *[Case("delete", lambda ns, x, o=o, a=a: ns.delete(x, o, axis=a), (f(4, 5),), True) for o in (1, -1, slice(0, 3, 2), [0, 2]) for a in (0, 1, None)],
    Case("delete", lambda ns, x: ns.delete(x, np.arange(0, 40, 2)), (f(40),)), Case("delete", lambda ns, x: ns.delete(x, slice(None)), (f(4),)),
    *[Case("insert", lambda ns, x, o=o, a=a: ns.insert(x, o, 7.0, axis=a), (f(4, 5),), True) for o in (1, -1, [0, 2], [3, 1, 1]) for a in (0, 1, None)], Case("insert", lambda ns, x, v: ns.insert(x, 1, v, axis=0), (f(3, 4), f(4))), Case("insert", lambda ns, x, v: ns.insert(x, [1, 3], v), (f(4), f(2))), Case("insert", lambda ns, x, v: ns.insert(x, 2, v), (f(4), f(3))),
    *[Case("rot90", lambda ns, x, k=k: ns.rot90(x, k), (f(2, 3),), True) for k in (0, 1, 2, 3, -1)], Case("rot90", lambda ns, x: ns.rot90(x, 1, (-1, 0)), (f(2, 3, 4),)), Case("fliplr flipud", lambda ns, x: (ns.fliplr(x), ns.flipud(x)), (f(2, 3),), True),
    *[Case("rollaxis", lambda ns, x, a=a, s=s: ns.rollaxis(x, a, s), (f(2, 3, 4),), True) for a, s in ((2, 0), (0, 2), (0, 3), (-1, 1), (1, -1))], *[Case("resize", lambda ns, x, s=s: ns.resize(x, s), (f(2, 3),), True) for s in ((3, 4), 4, (2, 0))], Case("resize", lambda ns, x: ns.resize(x, (2, 2)), (f(0,),)),
    Case("apply_along_axis", lambda ns, x: ns.apply_along_axis(lambda v: v - v.mean(), 1, x), (f(3, 4, 2),), True), Case("apply_along_axis", lambda ns, x: ns.apply_along_axis(lambda v: v.sum(), 0, x), (f(3, 4),), True, bound=3e-6), Case("apply_over_axes", lambda ns, x: ns.apply_over_axes(ns.sum, x, [0, -1]), (f(2, 3, 4),), True, bound=3e-6),
    *[Case("packbits", lambda ns, x, k=k: ns.packbits(x, **k), (i(3, 11, low=0, high=2, dtype=np.uint8),)) for k in ({}, {"axis": 1}, {"axis": 0, "bitorder": "little"})],
    *[Case("unpackbits", lambda ns, x, k=k: ns.unpackbits(x, **k), (i(3, 2, low=0, high=255, dtype=np.uint8),)) for k in ({}, {"axis": 1, "count": 11}, {"axis": 0, "bitorder": "little", "count": -3}, {"count": 60})],
    Case("isin", lambda ns, x, t: (ns.isin(x, t), ns.isin(x, t, invert=True)), (i(3, 4), i(5, seed=2))), Case("isin", lambda ns, x, t: ns.isin(x, t), (np.float32([1, NAN, 3]), np.float32([NAN, 3]))), Case("isin", lambda ns, x, t: ns.isin(x, t), (i(3), i(0,))),
    Case("i0", lambda ns, x: ns.i0(x), (f(3, 4, low=-20, high=20),)), Case("sinc", lambda ns, x: ns.sinc(x), (np.float32([0, 1e-4, 2e-3, 3.5e-3, 0.5, 1, 2.25, -7.5]),), bound=1e-5), Case("sinc i0", lambda ns, x: (ns.sinc(x), ns.i0(x)), (f(3, 4),), True, bound=1e-5),
]  # fmt: skip


def _filled(x: np.ndarray, v: Any) -> np.ndarray:
    x = x.copy()
    np.fill_diagonal(x, v)
    return x


CASES = [*ELEMENTWISE, *STATISTICS, *CALCULUS, *SHAPED]
