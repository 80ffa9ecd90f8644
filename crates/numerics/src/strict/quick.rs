//! Shorter sequences within 2 ulp, for the default profile (LANGUAGE 13): no pairs of numbers, one
//! polynomial. Like the strict ones they are fixed sequences of basic operations, so that a backend
//! that uses them gives the same bits at every vector width.

use super::exp::{LN2_REST, LN2_SHORT, LOG2_E, WHOLE, clamp, nearest, scale};
use super::real::{Int, Real, horner, pow2, with_sign};

/// (e^r - 1) / r on [-0.3467, 0.3467]; the coefficients of the strict e^r.
const GROWTH: [f32; 7] =
    [1.0, 0.5, 0.16666667, 0.041666463, 0.008333204, 0.0013935089, 0.00019947617];

/// The same with an error of 2^-28 of e^r (tools/fit.py POWER).
const POWER: [f32; 6] = [1.0, 0.49999994, 0.16666521, 0.041668262, 0.008368674, 0.0013821003];

/// (e^2r - 1 - 2r) / r² on half of that interval: the same coefficients times powers of two.
const TWICE: [f32; 6] = [
    4.0 * GROWTH[1],
    8.0 * GROWTH[2],
    16.0 * GROWTH[3],
    32.0 * GROWTH[4],
    64.0 * GROWTH[5],
    128.0 * GROWTH[6],
];

/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`.
#[inline(always)]
fn reduce<T: Real>(x: T) -> (T::Int, T) {
    let (whole, n) = nearest(x * T::c(LOG2_E));
    let top = (-whole).fma(T::c(LN2_SHORT), x);
    (n, (-whole).fma(T::c(LN2_REST), top))
}

/// `x c` to the nearest whole number, one rounding for both.
#[inline(always)]
fn nearest_multiple<T: Real>(x: T, c: f32) -> (T, T::Int) {
    let shifted = x.fma(T::c(c), T::c(WHOLE));
    (shifted - T::c(WHOLE), shifted.bits().sub(T::Int::c(WHOLE.to_bits() as i32)))
}

/// What `f` gives for `x`, infinite beyond `most` and zero below `least`: there nothing is computed
/// from `x`, since numbers on the way would be denormal, which processors are slow at. NaN passes.
#[inline(always)]
fn between<T: Real>(x: T, least: f32, most: f32, f: impl FnOnce(T) -> T) -> T {
    let none = x.lt(T::c(least));
    let x = T::pick(none, T::c(0.0), x);
    T::pick(none, T::c(0.0), f(T::pick(T::c(most).lt(x), T::c(most), x)))
}

/// Below the first bound the result is less than half of the least number.
#[inline(always)]
pub fn exp<T: Real>(x: T) -> T {
    between(x, -104.0, 89.0, |x| {
        let (whole, n) = nearest_multiple(x, LOG2_E);
        let top = (-whole).fma(T::c(LN2_SHORT), x);
        let r = (-whole).fma(T::c(LN2_REST), top);
        scale(r.fma(horner(r, &POWER), T::c(1.0)), n)
    })
}

#[inline(always)]
pub fn exp2<T: Real>(x: T) -> T {
    between(x, -151.0, 129.0, |x| {
        let (whole, n) = nearest(x);
        let r = (x - whole) * T::c(std::f32::consts::LN_2);
        scale(r.fma(horner(r, &POWER), T::c(1.0)), n)
    })
}

/// With `m = e^2|x| - 1`: `m / (m + 2)`. The error of the divisor's sum is brought back in; that
/// takes its inverse, which is half of what the result lacks to 1. In loops that carry one number
/// nothing but the length of this chain counts, so the polynomial is evaluated in pairs of terms,
/// and the error is computed in parallel with the quotient.
#[inline(always)]
pub fn tanh<T: Real>(x: T) -> T {
    let (a, two) = (x.abs(), T::c(2.0));
    // At 10 the result has long been 1.
    let a = T::pick(T::c(10.0).lt(a), T::c(10.0), a);
    let (whole, n) = nearest_multiple(a, 2.0 * LOG2_E);
    let top = (-whole).fma(T::c(0.5 * LN2_SHORT), a);
    let r = (-whole).fma(T::c(0.5 * LN2_REST), top);
    let square = r * r;
    let pair = |k: usize| r.fma(T::c(TWICE[k + 1]), T::c(TWICE[k]));
    let tail = pair(4).fma(square, pair(2)).fma(square, pair(0));
    let growth = square.fma(tail, r + r);
    let power = pow2::<T>(n);
    let m = power.fma(growth, power - T::c(1.0));
    let d = m + two;
    let far = two.lt(m);
    let d_low = T::pick(far, two, m) - (d - T::pick(far, m, two));
    let q = m / d;
    with_sign((-(q * d_low)).fma(q.fma(T::c(-0.5), T::c(0.5)), q), x)
}

/// With `e = e^-|x|`: `1 / (1 + e)`, or `e / (1 + e)` for negative `x`.
#[inline(always)]
pub fn sigmoid<T: Real>(x: T) -> T {
    let one = T::c(1.0);
    let (n, r) = reduce(clamp(-x.abs(), -104.0, 0.0));
    let h = horner(r, &GROWTH);
    let top = r.fma(h, one);
    let low = r.fma(h, one - top);
    let (e, e_low) = (scale(top, n), scale(low, n));
    let negative = x.lt(T::c(0.0));
    let d = one + e;
    let d_low = (one - d) + e + e_low;
    let (y, y_low) = (T::pick(negative, e, one), T::pick(negative, e_low, T::c(0.0)));
    let inverse = one / d;
    let q = y * inverse;
    let rest = (-q).fma(d, y) + (-q).fma(d_low, y_low);
    rest.fma(inverse, q)
}
