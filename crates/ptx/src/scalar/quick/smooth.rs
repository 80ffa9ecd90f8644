//! tanh, sigmoid, erf.

use super::super::val::Val;
use super::inverse_of;
use crate::inst::Alu;
use std::f64::consts::LOG2_E;

/// tanh x / x of t = x²; error of tanh 2^-22.5 in absolute terms for t <= 0.88 (tools/fit.py TANH,
/// whose weight is that error).
const TANH: [f64; 6] = [1.0, -0.33330542, 0.13294351, -0.05203572, 0.017332837, -0.0033482614];
pub const TANH_NEAR: f64 = 0.88;

/// erfc x = 2^(x g(x)) from 0 to 4; error of erf 2^-23.6 in absolute terms (tools/fit.py ERFC, whose
/// weight is that error).
const ERFC: [f64; 7] = [
    -1.62791371,
    -0.918328822,
    -0.148963064,
    0.0294515509,
    -0.00230146549,
    -0.00046187386,
    0.000100266261,
];
/// From here on erf is 1.
const ERF_END: f64 = 4.0;

/// `1 - 2 / (1 + e^2x)`, and a polynomial near 0, where that would lose digits.
pub fn tanh(x: Val<'_>) -> Val<'_> {
    let (near, t) = tanh_near(x, 1.0);
    tanh_any(x, t, near, 1.0)
}

/// The polynomial times a number, and what must be below [`TANH_NEAR`] for it to hold.
pub fn tanh_near(x: Val<'_>, times: f64) -> (Val<'_>, Val<'_>) {
    let t = x * x;
    (x * t.horner(&TANH.map(|c| c * times)), t)
}

/// What does not depend on the size of `x`, by the polynomial that is known.
pub fn tanh_any<'e>(x: Val<'e>, t: Val<'e>, near: Val<'e>, times: f64) -> Val<'e> {
    let e = (x * (2.0 * LOG2_E)).approx(Alu::Ex2Approx);
    let far = inverse_of(e + 1.0).fma(-2.0 * times, times);
    t.lt(TANH_NEAR).pick(near, far)
}

/// `1 / (1 + e^-x)`. For negative `x` the result is small, and so is its error.
pub fn sigmoid(x: Val<'_>) -> Val<'_> {
    let e = (x * -LOG2_E).approx(Alu::Ex2Approx);
    inverse_of(e + 1.0)
}

/// One way for all, as near as absolute terms ask for: another one near 0, for small results to be as
/// good in relative terms, would double what epilogues spend on it.
pub fn erf(x: Val<'_>) -> Val<'_> {
    // A NaN stays one.
    let a = x.abs().op2(Alu::MinNan, ERF_END);
    let erfc = (a.horner(&ERFC) * a).approx(Alu::Ex2Approx);
    (a.c(1.0) - erfc).with_sign(x)
}
