"""Derives the polynomial coefficients of the strict expansions (src/strict/*.rs).

Run: python3 crates/numerics/tools/fit.py [name ...]

Method: each function is evaluated in 50-digit decimals by its series; the polynomial is the
weighted least-squares fit at Chebyshev nodes, reweighted towards the largest errors (Lawson), which
brings it near minimax. Coefficients are rounded to f32 one at a time from the lowest degree, the rest being
fitted again after each, so that the rounding of one is made good by the others. The printed bound is the
largest weighted error of the rounded polynomial on a fine grid.
"""

import struct
import sys
from decimal import Decimal as D, getcontext

getcontext().prec = 50
LN2 = D(2).ln()


def pi():
    def arctan_inv(n):
        total, term, k = D(0), D(1) / n, 0
        while abs(term) > D(10) ** -55:
            total += term / (2 * k + 1) * (-1) ** k
            term /= n * n
            k += 1
        return total

    return 4 * (4 * arctan_inv(5) - arctan_inv(239))


PI = pi()


def series(first, ratio):
    """Sum of terms: the first, then each the one before times ratio(k)."""
    total, term, k = D(0), first, 0
    while abs(term) > D(10) ** -48:
        total += term
        k += 1
        term *= ratio(k)
    return total


def erf(x):
    # erf x = 2/sqrt(pi) e^(-x^2) sum x^(2k+1) 2^k / (2k+1)!!, all terms positive.
    return 2 / PI.sqrt() * (-x * x).exp() * series(x, lambda k: 2 * x * x / (2 * k + 1))


def g_exp(r):  # e^r = 1 + r + r^2/2 + r^3 g(r)
    return series(D(1) / 6, lambda k: r / (k + 3))


def g_power(r):  # e^r = 1 + r + r^2 g(r)
    return series(D(1) / 2, lambda k: r / (k + 2))


def g_log(f):  # log(1+f) = f - f^2/2 + f^3 g(f)
    if abs(f) < D("0.05"):
        return sum((-f) ** k / (k + 3) for k in range(40))
    return ((1 + f).ln() - f + f * f / 2) / f**3


def g_sin(t):  # sin r = r + r t g(t), t = r^2
    return series(D(-1) / 6, lambda k: -t / ((2 * k + 2) * (2 * k + 3)))


def g_cos(t):  # cos r = 1 - t/2 + t^2 g(t)
    return series(D(1) / 24, lambda k: -t / ((2 * k + 3) * (2 * k + 4)))


def g_atan(t):  # atan q = q + q t g(t), t = q^2 < 0.18
    return sum((-t) ** k * -1 / D(2 * k + 3) for k in range(70))


def g_tanh(t):  # tanh x = x + x t g(t)
    if t < D("1e-6"):
        return D(-1) / 3 + 2 * t / 15
    x = t.sqrt()
    e = (2 * x).exp()
    return ((e - 1) / (e + 1) / x - 1) / t


def g_erf(t):  # erf x = x + x g(t)
    x = max(t, D("1e-20")).sqrt()
    return erf(x) / x - 1


def g_erfc(x):  # erfc x = exp(-g(x - 1)), 1 <= x <= 4
    return -(1 - erf(x + 1)).ln()


def g_atanh(t):  # atanh s = s + s t (1/3 + t g(t))
    return sum(t**k / (2 * k + 5) for k in range(40))


# Functions whose constant term is kept as two f32 parts.
PAIRED = {"ERFC"}

# g(t), interval, degree, weight(t): the error that counts is the weight times the error of g.
TABLE = {
    "EXP": (g_exp, "-0.3467", "0.3467", 4, lambda r: abs(r) ** 3 + D("1e-5")),
    "POWER": (g_power, "-0.3467", "0.3467", 4, lambda r: (abs(r) ** 2 + D("1e-5")) / r.exp()),
    "LOG": (g_log, "-0.2930", "0.4143", 9, lambda f: abs(f) ** 2 + D("1e-4")),
    "SIN": (g_sin, "0", "0.6170", 3, lambda t: t + D("1e-3")),
    "COS": (g_cos, "0", "0.6170", 3, lambda t: t * t + D("1e-4")),
    "ATAN": (g_atan, "0", "0.1720", 5, lambda t: t + D("1e-4")),
    "TANH": (g_tanh, "0", "0.3610", 6, lambda t: t + D("1e-3")),
    "ERF": (g_erf, "0", "1.0001", 9, lambda t: D(1)),
    "ERFC": (g_erfc, "0", "3", 8, lambda x: 1 - erf(x + 1) + D("1e-9")),
    "ATANH": (g_atanh, "0", "0.02945", 2, lambda t: t * t + D("1e-6")),
}


def f32(x):
    return D(struct.unpack("<f", struct.pack("<f", float(x)))[0])


def solve(a, b):
    n = len(b)
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[p], b[i], b[p] = a[p], a[i], b[p], b[i]
        for r in range(i + 1, n):
            m = a[r][i] / a[i][i]
            for c in range(i, n):
                a[r][c] -= m * a[i][c]
            b[r] -= m * b[i]
    x = [D(0)] * n
    for i in reversed(range(n)):
        x[i] = (b[i] - sum(a[i][c] * x[c] for c in range(i + 1, n))) / a[i][i]
    return x


