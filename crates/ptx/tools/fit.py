"""Derives the polynomial coefficients of src/scalar/quick and src/scalar/double.

Run: python3 crates/ptx/tools/fit.py [name ...]      (needs mpmath)

Method: weighted least squares at Chebyshev nodes, reweighted towards the largest errors (Lawson),
which brings the polynomial near minimax. Coefficients are rounded one at a time from the lowest
degree, the rest being fitted again after each, so that the rounding of one is made good by the
others. The printed bound is the largest weighted error of the rounded polynomial on a fine grid.
"""

import struct
import sys

import mpmath as mp

mp.mp.prec = 320
L2 = mp.log(2)


def even(f, limit):
    """A function of t = x^2 from one of x, by its limit at 0."""
    return lambda t: limit if t < mp.mpf(2) ** -200 else f(mp.sqrt(t))


def near(f, limit):
    return lambda x: limit if abs(x) < mp.mpf(2) ** -100 else f(x)


def g_tanh(x):
    return (mp.tanh(x) / x - 1) / x**2


def g_erf(x):
    return mp.erf(x) / x - 1


def g_log1p(x):
    return (mp.log1p(x) - x) / x**2


def g_expm1(x):
    return (mp.expm1(x) - x) / x**2


def g_sin(x):
    return (mp.sin(x) / x - 1) / x**2


def g_cos(x):
    return (mp.cos(x) - 1 + x**2 / 2) / x**4


def g_asin(x):
    return (mp.asin(x) / x - 1) / x**2


def g_atan(x):
    return (mp.atan(x) / x - 1) / x**2


def g_atanh(x):  # atanh s = s + s t (1/3 + t g(t))
    return ((mp.atanh(x) / x - 1) / x**2 - mp.mpf(1) / 3) / x**2


def g_atanh_all(x):  # atanh s = s + s t g(t)
    return (mp.atanh(x) / x - 1) / x**2


def g_sinh(x):
    return (mp.sinh(x) / x - 1) / x**2


def g_exp(x):  # e^r = 1 + r + r^2 g(r)
    return (mp.expm1(x) - x) / x**2


def g_erfc(x):  # erfc x = 2^(x g(x))
    return mp.log(mp.erfc(x)) / (L2 * x)


def erfcx(q):
    """(1 + 2x) e^(x^2) erfc x of q = (x - 2) / (x + 2)."""
    x = 2 * (1 + q) / (1 - q)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def erfcx_weight(q):
    x = 2 * (1 + q) / (1 - q)
    return mp.erfc(x) / erfcx(q)


half, third = mp.mpf(1) / 2, mp.mpf(1) / 3
# g, interval, degree, weight: the error that counts is the weight times the error of g.
QUICK = {
    "TANH": (even(g_tanh, -third), 0, 0.303, 3, lambda t: t + 1e-3),
    "TANH_BELOW": (even(lambda y: mp.tanh(y / 4) / y, mp.mpf("0.25")), 0, 4, 3, lambda t: mp.sqrt(t)),
    "INVERSE": (lambda e: 1 / (1 + e), 0, 1, 3, lambda e: 1 + e),
    "ERFC": (near(g_erfc, -2 / mp.sqrt(mp.pi) / L2), 0, 4.0, 6, lambda x: mp.erfc(x) * x * L2 + 1e-12),
    "LOG1P": (near(g_log1p, -half), -0.30, 0.45, 8, lambda x: abs(x) + 1e-3),
    "EXPM1": (near(g_expm1, half), -0.52, 0.72, 6, lambda x: abs(x) + 1e-3),
    "SIN": (even(g_sin, -mp.mpf(1) / 6), 0, 0.6170, 2, lambda t: t + 1e-3),
    "COS": (even(g_cos, mp.mpf(1) / 24), 0, 0.6170, 2, lambda t: t * t + 1e-4),
    "ASIN": (even(g_asin, mp.mpf(1) / 6), 0, 0.2505, 4, lambda t: t + 1e-3),
    "ATAN": (even(g_atan, -third), 0, 1, 7, lambda t: t + 1e-2),
    "ATANH": (even(g_atanh_all, third), 0, 0.02945, 3, lambda t: t + 1e-4),
    "SINH": (even(g_sinh, mp.mpf(1) / 6), 0, 1.01, 2, lambda t: t + 1e-3),
}
DOUBLE = {
    "EXP": (near(g_exp, half), -0.34662, 0.34662, 10, lambda x: x * x + 1e-6),
    "ATANH": (even(g_atanh, mp.mpf(1) / 5), 0, 0.02945, 7, lambda t: t * t + 1e-7),
    "ATANH_ALL": (even(g_atanh_all, third), 0, 0.02945, 7, lambda t: t + 1e-5),
    "SIN": (even(g_sin, -mp.mpf(1) / 6), 0, 0.6170, 6, lambda t: t + 1e-3),
    "COS": (even(g_cos, mp.mpf(1) / 24), 0, 0.6170, 6, lambda t: t * t + 1e-4),
    "ASIN": (even(g_asin, mp.mpf(1) / 6), 0, 0.2505, 12, lambda t: t + 1e-3),
    "ATAN": (even(g_atan, -third), 0, 0.1720, 11, lambda t: t + 1e-3),
    "ERF": (even(g_erf, 2 / mp.sqrt(mp.pi) - 1), 0, 1.0, 13, lambda t: 1),
    "ERFCX": (erfcx, -0.3334, 0.5001, 17, erfcx_weight),
}


