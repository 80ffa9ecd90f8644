//! Functions of f32 in the profiles that allow an error (LANGUAGE 13): within 4 ulp, or 2^-21 in
//! absolute terms, with the approximations of the hardware. Results below the normal numbers may be
//! flushed to zero; operands there are not.
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
use tessera_numerics::ScalarFn;

impl Emit {
    pub(super) fn quick<'e>(&'e self, f: ScalarFn, args: &[Val<'e>]) -> Val<'e> {
        let x = args[0];
        match f {
            ScalarFn::Rsqrt => x.approx_full(Alu::RsqrtApprox),
            ScalarFn::Exp => exp::exp(x),
            ScalarFn::Exp2 => x.approx(Alu::Ex2Approx),
            ScalarFn::Expm1 => exp::expm1(x),
            ScalarFn::Sinh => exp::sinh(x),
            ScalarFn::Cosh => exp::cosh(x),
            ScalarFn::Log => log::log(x),
            ScalarFn::Log2 => x.approx_full(Alu::Lg2Approx),
            ScalarFn::Log1p => log::log1p(x),
            ScalarFn::Sin | ScalarFn::Cos | ScalarFn::Tan => self.quick_angle(f, x),
            ScalarFn::Asin => inverse::asin(x),
            ScalarFn::Acos => inverse::acos(x),
            ScalarFn::Atan => inverse::atan(x),
            ScalarFn::Atan2 => inverse::atan2(x, args[1]),
            ScalarFn::Tanh => smooth::tanh(x),
            ScalarFn::Sigmoid => smooth::sigmoid(x),
            ScalarFn::Erf => smooth::erf(x),
            ScalarFn::Pow => {
                let known = args[1].known_float().and_then(|y| pow::by_known(x, y));
                known.unwrap_or_else(|| pow::POWER.pow(x, args[1]))
            }
            // The others are single instructions.
            _ => x,
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

    /// What brings numbers, which are multiplied by a factor before, to the units that a tanh of many
    /// is taken in.
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
