//! Rounding to a format's values without leaving f32 or f64.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::codec::{decode, encode, float_code_f64};
use crate::dtype::DType;
use crate::fast::{Fast, decode_f32};
use crate::format::FloatFormat;
use crate::modes::Rounding;

/// The value of `dt` nearest to `x`, ties to even, saturating for fp8, fp6 and fp4. For tf32 this
/// is the rounding of tensor core operands. An integer type truncates and clamps.
pub fn round_to(dt: DType, x: f32) -> f32 {
    match dt {
        DType::F64 => x,
        DType::F32 => canonical(x),
        DType::Tf32 => f32::from_bits(Fast::TF32.encode(x) << 13),
        DType::F16 => decode_f32(dt, Fast::F16.encode(x)),
        DType::BF16 => f32::from_bits(Fast::BF16.encode(x) << 16),
        DType::Fp8E4M3 => decode_f32(dt, Fast::FP8_E4M3.encode(x)),
        DType::Fp8E5M2 => decode_f32(dt, Fast::FP8_E5M2.encode(x)),
        DType::Fp6E3M2 => decode_f32(dt, Fast::FP6_E3M2.encode(x)),
        DType::Fp6E2M3 => decode_f32(dt, Fast::FP6_E2M3.encode(x)),
        DType::Fp4E2M1 => decode_f32(dt, Fast::FP4_E2M1.encode(x)),
        DType::E8M0
        | DType::Bool
        | DType::I4
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => decode(dt, encode(dt, x.into(), Rounding::Rne, true)).as_f64() as f32,
    }
}

fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::NAN } else { x }
}

/// The value of `dt` that `x` rounds to by `r`, overflowing or saturating by `sat`.
pub fn round_to_mode(dt: DType, x: f64, r: Rounding, sat: bool) -> f64 {
    if dt == DType::Tf32 {
        // Stored as f32, so the codec does not round it to ten bits; its f32 form is that code widened.
        let code = float_code_f64(FloatFormat::TF32, x, r.into(), sat) as u32;
        return f32::from_bits(code << 13) as f64;
    }
    decode(dt, encode(dt, x.into(), r, sat)).as_f64()
}
