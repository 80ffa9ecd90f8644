//! How far an f32 result is from the true value, in units in the last place.
//!
//! The true value is taken from `libm` in f64, whose functions and the compositions below err by
//! less than 8 units of f64, that is by less than 2^-26 units of f32 (docs/numerics/strict.md says
//! how that was checked): enough to trust a largest error to seven digits. Whether a result is the
//! nearest f32 is left open for true values closer than that to a midpoint; they are counted apart.

use tessera_numerics::{Scalar, ScalarFn, eval};

/// The true value, nearly: `args` holds the operands, one or two; more are not read.
pub fn truth(f: ScalarFn, args: &[f32]) -> f64 {
    let args = args.iter().take(f.arity()).map(|&x| Scalar::F64(x.into()));
    eval(f, &args.collect::<Vec<_>>()).map_or(f64::NAN, Scalar::as_f64)
}

/// Size of the last place of the f32 numbers around `x`.
fn unit(x: f64) -> f64 {
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    f64::from_bits(((exponent.clamp(-126, 127) - 23 + 1023) as u64) << 52)
}

/// Error of `got` in units of the last place: infinite where the kind of result (NaN, infinity,
/// sign) is wrong.
pub fn error(got: f32, truth: f64) -> f64 {
    let nearest = truth as f32;
    if truth.is_nan() || got.is_nan() {
        return if truth.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got.is_sign_negative() != truth.is_sign_negative() {
        return f64::INFINITY;
    }
    if got == nearest && !got.is_finite() {
        return 0.0;
    }
    // An infinity stands for the number that would follow the largest finite one.
    let place = |x: f32| if x.is_infinite() { 2f64.powi(128).copysign(x as f64) } else { x as f64 };
    if truth.is_infinite() {
        return if got.is_infinite() { 0.0 } else { f64::INFINITY };
    }
    (place(got) - truth).abs() / unit(truth)
}

/// Whether the true value is too near a midpoint to say what its nearest f32 is.
#[allow(dead_code, reason = "the tests share this file and do not ask it")]
pub fn undecided(truth: f64) -> bool {
    let places = truth.abs() / unit(truth);
    truth.is_finite() && ((places - places.floor()) - 0.5).abs() < 2f64.powi(-26)
}
