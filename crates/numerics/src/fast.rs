//! Whole tiles between storage and f32 or i32.
//!
//! These loops must agree bit for bit with `codec` (a test compares them over every code and many
//! values) but are written without branches on the value, so that the compiler vectorises them.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::codec::{CANONICAL_NAN_F32, decode, decode_small, encode};
use crate::dtype::DType;
use crate::format::FloatFormat;
use crate::modes::Rounding;
use crate::scalar::Scalar;

/// The constants of round-to-nearest-even from f32 into one narrow format.
#[derive(Copy, Clone)]
pub(crate) struct Fast {
    shift: u32,
    rebias: u32,
    min_normal: u32,
    magic: f32,
    max: u32,
    over: u32,
    nan: u32,
    sign_shift: u32,
}

impl Fast {
    const fn new(fmt: FloatFormat, sat: bool) -> Fast {
        let same_range = fmt.bias == 127;
        let unit = fmt.min_exp() - fmt.man_bits as i32;
        Fast {
            shift: 23 - fmt.man_bits,
            rebias: ((127 - fmt.bias) as u32) << fmt.man_bits,
            // With f32's own exponent range the shift handles subnormals too.
            min_normal: if same_range { 0 } else { ((127 + fmt.min_exp()) as u32) << 23 },
            // Adding this power of two leaves the sum's last bit at the format's smallest step, so
            // the addition itself rounds a subnormal result to nearest even.
            magic: if same_range { 0.0 } else { f32::from_bits(((127 + unit + 23) as u32) << 23) },
            max: fmt.max_code() as u32,
            over: (if sat {
                fmt.max_code()
            } else if fmt.has_inf {
                fmt.inf_code()
            } else {
                fmt.nan_code()
            }) as u32,
            nan: fmt.nan_code() as u32,
            sign_shift: fmt.sign_shift(),
        }
    }

    pub(crate) const TF32: Fast = Fast::new(FloatFormat::TF32, false);
    pub(crate) const F16: Fast = Fast::new(FloatFormat::F16, false);
    pub(crate) const BF16: Fast = Fast::new(FloatFormat::BF16, false);
    pub(crate) const FP8_E4M3: Fast = Fast::new(FloatFormat::FP8_E4M3, true);
    pub(crate) const FP8_E5M2: Fast = Fast::new(FloatFormat::FP8_E5M2, true);
    pub(crate) const FP6_E3M2: Fast = Fast::new(FloatFormat::FP6_E3M2, true);
    pub(crate) const FP6_E2M3: Fast = Fast::new(FloatFormat::FP6_E2M3, true);
    pub(crate) const FP4_E2M1: Fast = Fast::new(FloatFormat::FP4_E2M1, true);

    #[inline(always)]
    pub(crate) fn encode(self, x: f32) -> u32 {
        let bits = x.to_bits();
        let magnitude = bits & 0x7FFF_FFFF;
        let tie = (magnitude >> self.shift) & 1;
        let rounded = (magnitude + (1 << (self.shift - 1)) - 1 + tie) >> self.shift;
        let normal = rounded.wrapping_sub(self.rebias);
        let lifted = (f32::from_bits(magnitude) + self.magic).to_bits();
        let subnormal = lifted.wrapping_sub(self.magic.to_bits());
        let code = if magnitude < self.min_normal { subnormal } else { normal };
        let code = if code > self.max { self.over } else { code };
        let signed = code | (bits >> 31) << self.sign_shift;
        // A NaN is written canonical and positive; so is the NaN of an overflow that has no infinity.
        let is_nan = magnitude > 0x7F80_0000 || (code == self.nan && self.nan != self.max);
        if is_nan { self.nan } else { signed }
    }
}

const fn table(fmt: FloatFormat) -> [f32; 256] {
    let mut out = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        out[code] = decode_small(fmt, code as u32);
        code += 1;
    }
    out
}

static FP8_E4M3: [f32; 256] = table(FloatFormat::FP8_E4M3);
static FP8_E5M2: [f32; 256] = table(FloatFormat::FP8_E5M2);
static FP6_E3M2: [f32; 256] = table(FloatFormat::FP6_E3M2);
static FP6_E2M3: [f32; 256] = table(FloatFormat::FP6_E2M3);
static FP4_E2M1: [f32; 256] = table(FloatFormat::FP4_E2M1);
static E8M0: [f32; 256] = table(FloatFormat::E8M0);

fn byte_table(dt: DType) -> Option<&'static [f32; 256]> {
    match dt {
        DType::Fp8E4M3 => Some(&FP8_E4M3),
        DType::Fp8E5M2 => Some(&FP8_E5M2),
        DType::Fp6E3M2 => Some(&FP6_E3M2),
        DType::Fp6E2M3 => Some(&FP6_E2M3),
        DType::Fp4E2M1 => Some(&FP4_E2M1),
        DType::E8M0 => Some(&E8M0),
        DType::Bool | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => None,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => None,
        DType::F64 | DType::F32 | DType::Tf32 | DType::F16 | DType::BF16 => None,
    }
}

