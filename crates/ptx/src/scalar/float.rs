//! Functions of f32 and f64.

#![deny(clippy::wildcard_enum_match_arm)]

use super::Unsupported;
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Cmp, Round, Ty};
use tessera_numerics::{Basic, DType, FnKind, Real, ScalarFn, expansion};

impl Emit {
    pub(super) fn apply_float<'e>(
        &'e self,
        f: ScalarFn,
        dtype: DType,
        args: &[Val<'e>],
    ) -> Result<Val<'e>, Unsupported> {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let f = match f.kind() {
            FnKind::Basic(f) => f,
            FnKind::Real(Real::Rsqrt) if dtype == DType::F64 => return Ok(inverse(a.sqrt())),
            FnKind::Real(real) => return self.real(real, dtype, args),
        };
        Ok(match f {
            Basic::Add => a + b,
            Basic::Sub => a - b,
            Basic::Mul => a * b,
            Basic::Div => a / b,
            Basic::FloorDiv => self.float_floor_div(a, b),
            Basic::Mod => self.float_modulo(a, b),
            Basic::Neg => -a,
            Basic::Abs => a.abs(),
            Basic::Fma => a.fma(b, args[2]),
            Basic::Sqrt => a.sqrt(),
            Basic::Recip => inverse(a),
            Basic::Floor => whole(a, Round::Rmi),
            Basic::Ceil => whole(a, Round::Rpi),
            Basic::Round => whole(a, Round::Rni),
            Basic::Trunc => whole(a, Round::Rzi),
            // Zeros and NaN, which do not compare as different from zero, are themselves.
            Basic::Sign => a.ne(0.0).pick(a.c(1.0).with_sign(a), a),
            Basic::Maximum => self.maximum(a, b),
            Basic::Minimum => self.minimum(a, b),
            Basic::Clamp => self.minimum(self.maximum(a, b), args[2]),
            Basic::Eq => a.eq(b),
            Basic::Ne => a.cmp(Cmp::Neu, b),
            Basic::Lt => a.lt(b),
            Basic::Le => a.cmp(Cmp::Le, b),
            Basic::Gt => a.gt(b),
            Basic::Ge => a.cmp(Cmp::Ge, b),
            Basic::IsNan => a.is_nan(),
            Basic::IsInf => a.abs().eq(f64::INFINITY),
            Basic::IsFinite => a.abs().lt(f64::INFINITY),
            // Of integers only; `accepts` has said no.
            Basic::And | Basic::Or | Basic::Xor | Basic::Not => a,
            Basic::Shl | Basic::Shr => a,
            Basic::Popcount
            | Basic::Clz
            | Basic::Ctz
            | Basic::Brev
            | Basic::MulHi
            | Basic::FunnelShift => a,
        })
    }

    /// A function that no instruction computes exactly.
    fn real<'e>(
        &'e self,
        real: Real,
        dtype: DType,
        args: &[Val<'e>],
    ) -> Result<Val<'e>, Unsupported> {
        if !self.strict {
            let is_double = dtype == DType::F64;
            return Ok(if is_double { self.double(real, args) } else { self.quick(real, args) });
        }
        let f = ScalarFn::from(real);
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
