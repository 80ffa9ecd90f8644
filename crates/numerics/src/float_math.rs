//! Float functions that the language defines otherwise than, or beyond, what Rust's floats offer.
//!
//! Most f32 functions are the strict expansions of LANGUAGE 14, so what the interpreter gives is
//! the strict result. The four without an expansion, and f64, use the pure-Rust `libm`: the
//! system's own library differs from machine to machine, and the reference must give the same bits
//! everywhere.

use libm as m;

macro_rules! shared {
    ($t:ident) => {
        /// Python's `//`: the floor of the exact quotient, found from the exact remainder, since
        /// the floor of the rounded quotient can be one too large.
        pub fn floordiv(a: $t, b: $t) -> $t {
            if b == 0.0 {
                return a / b;
            }
            let rem = a % b;
            let quotient =
                (a - rem) / b - if rem != 0.0 && (rem < 0.0) != (b < 0.0) { 1.0 } else { 0.0 };
            if quotient == 0.0 {
                return (0.0 as $t).copysign(a / b);
            }
            let floor = quotient.floor();
            // The quotient is whole but for its rounding; step up when that took it below.
            if quotient - floor > 0.5 { floor + 1.0 } else { floor }
        }

        /// Python's `%`: the remainder with the sign of the divisor, zero included.
        pub fn modulo(a: $t, b: $t) -> $t {
            let rem = a % b;
            if rem == 0.0 {
                (0.0 as $t).copysign(b)
            } else if (rem < 0.0) != (b < 0.0) {
                rem + b
            } else {
                rem
            }
        }

        pub fn sign(x: $t) -> $t {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        }

        pub fn maximum(a: $t, b: $t) -> $t {
            if a.is_nan() || b.is_nan() {
                if a.is_nan() { a } else { b }
            } else if a == b {
                // Equal numbers differ at most in the sign of a zero: keep it only if both have it.
                $t::from_bits(a.to_bits() & b.to_bits())
            } else if a > b {
                a
            } else {
                b
            }
        }

        pub fn minimum(a: $t, b: $t) -> $t {
            if a.is_nan() || b.is_nan() {
                if a.is_nan() { a } else { b }
            } else if a == b {
                $t::from_bits(a.to_bits() | b.to_bits())
            } else if a < b {
                a
            } else {
                b
            }
        }
    };
}

macro_rules! narrowed {
    ($($name:ident($($arg:ident),+);)*) => {$(
        pub fn $name($($arg: f32),+) -> f32 {
            super::f64::$name($($arg as f64),+) as f32
        }
    )*};
}

pub mod f32 {
    pub use crate::strict::fast::{atan, atan2, cos, erf, exp, exp2, expm1, log, log1p, log2};
    pub use crate::strict::fast::{pow, rsqrt, sigmoid, sin, tan, tanh};

    shared!(f32);

    narrowed! {
        asin(x); acos(x); sinh(x); cosh(x);
    }
}

pub mod f64 {
    use super::m;
    pub use m::{acos, asin, atan, atan2, cos, cosh, erf, exp, exp2, expm1};
    pub use m::{log, log1p, log2, pow, sin, sinh, tan, tanh};

    shared!(f64);

    pub fn rsqrt(x: f64) -> f64 {
        1.0 / x.sqrt()
    }

    /// Written so that the exponential never overflows, which would lose small results.
    pub fn sigmoid(x: f64) -> f64 {
        let e = m::exp(-x.abs());
        if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
    }
}