/// The f32 value of one code: exact for every float type but f64.
pub(crate) fn decode_f32(dt: DType, code: u32) -> f32 {
    match byte_table(dt) {
        Some(t) => t[(code & 0xFF) as usize],
        None => decode(dt, code as u64).as_f64() as f32,
    }
}

#[inline(always)]
fn bf16_to_f32(code: u16) -> f32 {
    let bits = (code as u32) << 16;
    f32::from_bits(if bits & 0x7FFF_FFFF > 0x7F80_0000 { CANONICAL_NAN_F32 } else { bits })
}

#[inline(always)]
fn f16_to_f32(code: u16) -> f32 {
    let magnitude = (code & 0x7FFF) as u32;
    let sign = ((code & 0x8000) as u32) << 16;
    let normal = (magnitude << 13) + (112 << 23);
    let subnormal = (magnitude as f32 * f32::from_bits(103 << 23)).to_bits();
    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    let special = if magnitude == 0x7C00 { 0x7F80_0000 } else { finite };
    f32::from_bits(if magnitude > 0x7C00 { CANONICAL_NAN_F32 } else { special | sign })
}

/// Little-endian elements of `dt`, unpacked, as f32. Converts as many elements as both sides hold
/// and says how many. Types that f32 does not hold are rounded to it.
pub fn decode_slice_f32(dt: DType, bytes: &[u8], out: &mut [f32]) -> usize {
    let n = (bytes.len() / dt.bytes()).min(out.len());
    let (bytes, out) = (&bytes[..n * dt.bytes()], &mut out[..n]);
    if let Some(t) = byte_table(dt) {
        bytes.iter().zip(out).for_each(|(b, o)| *o = t[*b as usize]);
        return n;
    }
    match dt {
        DType::F32 | DType::Tf32 => each::<4, _>(bytes, out, f32::from_le_bytes),
        DType::F16 => each::<2, _>(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        DType::BF16 => each::<2, _>(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
        DType::F64 => each::<8, _>(bytes, out, |b| f64::from_le_bytes(b) as f32),
        DType::I8 => each::<1, _>(bytes, out, |b| i8::from_le_bytes(b) as f32),
        DType::U8 => each::<1, _>(bytes, out, |b| b[0] as f32),
        DType::I64 => each::<8, _>(bytes, out, |b| i64::from_le_bytes(b) as f32),
        DType::U64 => each::<8, _>(bytes, out, |b| u64::from_le_bytes(b) as f32),
        DType::U32 => each::<4, _>(bytes, out, |b| u32::from_le_bytes(b) as f32),
        DType::I32 => each::<4, _>(bytes, out, |b| i32::from_le_bytes(b) as f32),
        DType::I16 => each::<2, _>(bytes, out, |b| i16::from_le_bytes(b) as f32),
        DType::U16 => each::<2, _>(bytes, out, |b| u16::from_le_bytes(b) as f32),
        DType::Bool | DType::I4 => {
            each::<1, _>(bytes, out, |b| decode(dt, b[0] as u64).as_f64() as f32)
        }
        // Answered by the tables above.
        DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => {}
        DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => {}
    }
    n
}

/// f32 values as little-endian elements of `dt`, by the default store of LANGUAGE 9: nearest even,
/// saturating for fp8, fp6 and fp4, NaN canonical. Converts as many elements as both sides hold.
pub fn encode_slice_f32(dt: DType, xs: &[f32], out: &mut [u8]) -> usize {
    let n = (out.len() / dt.bytes()).min(xs.len());
    let (xs, out) = (&xs[..n], &mut out[..n * dt.bytes()]);
    match dt {
        DType::F32 | DType::Tf32 => put::<4, _>(xs, out, |x| {
            (if x.is_nan() { CANONICAL_NAN_F32 } else { x.to_bits() }).to_le_bytes()
        }),
        DType::F16 => put::<2, _>(xs, out, |x| (Fast::F16.encode(x) as u16).to_le_bytes()),
        DType::BF16 => put::<2, _>(xs, out, |x| (Fast::BF16.encode(x) as u16).to_le_bytes()),
        DType::Fp8E4M3 => put::<1, _>(xs, out, |x| [Fast::FP8_E4M3.encode(x) as u8]),
        DType::Fp8E5M2 => put::<1, _>(xs, out, |x| [Fast::FP8_E5M2.encode(x) as u8]),
        DType::Fp6E3M2 => put::<1, _>(xs, out, |x| [Fast::FP6_E3M2.encode(x) as u8]),
        DType::Fp6E2M3 => put::<1, _>(xs, out, |x| [Fast::FP6_E2M3.encode(x) as u8]),
        DType::Fp4E2M1 => put::<1, _>(xs, out, |x| [Fast::FP4_E2M1.encode(x) as u8]),
        // `as` truncates, clamps and sends NaN to 0, which is the language's rule.
        DType::I8 => put::<1, _>(xs, out, |x| (x as i8).to_le_bytes()),
        DType::U8 => put::<1, _>(xs, out, |x| [x as u8]),
        DType::I16 => put::<2, _>(xs, out, |x| (x as i16).to_le_bytes()),
        DType::U16 => put::<2, _>(xs, out, |x| (x as u16).to_le_bytes()),
        DType::I32 => put::<4, _>(xs, out, |x| (x as i32).to_le_bytes()),
        DType::U32 => put::<4, _>(xs, out, |x| (x as u32).to_le_bytes()),
        DType::I64 => put::<8, _>(xs, out, |x| (x as i64).to_le_bytes()),
        DType::U64 => put::<8, _>(xs, out, |x| (x as u64).to_le_bytes()),
        DType::F64 => put::<8, _>(xs, out, |x| default_code(dt, x.into()).to_le_bytes()),
        DType::Bool | DType::I4 | DType::E8M0 => {
            put::<1, _>(xs, out, |x| [default_code(dt, x.into()) as u8])
        }
    }
    n
}

/// The code a store writes when the policy says nothing.
fn default_code(dt: DType, v: Scalar) -> u64 {
    encode(dt, v, Rounding::Rne, dt.saturates_by_default())
}

/// Little-endian elements of an integer type of at most 32 bits, or bool, as i32 (u32 by its bits).
/// Other types give nothing.
pub fn decode_slice_i32(dt: DType, bytes: &[u8], out: &mut [i32]) -> usize {
    let n = (bytes.len() / dt.bytes()).min(out.len());
    let (bytes, out) = (&bytes[..n * dt.bytes()], &mut out[..n]);
    match dt {
        DType::Bool => each::<1, _>(bytes, out, |b| (b[0] & 1) as i32),
        DType::I4 => each::<1, _>(bytes, out, |b| ((b[0] as i32) << 28) >> 28),
        DType::I8 => each::<1, _>(bytes, out, |b| b[0] as i8 as i32),
        DType::U8 => each::<1, _>(bytes, out, |b| b[0] as i32),
        DType::I16 => each::<2, _>(bytes, out, |b| i16::from_le_bytes(b) as i32),
        DType::U16 => each::<2, _>(bytes, out, |b| u16::from_le_bytes(b) as i32),
        DType::I32 | DType::U32 => each::<4, _>(bytes, out, i32::from_le_bytes),
        DType::I64 | DType::U64 | DType::F64 | DType::F32 | DType::Tf32 | DType::F16 => return 0,
        DType::BF16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => return 0,
        DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => return 0,
    }
    n
}

/// i32 values as little-endian elements of an integer type of at most 32 bits, wrapping. A bool is
/// true for anything but zero. Other types take nothing.
pub fn encode_slice_i32(dt: DType, xs: &[i32], out: &mut [u8]) -> usize {
    let n = (out.len() / dt.bytes()).min(xs.len());
    let (xs, out) = (&xs[..n], &mut out[..n * dt.bytes()]);
    match dt {
        DType::Bool => put::<1, _>(xs, out, |x| [(x != 0) as u8]),
        DType::I4 => put::<1, _>(xs, out, |x| [x as u8 & 0xF]),
        DType::I8 | DType::U8 => put::<1, _>(xs, out, |x| [x as u8]),
        DType::I16 | DType::U16 => put::<2, _>(xs, out, |x| (x as u16).to_le_bytes()),
        DType::I32 | DType::U32 => put::<4, _>(xs, out, i32::to_le_bytes),
        DType::I64 | DType::U64 | DType::F64 | DType::F32 | DType::Tf32 | DType::F16 => return 0,
        DType::BF16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => return 0,
        DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => return 0,
    }
    n
}

#[inline(always)]
fn each<const W: usize, T>(bytes: &[u8], out: &mut [T], f: impl Fn([u8; W]) -> T) {
    bytes.as_chunks::<W>().0.iter().zip(out).for_each(|(b, o)| *o = f(*b));
}

#[inline(always)]
fn put<const W: usize, T: Copy>(xs: &[T], out: &mut [u8], f: impl Fn(T) -> [u8; W]) {
    xs.iter().zip(out.as_chunks_mut::<W>().0).for_each(|(x, o)| *o = f(*x));
}
