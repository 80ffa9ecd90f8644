//! Casts between carriers.

use super::carrier_type;
use super::emit::Emit;
use super::encode::{clamp_finite, most, rounding};
use super::val::Val;
use crate::inst::{Cmp, Round, Ty};
use tessera_numerics::{DType, Rounding};

impl Emit {
    /// From the carrier of one type to that of another. Not stochastic.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn cast<'e>(
        &'e self,
        x: Val<'e>,
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
    ) -> Val<'e> {
        let plain = round == Rounding::Rne && saturate == to.saturates_by_default();
        if plain && from == to {
            return x;
        }
        match to {
            DType::Bool => truth(x),
            DType::F64 | DType::F32 | DType::Tf32 => {
                let y = self.cast_to_wide(x, from, to, round);
                let infinite = from.is_float();
                if saturate && infinite { clamp_finite(y, most(to)) } else { y }
            }
            DType::BF16 | DType::F16 | DType::Fp8E4M3 | DType::Fp8E5M2 => {
                self.cast_to_narrow(x, from, to, round, saturate)
            }
            DType::Fp6E3M2 | DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => {
                self.cast_to_narrow(x, from, to, round, saturate)
            }
            DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                self.cast_to_int(x, from, to, saturate)
            }
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                self.cast_to_int(x, from, to, saturate)
            }
        }
    }

    fn cast_to_int<'e>(&'e self, x: Val<'e>, from: DType, to: DType, saturate: bool) -> Val<'e> {
        let ty = carrier_type(to);
        match from.carrier() {
            DType::Bool => x.pick(self.int(ty, 1), 0),
            DType::F32 | DType::F64 => float_to_int(x, to),
            carrier => {
                let clamped = if saturate { clamp_int(x, carrier, to) } else { x };
                let resized = if x.ty().bits() == ty.bits() {
                    clamped.of(ty)
                } else if ty.bits() == 64 {
                    let wide = if carrier.is_signed_int() { Ty::S64 } else { Ty::U64 };
                    clamped.cvt(wide, None).of(ty)
                } else {
                    clamped.of(Ty::U64).cvt(Ty::U32, None).of(ty)
                };
                if saturate || inside(from, to) { resized } else { wrap(resized, to) }
            }
        }
    }

    /// To f32 or f64, for which the instructions have every rounding mode.
    fn cast_to_wide<'e>(&'e self, x: Val<'e>, from: DType, to: DType, round: Rounding) -> Val<'e> {
        let ty = carrier_type(to);
        match (x.ty(), ty) {
            (Ty::Pred, Ty::F64) => x.pick(self.f64(1.0), 0.0),
            (Ty::Pred, _) => x.pick(self.f32(1.0), 0.0),
            (a, b) if a == b => x,
            (Ty::F32, _) => x.cvt(ty, None),
            // Integers of this few bits are exact as floats.
            _ if from.bits() <= 24 || (from.bits() == 32 && ty == Ty::F64 && !from.is_float()) => {
                x.cvt(ty, Some(Round::Rn))
            }
            _ => x.cvt(ty, Some(rounding(round))),
        }
    }

    fn cast_to_narrow<'e>(
        &'e self,
        x: Val<'e>,
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
    ) -> Val<'e> {
        let x = self.odd_f32(x, from);
        if to != DType::BF16 {
            return self.decode_val(to, self.narrow(to, x, round, saturate, false));
        }
        if round == Rounding::Rne && self.has.pairs {
            let x = if saturate { clamp_finite(x, most(to)) } else { x };
            // With zero in the lower half, this is the number in f32.
            return x.c(0.0).cvt_pair(x, Ty::BF16x2, Round::Rn, false).of(Ty::F32);
        }
        self.bf16_bits(x, round, saturate).and(0xFFFF_0000i64).of(Ty::F32)
    }

    /// The value as f32, rounded to odd, such that rounding it to a narrower format rounds the
    /// value itself once: an inexact f32 is the neighbour whose last bit is set, which no narrower
    /// format has and which is on the right side of every midpoint.
    fn odd_f32<'e>(&'e self, x: Val<'e>, from: DType) -> Val<'e> {
        let inexact = |near: Val<'e>, other: Val<'e>| {
            let bit = other.pick(self.int(Ty::B32, 1), 0);
            near.of(Ty::B32).or(bit).of(Ty::F32)
        };
        match x.ty() {
            Ty::F32 => x,
            Ty::Pred => x.pick(self.f32(1.0), 0.0),
            _ if from.bits() <= 16 => x.cvt(Ty::F32, Some(Round::Rn)),
            Ty::F64 => {
                let near = x.cvt(Ty::F32, Some(Round::Rz));
                inexact(near, near.cvt(Ty::F64, None).ne(x))
            }
            ty => {
                let near = x.cvt(Ty::F32, Some(Round::Rz));
                inexact(near, near.cvt(ty, Some(Round::Rzi)).ne(x))
            }
        }
    }
}

/// Whether the value is not zero; true for NaN.
fn truth(x: Val<'_>) -> Val<'_> {
    match x.ty() {
        Ty::Pred => x,
        Ty::F32 | Ty::F64 => x.cmp(Cmp::Neu, 0.0),
        _ => x.ne(0),
    }
}

/// The low bits of a carrier that the narrower type `to` has, extended again.
fn wrap(x: Val<'_>, to: DType) -> Val<'_> {
    let bits = i64::from(to.bits());
    if bits == i64::from(x.ty().bits()) {
        x
    } else if to.is_signed_int() {
        x.field(0, bits)
    } else {
        x.and((1 << bits) - 1)
    }
}

/// Clamped to the range of `to`, in its carrier.
pub(super) fn clamp_int<'e>(x: Val<'e>, carrier: DType, to: DType) -> Val<'e> {
    let ((low, high), (least, most)) = (range(to), range(carrier));
    let x = if low > least { x.max(low as i64) } else { x };
    if high < most { x.min(high as i64) } else { x }
}

/// Truncated and clamped; NaN gives 0. The instruction clamps, but converts NaN to 0 only between
/// 32-bit types.
fn float_to_int(x: Val<'_>, to: DType) -> Val<'_> {
    let ty = carrier_type(to);
    let y = x.cvt(ty, Some(Round::Rzi));
    let y = if x.ty() == Ty::F64 || ty.bits() == 64 { x.is_nan().pick_of(y, 0, y) } else { y };
    clamp_int(y, to.carrier(), to)
}

/// Least and greatest value of an integer type; bool counts as one.
fn range(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if dtype.is_signed_int() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// Whether every value of one integer type is one of the other.
fn inside(from: DType, to: DType) -> bool {
    let ((low, high), (least, most)) = (range(from), range(to));
    least <= low && high <= most
}
