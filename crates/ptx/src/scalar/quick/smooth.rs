//! tanh, sigmoid, erf.

use super::super::val::Val;
use super::inverse_of;
use crate::inst::{Alu, Ty};
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

/// e^2x is 2 to the power of this times x.
const TANH_EXPONENT: f64 = 2.0 * LOG2_E;

/// `times` times `1 - 2 / (1 + 2^(x·by))`: near 0 its error is 2^-21.0 of `times`, and not of the
/// result.
fn tanh_far<'e>(x: Val<'e>, by: Val<'e>, times: f64) -> Val<'e> {
    let e = (x * by).approx(Alu::Ex2Approx);
    inverse_of(e + 1.0).fma(-2.0 * times, times)
}

/// Up to here a short polynomial suffices for tanh. Arguments are in units of half of it: whether
/// any of them is 2 or more is one bit of all of them together.
pub const TANH_SMALL: f64 = 0.5;
/// tanh x / y of t = y², where y is x in those units; error of tanh 2^-22.9 in absolute terms
/// (tools/fit.py TANH_BELOW).
const TANH_BELOW: [f64; 4] = [0.24999942, -0.005206352, 0.00012837045, -2.6472308e-06];

/// `times` tanh of `y` below 2 in units of [`TANH_SMALL`]: within 2^-22 of `times`.
pub fn tanh_below(y: Val<'_>, times: f64) -> Val<'_> {
    y * (y * y).horner(&TANH_BELOW.map(|c| c * times))
}

/// `1 / (1 + e)` from 0 to 1; relative error 2^-9.2 (tools/fit.py INVERSE).
const INVERSE: [f64; 4] = [0.9982644, -0.94276506, 0.66540444, -0.22176568];

/// `times` tanh of any `y` in units of [`TANH_SMALL`], within 2^-21.8 of `times`:
/// `2 / (1 + e^-2|x|) - 1` with the sign of x. The inverse is a polynomial with one step
/// of third order: the SFU, which computes exponentials and reciprocals, is used once.
pub fn tanh_any(y: Val<'_>, times: f64) -> Val<'_> {
    let e = (y.abs() * (-0.5 * TANH_EXPONENT * TANH_SMALL)).approx(Alu::Ex2Approx);
    let near = e.horner(&INVERSE);
    let off = (-(e + 1.0)).fma(near, 1.0);
    let inverse = near.fma(off.fma(off, off), near);
    let size = inverse.fma(2.0 * times, -times);
    let sign = y.of(Ty::B32).and(i64::from(i32::MIN));
    size.of(Ty::B32).xor(sign).of(Ty::F32)
}

/// `1 / (1 + e^-x)`. For negative `x` the result is small, and so is its error.
pub fn sigmoid(x: Val<'_>) -> Val<'_> {
    let e = (x * -LOG2_E).approx(Alu::Ex2Approx);
    inverse_of(e + 1.0)
}

/// One formula for all, within the absolute error bound: another one near 0, for a small relative
/// error there, would double its cost in epilogues.
pub fn erf(x: Val<'_>) -> Val<'_> {
    // A NaN stays one.
    let a = x.abs().op2(Alu::MinNan, ERF_END);
    let erfc = (a.horner(&ERFC) * a).approx(Alu::Ex2Approx);
    (a.c(1.0) - erfc).with_sign(x)
}
