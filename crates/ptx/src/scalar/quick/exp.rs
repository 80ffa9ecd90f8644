//! Functions made of e^x, and e^x itself: `2^t (1 + r)` with `t` near `x log2 e` and `r = x - t ln 2`.
//!
//! `t` is rounded down so far that `r` is not negative. The product is then never below `2^t`, and
//! taking the greater of the two puts right what is no number: `∞ · r` and `0 · ∞` at the ends.

use super::super::val::Val;
use super::inverse_of;
use crate::inst::{Alu, Round};
use std::f64::consts::LOG2_E;

/// More than the error of the f32 nearest to log2 e makes for any `x` whose result is in range.
const DOWN: f64 = -2.1e-6;
const LN2: f32 = f32::from_bits(0x3f317218);
const LN2_REST: f32 = f32::from_bits(0xb102e308);

/// (e^x - 1) / x; weighted error 2^-30.1 on [-0.52, 0.72] (tools/fit.py EXPM1).
const GROWTH: [f64; 8] =
    [1.0, 0.5, 0.16666667, 0.04166677, 0.008333191, 0.001387869, 0.00019957658, 2.7257578e-5];

/// sinh x = x + x t g(t), t = x²; weighted error 2^-25.1 for x below 1 (tools/fit.py SINH).
const SINH: [f64; 3] = [0.1666672, 0.008330163, 0.00020381868];

/// `t` and `r`.
fn reduce(x: Val<'_>) -> (Val<'_>, Val<'_>) {
    let t = x.fma_by(Round::Rm, LOG2_E, DOWN);
    (t, t.fma(-LN2_REST, t.fma(-LN2, x)))
}

/// `2^t (1 + r)`.
fn power<'e>(t: Val<'e>, r: Val<'e>) -> Val<'e> {
    let power = t.approx(Alu::Ex2Approx);
    power.fma(r, power).max(power)
}

pub fn exp(x: Val<'_>) -> Val<'_> {
    let (t, r) = reduce(x);
    power(t, r)
}

/// Half of e^x, which does not overflow where sinh and cosh do not.
fn half_exp(x: Val<'_>) -> Val<'_> {
    let (t, r) = reduce(x);
    power(t - 1.0, r)
}

pub fn expm1(x: Val<'_>) -> Val<'_> {
    let near = x * x.horner(&GROWTH);
    (x - 0.1).abs().lt(0.6).pick(near, exp(x) - 1.0)
}

pub fn sinh(x: Val<'_>) -> Val<'_> {
    let a = x.abs();
    let h = half_exp(a);
    let far = inverse_of(h).fma(-0.25, h).with_sign(x);
    let t = x * x;
    let near = (t * t.horner(&SINH)).fma(x, x);
    a.lt(1.0).pick(near, far)
}

pub fn cosh(x: Val<'_>) -> Val<'_> {
    let h = half_exp(x.abs());
    inverse_of(h).fma(0.25, h)
}