def fit(values, nodes, weights, powers):
    """Weighted least squares for the monomials `powers`, with Lawson reweighting."""
    lawson = [D(1)] * len(nodes)
    best, best_error = None, None
    for _ in range(12):
        w2 = [(w * w) * lam for w, lam in zip(weights, lawson)]
        moments = {
            p: sum(w * t**p for w, t in zip(w2, nodes))
            for p in range(2 * powers[0], 2 * powers[-1] + 1)
        }
        a = [[moments[p + q] for q in powers] for p in powers]
        b = [sum(w * v * t**p for w, v, t in zip(w2, values, nodes)) for p in powers]
        c = solve(a, b)
        errors = [
            abs(w * (v - sum(ci * t**p for ci, p in zip(c, powers))))
            for w, v, t in zip(weights, values, nodes)
        ]
        worst = max(errors)
        if best is None or worst < best_error:
            best, best_error = c, worst
        mean = sum(errors) / len(errors)
        lawson = [lam * (e / mean + D("0.05")) for lam, e in zip(lawson, errors)]
        scale = sum(lawson) / len(lawson)
        lawson = [lam / scale for lam in lawson]
    return best


def cos_decimal(x):
    return series(D(1), lambda k: -x * x / ((2 * k - 1) * (2 * k)))


def derive(name):
    g, lo, hi, degree, weight = TABLE[name]
    lo, hi = D(lo), D(hi)
    n = 80
    nodes = [(lo + hi) / 2 + (hi - lo) / 2 * cos_decimal(PI * (2 * i + 1) / (2 * n)) for i in range(n)]
    values = [g(t) for t in nodes]
    weights = [weight(t) for t in nodes]
    rest, rounded = list(values), []
    for start in range(degree + 1):
        c = fit(rest, nodes, weights, list(range(start, degree + 1)))
        keep_low = f32(c[0] - f32(c[0])) if start == 0 and name in PAIRED else 0
        rounded.append(f32(c[0]) + keep_low)
        rest = [v - rounded[-1] * t**start for v, t in zip(rest, nodes)]
    grid = [lo + (hi - lo) * (2 * i + 1) / 600 for i in range(300)]
    worst = max(abs(weight(t) * (g(t) - sum(c * t**i for i, c in enumerate(rounded)))) for t in grid)
    bits = float(worst.ln() / LN2)
    print(f"// {name}: weighted error 2^{bits:.1f} on [{lo}, {hi}]")
    print(f"const {name}: [f32; {degree + 1}] = [")
    for c in rounded:
        if f32(c) != c:
            print(f"    // low part of the next: {float(c - f32(c))!r}")
            c = f32(c)
        print(f"    {float(c)!r},  // {struct.unpack('<I', struct.pack('<f', float(c)))[0]:#010x}")
    print("];")


def parts(name, x, *keep):
    """Splits x into f32 parts, the first ones cut to `keep` significant bits."""
    out = []
    for bits in keep:
        if bits < 24:
            e = D(2) ** (int((abs(x).ln() / LN2).to_integral_value(rounding="ROUND_FLOOR")) - bits + 1)
            p = (x / e).to_integral_value() * e
        else:
            p = f32(x)
        out.append(p)
        x -= p
    print(f"// {name}: " + ", ".join(f"{struct.unpack('<I', struct.pack('<f', float(p)))[0]:#010x}" for p in out)
          + f"  left {float(x):.1e}")


def main():
    for name in sys.argv[1:] or TABLE:
        derive(name)
        sys.stdout.flush()
    parts("ln2 (short, rest)", LN2, 14, 24, 24)
    parts("ln2", LN2, 24, 24)
    parts("log2(e)", 1 / LN2, 24, 24)
    parts("2/ln2", 2 / LN2, 24, 24)
    parts("2/(3 ln2)", 2 / LN2 / 3, 24, 24)
    parts("1/3", D(1) / 3, 24, 24)
    parts("pi/4 (short, rest)", PI / 4, 20, 24)
    parts("pi/2 * 2^-62", PI / 2 / D(2) ** 62, 24, 24)
    two_over_pi()


def two_over_pi():
    """2/pi as 64-bit words of a stream that begins with 26 zero bits (src/strict/angle.rs)."""
    getcontext().prec = 120
    bits = 64 * 5 - 26
    word = int(2 / pi_wide() * D(2) ** bits)
    stream = f"{word:0{bits}b}"
    stream = "0" * 26 + stream
    print("// 2/pi:", ", ".join(f"{int(stream[i:i + 64], 2):#018x}" for i in range(0, len(stream), 64)))


def pi_wide():
    total = D(0)
    for k in range(100):
        total += (D(4) / (8 * k + 1) - D(2) / (8 * k + 4) - D(1) / (8 * k + 5) - D(1) / (8 * k + 6)) / D(16) ** k
    return total


if __name__ == "__main__":
    main()
