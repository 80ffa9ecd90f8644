//! Storage bits to values and back, one value at a time and exact.
//!
//! Encoding takes the value apart into an integer significand and a power of two, so the one
//! rounding it does is the only one: from f64, and from 64-bit integers, too.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::dtype::DType;
use crate::format::{FloatFormat, NanConvention};
use crate::modes::Rounding;
use crate::scalar::Scalar;

/// The value of a storage code. Bits above the type's width are ignored.
///
/// NaN in a format narrower than f32 becomes the canonical f32 NaN; f32 and f64 pass as they are.
pub fn decode(dt: DType, bits: u64) -> Scalar {
    match dt {
        DType::Bool => Scalar::Bool(bits & 1 != 0),
        DType::I4 => Scalar::I32(((bits as i32) << 28) >> 28),
        DType::I8 => Scalar::I32(bits as i8 as i32),
        DType::I16 => Scalar::I32(bits as i16 as i32),
        DType::I32 => Scalar::I32(bits as i32),
        DType::I64 => Scalar::I64(bits as i64),
        DType::U8 => Scalar::I32(bits as u8 as i32),
        DType::U16 => Scalar::I32(bits as u16 as i32),
        DType::U32 => Scalar::U32(bits as u32),
        DType::U64 => Scalar::U64(bits),
        DType::F64 => Scalar::F64(f64::from_bits(bits)),
        DType::F32 | DType::Tf32 => Scalar::F32(f32::from_bits(bits as u32)),
        DType::F16 => Scalar::F32(decode_small(FloatFormat::F16, bits as u32)),
        DType::BF16 => Scalar::F32(decode_small(FloatFormat::BF16, bits as u32)),
        DType::Fp8E4M3 => Scalar::F32(decode_small(FloatFormat::FP8_E4M3, bits as u32)),
        DType::Fp8E5M2 => Scalar::F32(decode_small(FloatFormat::FP8_E5M2, bits as u32)),
        DType::Fp6E3M2 => Scalar::F32(decode_small(FloatFormat::FP6_E3M2, bits as u32)),
        DType::Fp6E2M3 => Scalar::F32(decode_small(FloatFormat::FP6_E2M3, bits as u32)),
        DType::Fp4E2M1 => Scalar::F32(decode_small(FloatFormat::FP4_E2M1, bits as u32)),
        DType::E8M0 => Scalar::F32(decode_small(FloatFormat::E8M0, bits as u32)),
    }
}

/// The f32 value of a code of at most 16 bits. It is `const` so that tables of the 8-bit formats
/// are made by the compiler.
#[inline(always)]
pub(crate) const fn decode_small(fmt: FloatFormat, code: u32) -> f32 {
    let magnitude = code & ((1 << fmt.sign_shift()) - 1);
    let sign = if fmt.has_sign { (code >> fmt.sign_shift()) & 1 } else { 0 };
    if !fmt.has_sign {
        // e8m0: the code is the f32 exponent field, except that code 0 is 2^-127, a subnormal.
        return match magnitude {
            0 => f32::from_bits(1 << 22),
            0xFF => f32::from_bits(CANONICAL_NAN_F32),
            e => f32::from_bits(e << 23),
        };
    }
    let inf = fmt.inf_code() as u32;
    let bits = match fmt.nan {
        NanConvention::Ieee if magnitude > inf => return f32::from_bits(CANONICAL_NAN_F32),
        NanConvention::Ieee if magnitude == inf => 0x7F80_0000,
        NanConvention::AllOnes if magnitude == fmt.nan_code() as u32 => {
            return f32::from_bits(CANONICAL_NAN_F32);
        }
        NanConvention::Ieee | NanConvention::AllOnes | NanConvention::None => {
            let shift = 23 - fmt.man_bits;
            if fmt.bias == 127 {
                // bf16 shares f32's exponent field, subnormals included.
                magnitude << shift
            } else if magnitude >> fmt.man_bits == 0 {
                // Subnormals of the narrow format are normal f32 numbers: an integer times a power of two.
                let unit =
                    f32::from_bits(((127 + fmt.min_exp() - fmt.man_bits as i32) as u32) << 23);
                (magnitude as f32 * unit).to_bits()
            } else {
                (magnitude << shift) + (((127 - fmt.bias) as u32) << 23)
            }
        }
    };
    f32::from_bits(bits | sign << 31)
}

