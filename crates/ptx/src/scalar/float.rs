//! Functions of f32 and f64.

#![deny(clippy::wildcard_enum_match_arm)]

use super::Unsupported;
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Cmp, Round, Ty};
use tessera_numerics::{DType, ScalarFn, expansion};

/// A function of real numbers that no instruction computes exactly. Each has an instruction
/// sequence for f32 (`quick`) and for f64 (`double`).
#[derive(Copy, Clone, Debug)]
pub(super) enum Real {
    Rsqrt,
    Exp,
    Exp2,
    Log,
    Log2,
    Log1p,
    Expm1,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Atan2,
    Sinh,
    Cosh,
    Tanh,
    Sigmoid,
    Erf,
    Pow,
}

impl Emit {
    pub(super) fn apply_float<'e>(
        &'e self,
        f: ScalarFn,
        dtype: DType,
        args: &[Val<'e>],
    ) -> Result<Val<'e>, Unsupported> {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        Ok(match f {
            ScalarFn::Add => a + b,
            ScalarFn::Sub => a - b,
            ScalarFn::Mul => a * b,
            ScalarFn::Div => a / b,
            ScalarFn::FloorDiv => self.float_floor_div(a, b),
            ScalarFn::Mod => self.float_modulo(a, b),
            ScalarFn::Neg => -a,
            ScalarFn::Abs => a.abs(),
            ScalarFn::Fma => a.fma(b, args[2]),
            ScalarFn::Sqrt => a.sqrt(),
            ScalarFn::Recip => inverse(a),
            ScalarFn::Rsqrt if dtype == DType::F64 => inverse(a.sqrt()),
            ScalarFn::Floor => whole(a, Round::Rmi),
            ScalarFn::Ceil => whole(a, Round::Rpi),
            ScalarFn::Round => whole(a, Round::Rni),
            ScalarFn::Trunc => whole(a, Round::Rzi),
            // Zeros and NaN, which do not compare as different from zero, are themselves.
            ScalarFn::Sign => a.ne(0.0).pick(a.c(1.0).with_sign(a), a),
            ScalarFn::Maximum => self.maximum(a, b),
            ScalarFn::Minimum => self.minimum(a, b),
            ScalarFn::Clamp => self.minimum(self.maximum(a, b), args[2]),
            ScalarFn::Eq => a.eq(b),
            ScalarFn::Ne => a.cmp(Cmp::Neu, b),
            ScalarFn::Lt => a.lt(b),
            ScalarFn::Le => a.cmp(Cmp::Le, b),
            ScalarFn::Gt => a.gt(b),
            ScalarFn::Ge => a.cmp(Cmp::Ge, b),
            ScalarFn::IsNan => a.is_nan(),
            ScalarFn::IsInf => a.abs().eq(f64::INFINITY),
            ScalarFn::IsFinite => a.abs().lt(f64::INFINITY),
            ScalarFn::Rsqrt => return self.real(Real::Rsqrt, f, dtype, args),
            ScalarFn::Exp => return self.real(Real::Exp, f, dtype, args),
            ScalarFn::Exp2 => return self.real(Real::Exp2, f, dtype, args),
            ScalarFn::Log => return self.real(Real::Log, f, dtype, args),
            ScalarFn::Log2 => return self.real(Real::Log2, f, dtype, args),
            ScalarFn::Log1p => return self.real(Real::Log1p, f, dtype, args),
            ScalarFn::Expm1 => return self.real(Real::Expm1, f, dtype, args),
            ScalarFn::Sin => return self.real(Real::Sin, f, dtype, args),
            ScalarFn::Cos => return self.real(Real::Cos, f, dtype, args),
            ScalarFn::Tan => return self.real(Real::Tan, f, dtype, args),
            ScalarFn::Asin => return self.real(Real::Asin, f, dtype, args),
            ScalarFn::Acos => return self.real(Real::Acos, f, dtype, args),
            ScalarFn::Atan => return self.real(Real::Atan, f, dtype, args),
            ScalarFn::Atan2 => return self.real(Real::Atan2, f, dtype, args),
            ScalarFn::Sinh => return self.real(Real::Sinh, f, dtype, args),
            ScalarFn::Cosh => return self.real(Real::Cosh, f, dtype, args),
            ScalarFn::Tanh => return self.real(Real::Tanh, f, dtype, args),
            ScalarFn::Sigmoid => return self.real(Real::Sigmoid, f, dtype, args),
            ScalarFn::Erf => return self.real(Real::Erf, f, dtype, args),
            ScalarFn::Pow => return self.real(Real::Pow, f, dtype, args),
            // Of integers only; `accepts` has said no.
            ScalarFn::And | ScalarFn::Or | ScalarFn::Xor | ScalarFn::Not => a,
            ScalarFn::Shl | ScalarFn::Shr => a,
        })
    }

    /// A function that no instruction computes exactly.
    fn real<'e>(
        &'e self,
        real: Real,
        f: ScalarFn,
        dtype: DType,
        args: &[Val<'e>],
    ) -> Result<Val<'e>, Unsupported> {
        if !self.strict {
            let is_double = dtype == DType::F64;
            return Ok(if is_double { self.double(real, args) } else { self.quick(real, args) });
        }
        if dtype == DType::F32
            && let Some(e) = expansion(f)
        {
            return Ok(self.expand(e, args, false));
        }
        let reason = format!(
            "`{f}` of {dtype} under the strict profile is not supported on NVIDIA GPUs: it has no \
             published sequence of basic operations; use the default profile{}",
            if dtype == DType::F64 { ", or f32" } else { "" }
        );
        Err(Unsupported { reason })
    }

    /// NaN is propagated, and -0 is below +0, as in hardware.
    pub(super) fn maximum<'e>(&'e self, a: Val<'e>, b: Val<'e>) -> Val<'e> {
        self.extreme(a, b, [Alu::MaxNan, Alu::Max])
    }

    pub(super) fn minimum<'e>(&'e self, a: Val<'e>, b: Val<'e>) -> Val<'e> {
        self.extreme(a, b, [Alu::MinNan, Alu::Min])
    }

    fn extreme<'e>(&'e self, a: Val<'e>, b: Val<'e>, [nan_wins, plain]: [Alu; 2]) -> Val<'e> {
        if a.ty() == Ty::F32 && self.has.nan_wins {
            return a.op2(nan_wins, b);
        }
        a.cmp(Cmp::Nan, b).pick_of(a, f64::NAN, a.op2(plain, b))
    }
}

/// `1 / x`, correctly rounded.
pub(super) fn inverse(x: Val<'_>) -> Val<'_> {
    x.alu(Alu::Rcp, Some(Round::Rn), false, &[])
}

/// Rounds to an integer.
pub(super) fn whole(x: Val<'_>, how: Round) -> Val<'_> {
    x.cvt(x.ty(), Some(how))
}
