//! Functions of f64 outside the strict profile, within 2 ulp: argument reduction and one
//! polynomial, in f64 throughout.
//!
//! Coefficients come from `tools/fit.py`. Errors are measured by `tests/double.rs`.

mod angle;
mod erf;
mod exp;
mod inverse;
mod log;

use super::emit::Emit;
use super::float::inverse;
use super::power::Power;
use super::val::Val;
use crate::inst::{Alu, Round, Ty};
use tessera_numerics::{Real, ScalarFn};

const POWER: Power = Power {
    // Weighted error 2^-73.5 (tools/fit.py ATANH).
    atanh: &[
        0.1999999999999999,
        0.14285714285721926,
        0.11111111108892632,
        0.09090909422345478,
        0.07692279186782809,
        0.066681334144605,
        0.058378649836662196,
        0.05991099701472227,
    ],
    third: [bits(0x3fd5555555555555), bits(0x3c75555555555555)],
    scale: [bits(0x40071547652b82fe), bits(0x3c8777d0ffda0d24)],
    inverse: |d| d.alu(Alu::Rcp, Some(Round::Rn), false, &[]),
    split: log::split,
    exp2: exp::exp2_of,
    reach: 1100.0,
    even: 9_007_199_254_740_992.0,
    int: Ty::S64,
};

const fn bits(x: u64) -> f64 {
    f64::from_bits(x)
}

impl Emit {
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn double<'e>(&'e self, f: Real, args: &[Val<'e>]) -> Val<'e> {
        let x = args[0];
        match f {
            Real::Rsqrt => inverse(x.sqrt()),
            Real::Exp => exp::exp(x),
            Real::Exp2 => exp::exp2(x),
            Real::Expm1 => exp::expm1(x),
            Real::Sinh => exp::sinh(x),
            Real::Cosh => exp::cosh(x),
            Real::Tanh => exp::tanh(x),
            Real::Sigmoid => exp::sigmoid(x),
            Real::Log => log::log(x),
            Real::Log2 => log::log2(x),
            Real::Log10 => log::log10(x),
            Real::Log1p => log::log1p(x),
            Real::Sin => self.double_angle(ScalarFn::Sin, x),
            Real::Cos => self.double_angle(ScalarFn::Cos, x),
            Real::Tan => self.double_angle(ScalarFn::Tan, x),
            Real::Asin => inverse::asin(x),
            Real::Acos => inverse::acos(x),
            Real::Atan => inverse::atan(x),
            Real::Atan2 => inverse::atan2(x, args[1]),
            Real::Erf => erf::erf(x),
            Real::Pow => POWER.pow(x, args[1]),
        }
    }
}