/// The positive quiet NaN that stores and casts write.
pub const CANONICAL_NAN_F32: u32 = 0x7FC0_0000;
/// The f64 form of [`CANONICAL_NAN_F32`].
pub const CANONICAL_NAN_F64: u64 = 0x7FF8_0000_0000_0000;

/// The storage code of a value, rounded once.
///
/// Floats round by `r`; what is out of range goes to the largest finite value when `sat`, else to
/// infinity, or to NaN in a format that has no infinity. Integers wrap, or clamp when `sat`. A float
/// stored to an integer type is truncated and clamped whatever `r` and `sat` say, and NaN gives 0.
/// Stored to bool, anything but zero is true.
pub fn encode(dt: DType, v: Scalar, r: Rounding, sat: bool) -> u64 {
    encode_mode(dt, v, r.into(), sat)
}

/// [`encode`] by stochastic rounding: `draw` is 32 uniform bits, and the magnitude goes up when the
/// dropped fraction, cut to 32 bits, is greater than `draw`. Exact values therefore never move.
pub fn encode_drawn(dt: DType, v: Scalar, draw: u32, sat: bool) -> u64 {
    encode_mode(dt, v, Mode::Drawn(draw), sat)
}

fn encode_mode(dt: DType, v: Scalar, mode: Mode, sat: bool) -> u64 {
    match dt {
        DType::Bool => v.truth() as u64,
        DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let half = 1i128 << (dt.bits() - 1);
            int_code(v, -half, half - 1, sat) & mask(dt)
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            int_code(v, 0, (1i128 << dt.bits()) - 1, sat) & mask(dt)
        }
        DType::F64 => float_code(FloatFormat::F64, v, mode, sat),
        // tf32 is stored as f32; tensor cores round operands to its ten fraction bits.
        DType::F32 | DType::Tf32 => float_code(FloatFormat::F32, v, mode, sat),
        DType::F16 => float_code(FloatFormat::F16, v, mode, sat),
        DType::BF16 => float_code(FloatFormat::BF16, v, mode, sat),
        DType::Fp8E4M3 => float_code(FloatFormat::FP8_E4M3, v, mode, sat),
        DType::Fp8E5M2 => float_code(FloatFormat::FP8_E5M2, v, mode, sat),
        DType::Fp6E3M2 => float_code(FloatFormat::FP6_E3M2, v, mode, sat),
        DType::Fp6E2M3 => float_code(FloatFormat::FP6_E2M3, v, mode, sat),
        DType::Fp4E2M1 => float_code(FloatFormat::FP4_E2M1, v, mode, sat),
        DType::E8M0 => float_code(FloatFormat::E8M0, v, mode, sat),
    }
}

fn mask(dt: DType) -> u64 {
    u64::MAX >> (64 - dt.bits())
}

/// Two's complement bits of `v` brought into `min..=max`; the caller cuts them to width, which wraps.
fn int_code(v: Scalar, min: i128, max: i128, sat: bool) -> u64 {
    let whole = match v.as_int() {
        Some(i) if !sat => return i as u64,
        Some(i) => i,
        // `as` truncates, clamps to i128 and sends NaN to 0; every type here is narrower.
        None => v.as_f64() as i128,
    };
    whole.clamp(min, max) as u64
}

#[derive(Copy, Clone)]
pub(crate) enum Mode {
    Nearest,
    Zero,
    Up,
    Down,
    Drawn(u32),
}

impl From<Rounding> for Mode {
    fn from(r: Rounding) -> Mode {
        match r {
            // Without a draw the stochastic choice is the likelier one.
            Rounding::Rne | Rounding::Stochastic => Mode::Nearest,
            Rounding::Rtz => Mode::Zero,
            Rounding::Up => Mode::Up,
            Rounding::Down => Mode::Down,
        }
    }
}

fn float_code(fmt: FloatFormat, v: Scalar, mode: Mode, sat: bool) -> u64 {
    let Some(i) = v.as_int() else { return float_code_f64(fmt, v.as_f64(), mode, sat) };
    // Every carrier integer has a magnitude below 2^64.
    float_code_parts(fmt, i < 0, i.unsigned_abs() as u64, 0, mode, sat)
}

