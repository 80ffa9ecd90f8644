//! tanh, sigmoid, erf.

use super::super::val::Val;
use super::inverse_of;
use crate::inst::Alu;
use std::f64::consts::LOG2_E;

/// tanh x / x of t = x²; weighted error 2^-24.7 for x <= 0.55 (tools/fit.py TANH).
const TANH: [f64; 5] = [1.0, -0.33332962, 0.13320996, -0.05268595, 0.016460132];
const TANH_NEAR: f64 = 0.3;

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
    let far = tanh_far(x, x.c(TANH_EXPONENT), 1.0);
    let t = x * x;
    let near = x * t.horner(&TANH);
    t.lt(TANH_NEAR).pick(near, far)
}

/// e^2x is 2 to the power of so many times x.
pub const TANH_EXPONENT: f64 = 2.0 * LOG2_E;

/// A number times `1 - 2 / (1 + 2^(x·by))`: near 0 its error is 2^-22 of the number, and not of the
/// result.
pub fn tanh_far<'e>(x: Val<'e>, by: Val<'e>, times: f64) -> Val<'e> {
    let e = (x * by).approx(Alu::Ex2Approx);
    inverse_of(e + 1.0).fma(-2.0 * times, times)
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
