//! Functions made of one exponential: tanh, sigmoid, erf; and the reciprocal square root.

use super::exp::{TINY, clamp, scale, scaled_exp};
use super::pair::Pair;
use super::real::{Cond, Int, Real, horner, pow2, with_sign};

/// tanh x = x + x³ g(x²); weighted error 2^-33.8 for x² <= 0.361 (tools/fit.py TANH).
const TANH: [f32; 7] =
    [-0.33333334, 0.13333386, -0.053977437, 0.021941073, -0.009131106, 0.0040073376, -0.0014273858];

/// erf x = x + x g(x²) for x <= 1 (tools/fit.py ERF).
const ERF: [f32; 10] = [
    0.12837917,
    -0.37612623,
    0.112833664,
    -0.026822511,
    0.004999532,
    -0.00020673436,
    -0.0009787497,
    0.0010718448,
    -0.00057776435,
    0.00012857653,
];

/// erfc x = e^-P(x - 1) for 1 <= x <= 4, the constant term of P and the rest; weighted error
/// 2^-35.2 (tools/fit.py ERFC).
const ERFC_HEAD: f32 = 1.8496056;
const ERFC_HEAD_LOW: f32 = -5.0472078e-8;
const ERFC_TAIL: [f32; 8] = [
    2.6389675,
    0.84310716,
    0.0415628,
    -0.010044213,
    0.0020083436,
    -0.00028648583,
    0.000020424031,
    0.0000002035866,
];

/// `1 - 2 / (e^2|x| + 1)` from 0.6 up, where the quotient is below 0.47; a polynomial below.
#[inline(always)]
pub fn tanh<T: Real>(x: T) -> T {
    let one = T::c(1.0);
    let square = x * x;
    let near = (x * square).fma(horner(square, &TANH), x);
    let a = x.abs();
    // At 10 the result has long been 1.
    let e = scaled_exp(clamp(a + a, 0.0, 20.0), T::c(0.0));
    let e_x = e.significand().normal().scale(pow2::<T>(e.n));
    let d = Pair::sum(e_x.hi, one).plus_low(e_x.lo);
    let q = T::c(2.0) / d.hi;
    let rest = (-q).fma(d.hi, T::c(2.0)) - q * d.lo;
    let sum = Pair::ordered_sum(one, -q);
    let far = with_sign(sum.hi + (sum.lo - rest * (q * T::c(0.5))), x);
    let y = T::pick(a.lt(T::c(0.6)), near, far);
    T::pick(a.lt(T::c(TINY)), x, y)
}

/// With `e = e^-|x|`: `1 / (1 + e)`, or `e / (1 + e)` for negative `x`, whose power of two is
/// applied last.
#[inline(always)]
pub fn sigmoid<T: Real>(x: T) -> T {
    let e = scaled_exp(clamp(-x.abs(), -104.0, 0.0), T::c(0.0));
    let m = e.significand().normal();
    let visible = T::Int::pick(e.n.lt(T::Int::c(-126)), T::Int::c(-126), e.n);
    let e_x = m.scale(pow2::<T>(visible));
    let d = Pair::ordered_sum(T::c(1.0), e_x.hi).plus_low(e_x.lo);
    let negative = x.lt(T::c(0.0));
    let one = Pair { hi: T::c(1.0), lo: T::c(0.0) };
    let q = Pair::pick(negative, m, one).over(d).value();
    scale(q, T::Int::pick(negative, e.n, T::Int::c(0)))
}

/// erf for `|x| <= 1`. The sum is of nearly equal parts of both signs, so its last two steps are
/// done with pairs, and the square is one.
#[inline(always)]
fn erf_near<T: Real>(x: T) -> T {
    let t = Pair::product(x, x);
    let p = Pair::product(t.hi, horner(t.hi, &ERF[2..]));
    let slope = Pair::ordered_sum(T::c(ERF[1]), p.hi).plus_low(p.lo);
    let p = t.times(slope);
    let g = Pair::sum(T::c(ERF[0]), p.hi).plus_low(p.lo);
    let p = Pair::product(x, g.hi);
    let sum = Pair::ordered_sum(x, p.hi);
    let y = sum.hi + (sum.lo + x.fma(g.lo, p.lo));
    // Where the low parts underflow, one fma is nearer; it also keeps -0.
    T::pick(x.abs().lt(T::c(TINY)), x.fma(T::c(ERF[0]), x), y)
}

/// `1 - erfc(|x|)` from 1 up, where erfc is `e^-P(|x| - 1)`; the constant term of P is a pair.
#[inline(always)]
pub fn erf<T: Real>(x: T) -> T {
    let a = x.abs();
    // Beyond 4 the result has long been 1.
    let t = clamp(a, 0.0, 4.0) - T::c(1.0);
    let p = Pair::product(t, horner(t, &ERFC_TAIL));
    let sum = Pair::sum(T::c(ERFC_HEAD), p.hi).plus_low(p.lo + T::c(ERFC_HEAD_LOW));
    let e = scaled_exp(-sum.hi, -sum.lo);
    let e_x = e.significand().scale(pow2::<T>(e.n));
    let rest = Pair::ordered_sum(T::c(1.0), -e_x.hi);
    let far = with_sign(rest.hi + (rest.lo - e_x.lo), x);
    T::pick(a.lt(T::c(1.0)), erf_near(x), far)
}

/// One Newton step on `1 / √x`, its residual exact to first order.
#[inline(always)]
pub fn rsqrt<T: Real>(x: T) -> T {
    let small = x.lt(T::c(f32::MIN_POSITIVE));
    let scaled = T::pick(small, x * T::c(16_777_216.0), x);
    let y = T::c(1.0) / scaled.sqrt();
    let h = Pair::product(scaled, y);
    let residual = (-h.hi).fma(y, T::c(1.0)) - h.lo * y;
    let refined = (y * T::c(0.5)).fma(residual, y);
    // 0 and ∞ make the residual NaN; there the quotient is already right.
    let ends = x.eq(T::c(0.0)).or(x.eq(T::c(f32::INFINITY)));
    T::pick(ends, y, refined * T::pick(small, T::c(4096.0), T::c(1.0)))
}
