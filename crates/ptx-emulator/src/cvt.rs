//! Conversions between number types, and comparisons.

use super::alu::{mask, sign_extend};
use super::float::{self, Mods, NAN_F32};
use super::soft::Mode;
use tessera_numerics::{DType, Rounding, Scalar, decode, encode};
use tessera_ptx::inst::{Cmp, Round, Ty};

/// A conversion with everything but its operands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CvtSpec {
    pub to: Ty,
    pub from: Ty,
    pub mods: Mods,
    /// Two values of `from` give one of `to`.
    pub pair: bool,
    /// The destination is a 16-bit register.
    pub narrow: bool,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Int,
    Float,
    /// Two values in one register, each of this storage type.
    Packed(DType),
    No,
}

fn kind(ty: Ty) -> Kind {
    match ty {
        Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64 => Kind::Int,
        Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64 | Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64 => Kind::Int,
        Ty::F16 | Ty::BF16 | Ty::Tf32 | Ty::F32 | Ty::F64 => Kind::Float,
        Ty::F16x2 => Kind::Packed(DType::F16),
        Ty::BF16x2 => Kind::Packed(DType::BF16),
        Ty::E4M3x2 => Kind::Packed(DType::Fp8E4M3),
        Ty::E5M2x2 => Kind::Packed(DType::Fp8E5M2),
        Ty::E2M1x2 => Kind::Packed(DType::Fp4E2M1),
        Ty::E2M3x2 => Kind::Packed(DType::Fp6E2M3),
        Ty::E3M2x2 => Kind::Packed(DType::Fp6E3M2),
        Ty::UE8M0x2 => Kind::Packed(DType::E8M0),
        Ty::Pred | Ty::E4M3 | Ty::E5M2 => Kind::No,
        Ty::U4 | Ty::S4 | Ty::E2M1 | Ty::E2M3 | Ty::E3M2 => Kind::No,
    }
}

/// Whether such a conversion exists.
pub(super) fn exists(spec: CvtSpec) -> bool {
    match (kind(spec.from), kind(spec.to)) {
        (Kind::Int | Kind::Float, Kind::Int) => !spec.pair,
        (Kind::Int, Kind::Float) => !spec.pair && spec.to != Ty::Tf32,
        (Kind::Float, Kind::Float) => !spec.pair && (spec.to != Ty::Tf32 || spec.from == Ty::F32),
        (Kind::Float, Kind::Packed(_)) => spec.pair && spec.from == Ty::F32,
        (Kind::Packed(_), Kind::Packed(_)) => !spec.pair,
        _ => false,
    }
}

/// The result, sign-extended to 64 bits by its type.
pub fn eval(spec: CvtSpec, a: u64, b: u64) -> u64 {
    let CvtSpec { to, from, mods, .. } = spec;
    match (kind(from), kind(to)) {
        (Kind::Int, Kind::Int) => int_to_int(from, to, mods.sat, a),
        (Kind::Int, _) => int_to_float(from, to, mods, a),
        (Kind::Float, Kind::Int) => float_to_int(from, to, mods, a),
        (Kind::Float, Kind::Float) => float_to_float(from, to, mods, a),
        (Kind::Float, Kind::Packed(dt)) => {
            let one = |x| narrow(dt, flushed(from, mods.ftz, x), mods);
            one(a) << half_width(dt) | one(b)
        }
        (Kind::Packed(old), Kind::Packed(new)) => {
            let width = half_width(old);
            let one = |x: u64| {
                let v = decode(old, x & mask(width)).as_f64();
                narrow(new, v, mods)
            };
            one(a >> width) << half_width(new) | one(a)
        }
        _ => 0,
    }
}

/// Bits of one value of a pair: six-bit formats take a byte each.
fn half_width(dt: DType) -> u32 {
    match dt {
        DType::F16 | DType::BF16 => 16,
        DType::Fp4E2M1 => 4,
        _ => 8,
    }
}

/// A value as an element of a pair. The small formats saturate to their greatest value
/// (`.satfinite` is mandatory); halves clamp to 0..1 with `sat`.
fn narrow(dt: DType, x: f64, mods: Mods) -> u64 {
    match dt {
        DType::F16 => float::code(Ty::F16, clamped(x, mods.sat), Mode::of(mods.round)),
        DType::BF16 => float::code(Ty::BF16, clamped(x, mods.sat), Mode::of(mods.round)),
        // NaN in e5m2 has all bits set, as in the other formats.
        DType::Fp8E5M2 if x.is_nan() => 0x7F,
        _ => encode(dt, Scalar::F64(x), rounding(mods.round), true),
    }
}

fn rounding(round: Option<Round>) -> Rounding {
    match Mode::of(round) {
        Mode::Nearest => Rounding::Rne,
        Mode::Zero => Rounding::Rtz,
        Mode::Down => Rounding::Down,
        Mode::Up => Rounding::Up,
    }
}

fn clamped(x: f64, sat: bool) -> f64 {
    match sat {
        false => x,
        true if x > 1.0 => 1.0,
        true if x > 0.0 => x,
        true => 0.0,
    }
}

fn flushed(from: Ty, ftz: bool, a: u64) -> f64 {
    float::value(from, if ftz && from == Ty::F32 { float::flush(a as u32) as u64 } else { a })
}

fn whole(ty: Ty, a: u64) -> i128 {
    let w = ty.bits();
    if ty.is_signed() { sign_extend(a, w) as i128 } else { (a & mask(w)) as i128 }
}

/// Truncated to the type and sign-extended.
fn fit(ty: Ty, v: i128) -> u64 {
    let w = ty.bits();
    if ty.is_signed() { sign_extend(v as u64, w) as u64 } else { v as u64 & mask(w) }
}

