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

/// With `m = e^2|x| - 1`: `m / (m + 2)`. The sum of the divisor is what would lose most, so its error
/// is brought back in.
#[inline(always)]
pub fn tanh<T: Real>(x: T) -> T {
    let a = clamp(x.abs(), 0.0, 10.0);
    let (n, r) = reduce(a + a);
    let power = pow2::<T>(n);
    let growth = (r * r).fma(horner(r, &GROWTH[1..]), r);
    let m = power.fma(growth, power - T::c(1.0));
    let two = T::c(2.0);
    let d = m + two;
    let d_low = (two - d) + m;
    let inverse = T::c(1.0) / d;
    let q = m * inverse;
    let rest = (-q).fma(d_low, (-q).fma(d, m));
    with_sign(rest.fma(inverse, q), x)
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
