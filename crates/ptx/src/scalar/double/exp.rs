//! The exponentials: `e^x = 2^n e^r` with `|r| <= ln 2 / 2`; and what is made of them.

use super::super::pair::Pair;
use super::super::val::Val;
use super::bits;
use crate::inst::Ty;
use std::f64::consts::LOG2_E;

/// e^r = 1 + r + r² g(r); weighted error 2^-63.8 on [-0.3466, 0.3466] (tools/fit.py EXP).
const EXP: [f64; 11] = [
    0.5,
    0.16666666666666685,
    0.041666666666666664,
    0.008333333333315837,
    0.0013888888888888104,
    0.00019841269899067415,
    2.480158731581535e-05,
    2.755723241775174e-06,
    2.75572820651749e-07,
    2.5112819509013355e-08,
    2.0912168522099015e-09,
];
const LN2: f64 = bits(0x3fe62e42fefa39ef);
const LN2_REST: f64 = bits(0x3c7abc9e3b39803f);
/// Adding this brings a number below 2^51 to a whole one, ties to even, in the low bits.
const WHOLE: f64 = 6_755_399_441_055_744.0;
/// Below this, functions with `f(x) = x (1 + O(x))` are `x`, which also keeps -0.
pub const TINY: f64 = bits((1023 - 54) << 52);

/// The nearest whole number as a float and as a word.
fn nearest<'e>(shifted: Val<'e>) -> (Val<'e>, Val<'e>) {
    (shifted - WHOLE, shifted.of(Ty::U64).cvt(Ty::U32, None).of(Ty::S32))
}

/// `x = n ln 2 + r`: `n` as a float, as a word, and `r`.
fn reduce<'e>(x: Val<'e>) -> (Val<'e>, Val<'e>, Val<'e>) {
    let (whole, n) = nearest(x.fma(LOG2_E, WHOLE));
    (whole, n, whole.fma(-LN2_REST, whole.fma(-LN2, x)))
}

/// e^r - 1.
fn growth(r: Val<'_>) -> Val<'_> {
    (r * r).fma(r.horner(&EXP), r)
}

/// 2^n for -1022 <= n <= 1023.
fn power(n: Val<'_>) -> Val<'_> {
    let high = (n + 1023).shl(20).of(Ty::U32);
    high.c(0).join(high, Ty::F64)
}

/// `y 2^n` in two steps, so that each factor is a normal number.
fn scale<'e>(y: Val<'e>, n: Val<'e>) -> Val<'e> {
    let half = n.shr(1);
    y * power(half) * power(n - half)
}

/// NaN stays.
fn clamp(x: Val<'_>, low: f64, high: f64) -> Val<'_> {
    let x = x.lt(low).pick_of(x, low, x);
    x.gt(high).pick_of(x, high, x)
}

pub fn exp(x: Val<'_>) -> Val<'_> {
    let (_, n, r) = reduce(clamp(x, -746.0, 710.0));
    scale(growth(r) + 1.0, n)
}

/// 2^p of a sum.
pub fn exp2_of(p: Pair<'_>) -> Val<'_> {
    let hi = clamp(p.hi, -1076.0, 1025.0);
    let (whole, n) = nearest(hi + WHOLE);
    let f = hi - whole;
    let r = f.fma(LN2, f.fma(LN2_REST, p.lo * LN2));
    scale(growth(r) + 1.0, n)
}

pub fn exp2(x: Val<'_>) -> Val<'_> {
    exp2_of(Pair { hi: x, lo: x.c(0.0) })
}

/// `2^n (1 + growth) - 1`, computed at half size so that `n = 1024` does not overflow too soon.
pub fn expm1(x: Val<'_>) -> Val<'_> {
    let (whole, n, r) = reduce(clamp(x, -40.0, 710.0));
    let near = growth(r);
    let c = power(n - 1);
    let far = near.fma(c, c - 0.5) * 2.0;
    let y = whole.eq(0.0).pick(near, far);
    x.abs().lt(TINY).pick(x, y)
}

/// Half of e^x for large `x`, which does not overflow where sinh and cosh do not.
fn half_exp(x: Val<'_>) -> Val<'_> {
    let (_, n, r) = reduce(clamp(x, 0.0, 711.0));
    scale(growth(r) + 1.0, n - 1)
}

/// From here on e^-x is nothing beside e^x.
const FAR: f64 = 22.0;

pub fn sinh(x: Val<'_>) -> Val<'_> {
    let a = x.abs();
    let t = expm1(a);
    let near = (t + t / (t + 1.0)) * 0.5;
    a.lt(FAR).pick(near, half_exp(a)).with_sign(x)
}

pub fn cosh(x: Val<'_>) -> Val<'_> {
    let a = x.abs();
    let e = exp(a);
    let near = e.fma(0.5, e.c(0.5) / e);
    a.lt(FAR).pick(near, half_exp(a))
}

pub fn tanh(x: Val<'_>) -> Val<'_> {
    let a = clamp(x.abs(), 0.0, FAR);
    let t = expm1(a + a);
    (t / (t + 2.0)).with_sign(x)
}

/// Written so that the exponential never overflows, which would lose small results.
pub fn sigmoid(x: Val<'_>) -> Val<'_> {
    let e = exp(-x.abs());
    x.lt(0.0).pick(e, 1.0) / (e + 1.0)
}
