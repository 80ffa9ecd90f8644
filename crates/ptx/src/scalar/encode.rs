//! From carriers to storage codes, rounded once.

use super::cast::clamp_int;
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Round, Ty};
use tessera_numerics::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, DType, Rounding};

impl Emit {
    /// To the bits in memory. Under `strict` a NaN is the canonical one.
    pub(super) fn encode<'e>(
        &'e self,
        dtype: DType,
        x: Val<'e>,
        round: Rounding,
        saturate: bool,
    ) -> Val<'e> {
        self.code(dtype, x, round, saturate, self.strict)
    }

    /// The same with `canonical` saying whether a NaN must be that one.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn code<'e>(
        &'e self,
        dtype: DType,
        x: Val<'e>,
        round: Rounding,
        saturate: bool,
        canonical: bool,
    ) -> Val<'e> {
        match dtype {
            DType::Bool => x.pick(self.int(Ty::U16, 1), 0),
            DType::I32 | DType::I64 | DType::U32 | DType::U64 => x,
            DType::I4 | DType::I8 | DType::I16 | DType::U8 | DType::U16 => {
                let x = if saturate { clamp_int(x, dtype.carrier(), dtype) } else { x };
                let x = if dtype == DType::I4 { x.and(15) } else { x };
                x.of(Ty::U32).cvt(Ty::U16, None)
            }
            DType::F64 | DType::F32 | DType::Tf32 => {
                let x = if saturate { clamp_finite(x, most(dtype)) } else { x };
                if canonical { canonical_nan(x) } else { x }
            }
            DType::F16 | DType::BF16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => {
                self.narrow(dtype, x, round, saturate, canonical)
            }
            DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => {
                self.narrow(dtype, x, round, saturate, canonical)
            }
        }
    }
}

/// The largest finite number.
pub(super) fn most(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        DType::BF16 => f32::from_bits(0x7F7F_0000).into(),
        _ => f32::MAX.into(),
    }
}

/// The positive quiet NaN in the place of every NaN.
fn canonical_nan(x: Val<'_>) -> Val<'_> {
    let bits = if x.ty() == Ty::F64 {
        x.emitter().f64(f64::from_bits(CANONICAL_NAN_F64))
    } else {
        x.emitter().f32(f32::from_bits(CANONICAL_NAN_F32))
    };
    x.is_nan().pick(bits, x)
}

/// Infinities, and what is beyond `most`, to that number; NaN stays.
pub(super) fn clamp_finite(x: Val<'_>, most: f64) -> Val<'_> {
    x.abs().gt(most).pick(x.c(most).with_sign(x), x)
}

/// How the instructions name a rounding.
pub(super) fn rounding(round: Rounding) -> Round {
    match round {
        Rounding::Rne | Rounding::Stochastic => Round::Rn,
        Rounding::Rtz => Round::Rz,
        Rounding::Up => Round::Rp,
        Rounding::Down => Round::Rm,
    }
}
