//! tanh, sigmoid, erf.

use super::super::val::Val;
use super::inverse_of;
use crate::inst::{Alu, Cmp};
use std::f64::consts::LOG2_E;

/// tanh x / x of t = x²; weighted error 2^-24.7 for x <= 0.55 (tools/fit.py TANH).
const TANH: [f64; 5] = [1.0, -0.33332962, 0.13320996, -0.05268595, 0.016460132];
const TANH_NEAR: f64 = 0.3;

/// erf x = x + x g(x²); weighted error 2^-25.4 for x² <= 0.9 (tools/fit.py ERF).
const ERF: [f64; 6] =
    [0.12837914, -0.37612432, 0.11281241, -0.02674701, 0.0049656616, -0.00058555265];
const ERF_NEAR: f64 = 0.92;

/// erfc x = 2^g(x) from 0.9 to 4.05; weighted error 2^-24.6 (tools/fit.py ERFC, negated).
const ERFC: [f64; 6] =
    [-0.0026321628, -1.6163782, -0.93843085, -0.13173066, 0.022573784, -0.0018185554];
/// From here on erf is 1.
const ERF_END: f64 = 4.0;

/// `1 - 2 / (1 + e^2x)`, and a polynomial near 0, where that would lose digits.
pub fn tanh(x: Val<'_>) -> Val<'_> {
    let e = (x * (2.0 * LOG2_E)).approx(Alu::Ex2Approx);
    let far = inverse_of(e + 1.0).fma(-2.0, 1.0);
    let t = x * x;
    let near = x * t.horner(&TANH);
    t.lt(TANH_NEAR).pick(near, far)
}

/// `1 / (1 + e^-x)`. For negative `x` the result is small, and so is its error.
pub fn sigmoid(x: Val<'_>) -> Val<'_> {
    let e = (x * -LOG2_E).approx(Alu::Ex2Approx);
    inverse_of(e + 1.0)
}

pub fn erf(x: Val<'_>) -> Val<'_> {
    let t = x * x;
    let near = t.horner(&ERF).fma(x, x);
    let a = x.abs();
    let erfc = a.min(ERF_END).horner(&ERFC).approx(Alu::Ex2Approx);
    let far = (a.c(1.0) - erfc).with_sign(x);
    // A NaN is not far.
    a.cmp(Cmp::Ge, ERF_NEAR).pick(far, near)
}