def to_f32(x):
    return mp.mpf(struct.unpack("<f", struct.pack("<f", float(x)))[0])


def to_f64(x):
    return mp.mpf(float(x))


def fit(values, nodes, weights, powers):
    lawson = [mp.mpf(1)] * len(nodes)
    best, best_error = None, None
    for _ in range(14):
        w2 = [w * w * lam for w, lam in zip(weights, lawson)]
        moments = {p: mp.fsum(w * t**p for w, t in zip(w2, nodes)) for p in range(2 * powers[0], 2 * powers[-1] + 1)}
        a = mp.matrix([[moments[p + q] for q in powers] for p in powers])
        b = mp.matrix([mp.fsum(w * v * t**p for w, v, t in zip(w2, values, nodes)) for p in powers])
        c = list(mp.lu_solve(a, b))
        errors = [abs(w * (v - mp.fsum(ci * t**p for ci, p in zip(c, powers)))) for w, v, t in zip(weights, values, nodes)]
        worst = max(errors)
        if best is None or worst < best_error:
            best, best_error = c, worst
        mean = mp.fsum(errors) / len(errors)
        lawson = [lam * (e / mean + mp.mpf("0.05")) for lam, e in zip(lawson, errors)]
    return best


def derive(table, name, rounded_to):
    g, lo, hi, degree, weight = table[name]
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    n = 4 * degree + 24
    nodes = [(lo + hi) / 2 + (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    values, weights = [g(t) for t in nodes], [mp.mpf(weight(t)) for t in nodes]
    rest, out = list(values), []
    for start in range(degree + 1):
        c = fit(rest, nodes, weights, list(range(start, degree + 1)))
        out.append(rounded_to(c[0]))
        rest = [v - out[-1] * t**start for v, t in zip(rest, nodes)]
    grid = [lo + (hi - lo) * (2 * i + 1) / 400 for i in range(200)]
    worst = max(abs(weight(t) * (g(t) - mp.polyval(out[::-1], t))) for t in grid)
    print(f"/// weighted error 2^{float(mp.log(worst) / L2):.1f} on [{float(lo)}, {float(hi)}]")
    print(f"const {name}: [f64; {degree + 1}] = [")
    for c in out:
        text = repr(float(c)) if rounded_to is to_f64 else shortest_f32(float(c))
        print(f"    {text},")
    print("];", flush=True)


def shortest_f32(x):
    for digits in range(1, 12):
        text = f"{x:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", x):
            return repr(float(text))
    return repr(x)


def main():
    wanted = sys.argv[1:]
    for title, table, rounded_to in [("quick", QUICK, to_f32), ("double", DOUBLE, to_f64)]:
        for name in table:
            if not wanted or name in wanted or f"{title}.{name}" in wanted:
                print(f"// {title}")
                derive(table, name, rounded_to)


if __name__ == "__main__":
    main()
