//! Float functions that the language defines otherwise than, or beyond, what Rust's floats offer.
//!
//! Real functions of f32 are the strict expansions of LANGUAGE 14, so what the interpreter gives is
//! the strict result. Those without an expansion, and f64, use the pure-Rust `libm`: the system's
//! own library differs from machine to machine, and the reference must give the same bits
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

pub mod f32 {
    shared!(f32);
}

pub mod f64 {
    use super::m;
    pub use super::m::*;

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