pub(crate) fn float_code_f64(fmt: FloatFormat, x: f64, mode: Mode, sat: bool) -> u64 {
    let bits = x.to_bits();
    let neg = bits >> 63 != 0;
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52) & 0x7FF {
        0x7FF if fraction != 0 || (neg && !fmt.has_sign) => fmt.nan_code(),
        0x7FF => signed(fmt, neg, overflow(fmt, neg, Mode::Nearest, sat)),
        0 => float_code_parts(fmt, neg, fraction, -1074, mode, sat),
        e => float_code_parts(fmt, neg, fraction | 1 << 52, e as i32 - 1075, mode, sat),
    }
}

/// Code of `± m · 2^e`.
fn float_code_parts(fmt: FloatFormat, neg: bool, m: u64, e: i32, mode: Mode, sat: bool) -> u64 {
    if m == 0 {
        // e8m0 has no zero: its smallest value stands for it (LANGUAGE 16, amax 0).
        return if fmt.has_sign { signed(fmt, neg, 0) } else { 0 };
    }
    // `top` is the exponent of the leading bit, `unit` that of the last bit kept.
    let top = 63 - m.leading_zeros() as i32 + e;
    if !fmt.has_sign && (neg || top < fmt.min_exp()) {
        // No negative values, and what lies below the smallest value becomes it.
        return if neg { fmt.nan_code() } else { 0 };
    }
    let unit = top.max(fmt.min_exp()) - fmt.man_bits as i32;
    // What the exponent field contributes. The significand brings the hidden bit, which counts one
    // step of exponent; a carry out of it runs into the exponent field, where it belongs.
    let base = if fmt.has_sign && top < fmt.min_exp() {
        0
    } else {
        let exponent = (top - fmt.min_exp()) as u64;
        if fmt.has_sign { exponent << fmt.man_bits } else { exponent.wrapping_sub(1) }
    };
    let significand = if e >= unit {
        m << (e - unit)
    } else {
        shift_round(m, (unit - e) as u32, base, neg, mode)
    };
    let code = base.wrapping_add(significand);
    let code = if code > fmt.max_code() { overflow(fmt, neg, mode, sat) } else { code };
    signed(fmt, neg, code)
}

/// `m / 2^s` rounded to an integer, for `s >= 1`. A tie goes to the even code, which is the sum of
/// `base` and the result; only in e8m0, with no fraction bits, is that not the even result.
fn shift_round(m: u64, s: u32, base: u64, neg: bool, mode: Mode) -> u64 {
    // Beyond 127 places the value is a sliver in every mode, as it already is at 127.
    let s = s.min(127);
    let wide = m as u128;
    let kept = (wide >> s) as u64;
    let dropped = wide & ((1 << s) - 1);
    let half = 1u128 << (s - 1);
    let up = match mode {
        Mode::Nearest => dropped > half || (dropped == half && base.wrapping_add(kept) & 1 == 1),
        Mode::Zero => false,
        Mode::Up => dropped != 0 && !neg,
        Mode::Down => dropped != 0 && neg,
        Mode::Drawn(draw) => {
            let fraction = if s >= 32 { dropped >> (s - 32) } else { dropped << (32 - s) };
            fraction > draw as u128
        }
    };
    kept + up as u64
}

/// Magnitude code of what is beyond the largest finite value.
fn overflow(fmt: FloatFormat, neg: bool, mode: Mode, sat: bool) -> u64 {
    let inward = match mode {
        Mode::Nearest | Mode::Drawn(_) => false,
        Mode::Zero => true,
        Mode::Up => neg,
        Mode::Down => !neg,
    };
    if sat || inward {
        fmt.max_code()
    } else if fmt.has_inf {
        fmt.inf_code()
    } else {
        // NaN, or the largest finite value where there is no NaN.
        fmt.nan_code()
    }
}

fn signed(fmt: FloatFormat, neg: bool, magnitude: u64) -> u64 {
    // The one NaN that overflow can give is kept canonical, which is to say positive.
    let negative = neg && fmt.has_sign && !(fmt.has_nan && magnitude == fmt.nan_code());
    magnitude | (negative as u64) << fmt.sign_shift()
}
