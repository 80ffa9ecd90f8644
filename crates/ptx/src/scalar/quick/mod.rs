//! Functions of f32 in the profiles that allow an error (LANGUAGE 13): within 4 ulp, or 2^-21 in
//! absolute terms, with hardware approximations. Subnormal results may be flushed to zero;
//! subnormal operands are not.
//!
//! Coefficients come from `tools/fit.py`. Errors are measured by `tests/quick.rs`.

mod angle;
mod exp;
mod inverse;
mod log;
mod pow;
mod smooth;

use super::Scalars;
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Opnd, Reg, Ty};
use tessera_numerics::{Real, ScalarFn};

impl Emit {
    /// One arm for each function: the compiler lists what a new one lacks.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn quick<'e>(&'e self, f: Real, args: &[Val<'e>]) -> Val<'e> {
        let x = args[0];
        match f {
            Real::Rsqrt => x.approx_full(Alu::RsqrtApprox),
            Real::Exp => exp::exp(x),
            Real::Exp2 => x.approx(Alu::Ex2Approx),
            Real::Expm1 => exp::expm1(x),
            Real::Sinh => exp::sinh(x),
            Real::Cosh => exp::cosh(x),
            Real::Log => log::log(x),
            Real::Log2 => x.approx_full(Alu::Lg2Approx),
            Real::Log10 => log::log10(x),
            Real::Log1p => log::log1p(x),
            Real::Sin => self.quick_angle(ScalarFn::Sin, x),
            Real::Cos => self.quick_angle(ScalarFn::Cos, x),
            Real::Tan => self.quick_angle(ScalarFn::Tan, x),
            Real::Asin => inverse::asin(x),
            Real::Acos => inverse::acos(x),
            Real::Atan => inverse::atan(x),
            Real::Atan2 => inverse::atan2(x, args[1]),
            Real::Tanh => smooth::tanh(x),
            Real::Sigmoid => smooth::sigmoid(x),
            Real::Erf => smooth::erf(x),
            Real::Pow => {
                let known = args[1].known_float().and_then(|y| pow::by_known(x, y));
                known.unwrap_or_else(|| pow::POWER.pow(x, args[1]))
            }
        }
    }
}

impl Scalars<'_> {
    /// `times` tanh of `y`, which is below 2 in units of [`Scalars::tanh_unit`]; within 2^-22 times
    /// `times`.
    pub fn tanh_below(&mut self, y: Reg, times: f64) -> Reg {
        self.emit(|e| smooth::tanh_below(e.val(y, Ty::F32), times).reg())
    }

    /// The same of any `y`, within 2^-21.8 times `times`.
    pub fn tanh_any(&mut self, y: Reg, times: f64) -> Reg {
        self.emit(|e| smooth::tanh_any(e.val(y, Ty::F32), times).reg())
    }

    /// The factor that scales arguments, themselves multiplied by `factor`, to the units of the
    /// tanh of large tiles.
    pub fn tanh_unit(&mut self, factor: Option<Reg>) -> Opnd {
        let unit = 2.0 / smooth::TANH_SMALL;
        match factor {
            Some(r) => self.emit(|e| (e.val(r, Ty::F32) * unit).reg()).into(),
            None => Opnd::F32((unit as f32).to_bits()),
        }
    }
}

/// `1 / x` within 1 ulp, zero where that is subnormal.
fn inverse_of(x: Val<'_>) -> Val<'_> {
    x.approx(Alu::RcpApprox)
}
