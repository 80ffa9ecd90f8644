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
use crate::inst::{Alu, Reg, Ty};
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
    /// tanh of small numbers times a number, by instructions that no others wait for; and the largest
    /// so far, in the form that [`Scalars::all_small`] asks for.
    pub fn small_tanh(&mut self, x: Reg, times: f64, so_far: Option<Reg>) -> (Reg, Reg) {
        self.emit(|e| {
            let (near, t) = smooth::tanh_near(e.val(x, Ty::F32), times);
            let most = so_far.map_or(t, |m| t.op2(Alu::Max, e.val(m, Ty::F32)));
            (near.reg(), most.reg())
        })
    }

    /// Whether all of the numbers are small. One that is NaN does not matter: its polynomial is NaN.
    pub fn all_small(&mut self, most: Reg) -> Reg {
        self.emit(|e| e.val(most, Ty::F32).lt(smooth::TANH_NEAR).reg())
    }

    /// The same of any number, of which the polynomial is known.
    pub fn large_tanh(&mut self, x: Reg, times: f64, near: Reg) -> Reg {
        self.emit(|e| {
            let x = e.val(x, Ty::F32);
            smooth::tanh_any(x, x * x, e.val(near, Ty::F32), times).reg()
        })
    }
}

/// `1 / x` within 1 ulp, zero where that is subnormal.
fn inverse_of(x: Val<'_>) -> Val<'_> {
    x.approx(Alu::RcpApprox)
}
