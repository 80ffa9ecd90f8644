//! Functions of f32 and f64.

use super::Unsupported;
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Cmp, Round, Ty};
use tessera_numerics::{DType, ScalarFn, expansion};

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
            // Zeros and NaN, which are not ordered as different from zero, are themselves.
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
            ScalarFn::Rsqrt | ScalarFn::Exp | ScalarFn::Exp2 | ScalarFn::Log | ScalarFn::Log2 => {
                return self.real(f, dtype, args);
            }
            ScalarFn::Log1p | ScalarFn::Expm1 | ScalarFn::Sin | ScalarFn::Cos | ScalarFn::Tan => {
                return self.real(f, dtype, args);
            }
            ScalarFn::Asin | ScalarFn::Acos | ScalarFn::Atan | ScalarFn::Atan2 => {
                return self.real(f, dtype, args);
            }
            ScalarFn::Sinh | ScalarFn::Cosh | ScalarFn::Tanh | ScalarFn::Sigmoid => {
                return self.real(f, dtype, args);
            }
            ScalarFn::Erf | ScalarFn::Pow => return self.real(f, dtype, args),
            // Of integers only; `accepts` has said no.
            ScalarFn::And | ScalarFn::Or | ScalarFn::Xor | ScalarFn::Not => a,
            ScalarFn::Shl | ScalarFn::Shr => a,
        })
    }

    /// A function that no instruction gives to the last bit.
    fn real<'e>(
        &'e self,
        f: ScalarFn,
        dtype: DType,
        args: &[Val<'e>],
    ) -> Result<Val<'e>, Unsupported> {
        if !self.strict {
            let is_double = dtype == DType::F64;
            return Ok(if is_double { self.double(f, args) } else { self.quick(f, args) });
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

    /// NaN wins, and -0 is below +0, which the hardware knows.
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
fn inverse(x: Val<'_>) -> Val<'_> {
    x.alu(Alu::Rcp, Some(Round::Rn), false, &[])
}

/// To a whole number.
pub(super) fn whole(x: Val<'_>, how: Round) -> Val<'_> {
    x.cvt(x.ty(), Some(how))
}
