//! Functions of f64 outside of the strict profile, within 2 ulp: reduction of the argument and one
//! polynomial, in f64 throughout.
//!
//! Coefficients come from `tools/fit.py`. Errors are measured by `tests/double.rs`.

mod angle;
mod erf;
mod exp;
mod inverse;
mod log;

use super::emit::Emit;
use super::power::Power;
use super::val::Val;
use crate::inst::{Alu, Round, Ty};
use tessera_numerics::ScalarFn;

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
    pub(super) fn double<'e>(&'e self, f: ScalarFn, args: &[Val<'e>]) -> Val<'e> {
        let x = args[0];
        match f {
            ScalarFn::Exp => exp::exp(x),
            ScalarFn::Exp2 => exp::exp2(x),
            ScalarFn::Expm1 => exp::expm1(x),
            ScalarFn::Sinh => exp::sinh(x),
            ScalarFn::Cosh => exp::cosh(x),
            ScalarFn::Tanh => exp::tanh(x),
            ScalarFn::Sigmoid => exp::sigmoid(x),
            ScalarFn::Log => log::log(x),
            ScalarFn::Log2 => log::log2(x),
            ScalarFn::Log1p => log::log1p(x),
            ScalarFn::Sin | ScalarFn::Cos | ScalarFn::Tan => self.double_angle(f, x),
            ScalarFn::Asin => inverse::asin(x),
            ScalarFn::Acos => inverse::acos(x),
            ScalarFn::Atan => inverse::atan(x),
            ScalarFn::Atan2 => inverse::atan2(x, args[1]),
            ScalarFn::Erf => erf::erf(x),
            ScalarFn::Pow => POWER.pow(x, args[1]),
            // The others are single instructions.
            _ => x,
        }
    }
}