fn limits(ty: Ty) -> (i128, i128) {
    let w = ty.bits();
    if ty.is_signed() { (-(1 << (w - 1)), (1 << (w - 1)) - 1) } else { (0, (1 << w) - 1) }
}

fn int_to_int(from: Ty, to: Ty, sat: bool, a: u64) -> u64 {
    let v = whole(from, a);
    let (low, high) = limits(to);
    fit(to, if sat { v.clamp(low, high) } else { v })
}

fn int_to_float(from: Ty, to: Ty, mods: Mods, a: u64) -> u64 {
    let v = whole(from, a);
    let Some((_, dt)) = float::format(to) else { return 0 };
    let v = if mods.sat { v.clamp(0, 1) } else { v };
    let scalar = if v < 0 { Scalar::I64(v as i64) } else { Scalar::U64(v as u64) };
    encode(dt, scalar, rounding(mods.round), false)
}

/// Out of range clamps. The ISA on NaN: zero, unless the source is f64 or the destination has 64
/// bits; then only the highest bit of the destination is set.
fn float_to_int(from: Ty, to: Ty, mods: Mods, a: u64) -> u64 {
    let x = flushed(from, mods.ftz, a);
    if x.is_nan() {
        let zero = from != Ty::F64 && to.bits() != 64;
        return if zero { 0 } else { fit(to, 1 << (to.bits() - 1)) };
    }
    let (low, high) = limits(to);
    // `as` clamps to i128, which holds every limit.
    fit(to, (integral(x, mods.round) as i128).clamp(low, high))
}

fn integral(x: f64, round: Option<Round>) -> f64 {
    match Mode::of(round.or(Some(Round::Rzi))) {
        Mode::Nearest => x.round_ties_even(),
        Mode::Zero => x.trunc(),
        Mode::Down => x.floor(),
        Mode::Up => x.ceil(),
    }
}

fn float_to_float(from: Ty, to: Ty, mods: Mods, a: u64) -> u64 {
    if to == Ty::Tf32 {
        return tf32(a as u32, mods.round) as u64;
    }
    // Only f32 is flushed: the hardware converts subnormals to f16 unchanged.
    let mut x = flushed(from, mods.ftz && to != Ty::F16, a);
    if x.is_nan() && !mods.sat {
        return nan_to_nan(from, to, mods.ftz, a);
    }
    if let Some(Round::Rni | Round::Rzi | Round::Rmi | Round::Rpi) = mods.round {
        x = integral(x, mods.round);
    }
    let out = float::code(to, clamped(x, mods.sat), Mode::of(mods.round));
    if mods.ftz && to == Ty::F32 { float::flush(out as u32) as u64 } else { out }
}

/// Which NaN a NaN becomes: conversions from and to f64 keep sign and payload, as does bf16 that is
/// only moved to the upper half; all others give the canonical NaN of PTX. Observed on an H200.
fn nan_to_nan(from: Ty, to: Ty, ftz: bool, a: u64) -> u64 {
    let (Some((old, _)), Some((new, _))) = (float::format(from), float::format(to)) else {
        return 0;
    };
    if (from, to, ftz) == (Ty::BF16, Ty::F32, false) {
        return a << 16 & 0xFFFF_FFFF;
    }
    let a = if ftz && from == Ty::F32 { NAN_F32 as u64 } else { a };
    if from != Ty::F64 && to != Ty::F64 {
        return super::soft::nan(new);
    }
    let fraction = a & mask(old.man_bits);
    let fraction = if new.man_bits >= old.man_bits {
        fraction << (new.man_bits - old.man_bits)
    } else {
        fraction >> (old.man_bits - new.man_bits)
    };
    let sign = (a >> old.sign_shift() & 1) << new.sign_shift();
    sign | new.inf_code() | 1 << (new.man_bits - 1) | fraction
}

/// An f32 whose low 13 bits are zero. A NaN loses its low bits (`rna`, which can make it an
/// infinity), or becomes the canonical NaN without them.
pub(super) fn tf32(x: u32, round: Option<Round>) -> u32 {
    if x & 0x7F80_0000 == 0x7F80_0000 {
        let nan = x & 0x7F_FFFF != 0 && matches!(round, Some(Round::Rn | Round::Rz));
        return if nan { NAN_F32 & !0x1FFF } else { x & !0x1FFF };
    }
    let up = match round {
        Some(Round::Rz) => 0,
        Some(Round::Rn) => 0xFFF + (x >> 13 & 1),
        _ => 0x1000,
    };
    (x + up) & !0x1FFF
}

pub fn compare(cmp: Cmp, ty: Ty, ftz: bool, a: u64, b: u64) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = if float::format(ty).is_some() {
        flushed(ty, ftz, a).partial_cmp(&flushed(ty, ftz, b))
    } else {
        Some(whole(ty, a).cmp(&whole(ty, b)))
    };
    match cmp {
        Cmp::Eq => order == Some(Equal),
        Cmp::Ne => matches!(order, Some(Less | Greater)),
        Cmp::Lt => order == Some(Less),
        Cmp::Le => matches!(order, Some(Less | Equal)),
        Cmp::Gt => order == Some(Greater),
        Cmp::Ge => matches!(order, Some(Greater | Equal)),
        Cmp::Equ => matches!(order, None | Some(Equal)),
        Cmp::Neu => order != Some(Equal),
        Cmp::Ltu => matches!(order, None | Some(Less)),
        Cmp::Leu => order != Some(Greater),
        Cmp::Gtu => matches!(order, None | Some(Greater)),
        Cmp::Geu => order != Some(Less),
        Cmp::Num => order.is_some(),
        Cmp::Nan => order.is_none(),
    }
}
