//! Vectorised operations on all lanes of a warp, for the instructions that kernels use most.
//!
//! Each gives in every lane what `alu::eval` and `cvt::eval` give; a test checks it. Inactive lanes
//! are computed and discarded, so nothing here may fail.

use super::alu::{AluSpec, lop3, prmt};
use super::cvt::CvtSpec;
use super::float::{NAN_F32, NAN_F64, flush, sqrt_f32};
use tessera_ptx::inst::{Alu, Cmp, Round, Ty};

pub(super) type L32 = [u32; 32];
pub(super) type L64 = [u64; 32];

/// A function on rows of lanes, by the widths of its operands and its result.
#[derive(Copy, Clone)]
pub enum Row {
    N1(fn(&L32, &mut L32)),
    N2(fn(&L32, &L32, &mut L32)),
    N3(fn(&L32, &L32, &L32, &mut L32)),
    W1(fn(&L64, &mut L64)),
    W2(fn(&L64, &L64, &mut L64)),
    W3(fn(&L64, &L64, &L64, &mut L64)),
    /// 64 bits by a 32-bit amount.
    WN(fn(&L64, &L32, &mut L64)),
    /// 32 bits to 64.
    Widen(fn(&L32, &mut L64)),
    NnW(fn(&L32, &L32, &mut L64)),
    NnwW(fn(&L32, &L32, &L64, &mut L64)),
    /// 64 bits to 32.
    Narrow(fn(&L64, &mut L32)),
}

#[derive(Copy, Clone)]
pub enum CmpRow {
    N(fn(&L32, &L32) -> u32),
    W(fn(&L64, &L64) -> u32),
}

macro_rules! row {
    ($kind:ident, |$a:ident| $e:expr) => {
        Row::$kind(|x, o| {
            (0..32).for_each(|i| {
                let $a = x[i];
                o[i] = $e;
            })
        })
    };
    ($kind:ident, |$a:ident, $b:ident| $e:expr) => {
        Row::$kind(|x, y, o| {
            (0..32).for_each(|i| {
                let ($a, $b) = (x[i], y[i]);
                o[i] = $e;
            })
        })
    };
    ($kind:ident, |$a:ident, $b:ident, $c:ident| $e:expr) => {
        Row::$kind(|x, y, z, o| {
            (0..32).for_each(|i| {
                let ($a, $b, $c) = (x[i], y[i], z[i]);
                o[i] = $e;
            })
        })
    };
}

#[inline(always)]
fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

#[inline(always)]
fn u(x: f32) -> u32 {
    if x.is_nan() { NAN_F32 } else { x.to_bits() }
}

#[inline(always)]
fn g(x: u64) -> f64 {
    f64::from_bits(x)
}

/// The last NaN operand is propagated, quieted.
#[inline(always)]
fn v(x: f64, of: [u64; 3]) -> u64 {
    if !x.is_nan() {
        return x.to_bits();
    }
    of.into_iter().rfind(|o| g(*o).is_nan()).map_or(NAN_F64, |o| o | 1 << 51)
}

pub fn alu(spec: AluSpec) -> Option<Row> {
    let AluSpec { op, ty, mods } = spec;
    let nearest = matches!(mods.round, None | Some(Round::Rn));
    match ty {
        Ty::B32 | Ty::U32 | Ty::S32 if !mods.sat => int32(op, ty == Ty::S32),
        Ty::B64 | Ty::U64 | Ty::S64 => int64(op, ty == Ty::S64),
        Ty::B16 | Ty::U16 | Ty::S16 => bits16(op),
        Ty::F32 if nearest && !mods.sat && !mods.ftz => f32_row(op),
        Ty::F32 if nearest && !mods.sat => f32_flushed(op),
        Ty::F64 if nearest && !mods.sat && !mods.ftz => f64_row(op),
        _ => None,
    }
}

fn int32(op: Alu, signed: bool) -> Option<Row> {
    Some(match (op, signed) {
        (Alu::Add, _) => row!(N2, |a, b| a.wrapping_add(b)),
        (Alu::Sub, _) => row!(N2, |a, b| a.wrapping_sub(b)),
        (Alu::MulLo, _) => row!(N2, |a, b| a.wrapping_mul(b)),
        (Alu::MulHi, false) => row!(N2, |a, b| ((a as u64 * b as u64) >> 32) as u32),
        (Alu::MulWide, false) => row!(NnW, |a, b| a as u64 * b as u64),
        (Alu::MulWide, true) => row!(NnW, |a, b| (a as i32 as i64 * b as i32 as i64) as u64),
        (Alu::MadLo, _) => row!(N3, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        (Alu::MadWide, false) => {
            row!(NnwW, |a, b, c| (a as u64 * b as u64).wrapping_add(c))
        }
        (Alu::MadWide, true) => {
            row!(NnwW, |a, b, c| ((a as i32 as i64 * b as i32 as i64) as u64).wrapping_add(c))
        }
        (Alu::Div, false) => row!(N2, |a, b| a.checked_div(b).unwrap_or(u32::MAX)),
        (Alu::Rem, false) => row!(N2, |a, b| a.checked_rem(b).unwrap_or(u32::MAX)),
        (Alu::Neg, _) => row!(N1, |a| a.wrapping_neg()),
        (Alu::Min, false) => row!(N2, |a, b| a.min(b)),
        (Alu::Max, false) => row!(N2, |a, b| a.max(b)),
        (Alu::Min, true) => row!(N2, |a, b| (a as i32).min(b as i32) as u32),
        (Alu::Max, true) => row!(N2, |a, b| (a as i32).max(b as i32) as u32),
        (Alu::And, _) => row!(N2, |a, b| a & b),
        (Alu::Or, _) => row!(N2, |a, b| a | b),
        (Alu::Xor, _) => row!(N2, |a, b| a ^ b),
        (Alu::Not, _) => row!(N1, |a| !a),
        (Alu::Shl, _) => row!(N2, |a, b| if b > 31 { 0 } else { a << (b & 31) }),
        (Alu::Shr, false) => row!(N2, |a, b| if b > 31 { 0 } else { a >> (b & 31) }),
        (Alu::Shr, true) => row!(N2, |a, b| ((a as i32) >> b.min(31)) as u32),
        (Alu::Popc, _) => row!(N1, |a| a.count_ones()),
        (Alu::Clz, _) => row!(N1, |a| a.leading_zeros()),
        (Alu::Brev, _) => row!(N1, |a| a.reverse_bits()),
        (Alu::Prmt, _) => row!(N3, |a, b, c| prmt(a, b, c)),
        (Alu::ShfL, _) => {
            row!(N3, |a, b, c| ((((b as u64) << 32 | a as u64) << (c & 31)) >> 32) as u32)
        }
        (Alu::ShfR, _) => row!(N3, |a, b, c| (((b as u64) << 32 | a as u64) >> (c & 31)) as u32),
        // The usual truth tables.
        (Alu::Lop3(0x80), _) => row!(N3, |a, b, c| a & b & c),
        (Alu::Lop3(0x96), _) => row!(N3, |a, b, c| a ^ b ^ c),
        (Alu::Lop3(0xEA), _) => row!(N3, |a, b, c| lop3(a, b, c, 0xEA)),
        (Alu::Lop3(0xF8), _) => row!(N3, |a, b, c| lop3(a, b, c, 0xF8)),
        _ => return None,
    })
}

fn int64(op: Alu, signed: bool) -> Option<Row> {
    Some(match (op, signed) {
        (Alu::Add, _) => row!(W2, |a, b| a.wrapping_add(b)),
        (Alu::Sub, _) => row!(W2, |a, b| a.wrapping_sub(b)),
        (Alu::MulLo, _) => row!(W2, |a, b| a.wrapping_mul(b)),
        (Alu::MadLo, _) => row!(W3, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        (Alu::Div, false) => row!(W2, |a, b| a.checked_div(b).unwrap_or(u64::MAX)),
        (Alu::Rem, false) => row!(W2, |a, b| a.checked_rem(b).unwrap_or(u64::MAX)),
        (Alu::Neg, _) => row!(W1, |a| a.wrapping_neg()),
        (Alu::Min, false) => row!(W2, |a, b| a.min(b)),
        (Alu::Max, false) => row!(W2, |a, b| a.max(b)),
        (Alu::Min, true) => row!(W2, |a, b| (a as i64).min(b as i64) as u64),
        (Alu::Max, true) => row!(W2, |a, b| (a as i64).max(b as i64) as u64),
        (Alu::And, _) => row!(W2, |a, b| a & b),
        (Alu::Or, _) => row!(W2, |a, b| a | b),
        (Alu::Xor, _) => row!(W2, |a, b| a ^ b),
        (Alu::Not, _) => row!(W1, |a| !a),
        (Alu::Shl, _) => row!(WN, |a, b| if b > 63 { 0 } else { a << (b & 63) }),
        (Alu::Shr, false) => row!(WN, |a, b| if b > 63 { 0 } else { a >> (b & 63) }),
        (Alu::Shr, true) => row!(WN, |a, b| ((a as i64) >> b.min(63)) as u64),
        (Alu::Popc, _) => row!(Narrow, |a| a.count_ones()),
        (Alu::Clz, _) => row!(Narrow, |a| a.leading_zeros()),
        _ => return None,
    })
}

fn bits16(op: Alu) -> Option<Row> {
    Some(match op {
        Alu::And => row!(N2, |a, b| a & b),
        Alu::Or => row!(N2, |a, b| (a | b) & 0xFFFF),
        Alu::Xor => row!(N2, |a, b| (a ^ b) & 0xFFFF),
        _ => return None,
    })
}

fn f32_row(op: Alu) -> Option<Row> {
    Some(match op {
        Alu::Add => row!(N2, |a, b| u(f(a) + f(b))),
        Alu::Sub => row!(N2, |a, b| u(f(a) - f(b))),
        Alu::Mul => row!(N2, |a, b| u(f(a) * f(b))),
        Alu::Fma => Row::N3(fma_f32),
        Alu::Div => row!(N2, |a, b| u(f(a) / f(b))),
        Alu::Sqrt => row!(N1, |a| sqrt_f32(a)),
        Alu::Rcp => row!(N1, |a| u(1.0 / f(a))),
        Alu::Neg => row!(N1, |a| if f(a).is_nan() { NAN_F32 } else { a ^ 0x8000_0000 }),
        Alu::Abs => row!(N1, |a| a & 0x7FFF_FFFF | if f(a).is_nan() { NAN_F32 } else { 0 }),
        Alu::Min => row!(N2, |a, b| extreme(a, b, true)),
        Alu::Max => row!(N2, |a, b| extreme(a, b, false)),
        Alu::MinNan => row!(N2, |a, b| strict(a, b, true)),
        Alu::MaxNan => row!(N2, |a, b| strict(a, b, false)),
        _ => return None,
    })
}

macro_rules! fused {
    ($name:ident, $fast:ident, $plain:ident, $lanes:ty, |$a:ident, $b:ident, $c:ident| $e:expr) => {
        /// By the processor's FMA instruction where it has one: else each lane is a call.
        fn $name(x: &$lanes, y: &$lanes, z: &$lanes, o: &mut $lanes) {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: the processor has the instruction.
                return unsafe { $fast(x, y, z, o) };
            }
            $plain(x, y, z, o);
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "fma,avx")]
        unsafe fn $fast(x: &$lanes, y: &$lanes, z: &$lanes, o: &mut $lanes) {
            $plain(x, y, z, o);
        }

        #[inline(always)]
        fn $plain(x: &$lanes, y: &$lanes, z: &$lanes, o: &mut $lanes) {
            (0..32).for_each(|i| {
                let ($a, $b, $c) = (x[i], y[i], z[i]);
                o[i] = $e;
            });
        }
    };
}

fused!(fma_f32, fma_f32_fast, fma_f32_plain, L32, |a, b, c| u(f(a).mul_add(f(b), f(c))));
fused!(fma_f64, fma_f64_fast, fma_f64_plain, L64, |a, b, c| v(g(a).mul_add(g(b), g(c)), [a, b, c]));

/// Codes in the order of their values.
#[inline(always)]
fn key(x: u32) -> i32 {
    (x as i32) ^ (((x as i32) >> 31) as u32 >> 1) as i32
}

#[inline(always)]
fn extreme(a: u32, b: u32, min: bool) -> u32 {
    let pick = if (key(a) < key(b)) == min { a } else { b };
    let pick = if f(b).is_nan() { a } else { pick };
    let pick = if f(a).is_nan() { b } else { pick };
    if f(pick).is_nan() { NAN_F32 } else { pick }
}

#[inline(always)]
fn strict(a: u32, b: u32, min: bool) -> u32 {
    let pick = if (key(a) < key(b)) == min { a } else { b };
    if f(a).is_nan() || f(b).is_nan() { NAN_F32 } else { pick }
}

fn f32_flushed(op: Alu) -> Option<Row> {
    Some(match op {
        Alu::Add => row!(N2, |a, b| flush(u(f(flush(a)) + f(flush(b))))),
        Alu::Sub => row!(N2, |a, b| flush(u(f(flush(a)) - f(flush(b))))),
        Alu::Mul => row!(N2, |a, b| flush(u(f(flush(a)) * f(flush(b))))),
        Alu::Fma => row!(N3, |a, b, c| flush(u(f(flush(a)).mul_add(f(flush(b)), f(flush(c)))))),
        _ => return None,
    })
}

fn f64_row(op: Alu) -> Option<Row> {
    Some(match op {
        Alu::Add => row!(W2, |a, b| v(g(a) + g(b), [a, b, 0])),
        Alu::Sub => row!(W2, |a, b| v(g(a) - g(b), [a, b, 0])),
        Alu::Mul => row!(W2, |a, b| v(g(a) * g(b), [a, b, 0])),
        Alu::Fma => Row::W3(fma_f64),
        // For division the first NaN is propagated.
        Alu::Div => row!(W2, |a, b| v(g(a) / g(b), [b, a, 0])),
        Alu::Neg => row!(W1, |a| if g(a).is_nan() { a } else { a ^ 1 << 63 }),
        Alu::Abs => row!(W1, |a| if g(a).is_nan() { a } else { a & !(1 << 63) }),
        _ => return None,
    })
}

pub fn cvt(spec: CvtSpec) -> Option<Row> {
    let CvtSpec { to, from, mods, pair, .. } = spec;
    if pair || mods.sat || mods.ftz {
        return None;
    }
    let nearest = mods.round == Some(Round::Rn);
    Some(match (from, to) {
        (Ty::U32 | Ty::B32, Ty::U64 | Ty::S64 | Ty::B64) => row!(Widen, |a| a as u64),
        (Ty::S32, Ty::U64 | Ty::S64 | Ty::B64) => row!(Widen, |a| a as i32 as i64 as u64),
        (Ty::U64 | Ty::S64 | Ty::B64, Ty::U32 | Ty::S32 | Ty::B32) => row!(Narrow, |a| a as u32),
        (Ty::U32, Ty::F32) if nearest => row!(N1, |a| (a as f32).to_bits()),
        (Ty::S32, Ty::F32) if nearest => row!(N1, |a| (a as i32 as f32).to_bits()),
        (Ty::F32, Ty::S32) if mods.round == Some(Round::Rzi) => row!(N1, |a| f(a) as i32 as u32),
        (Ty::F32, Ty::U32) if mods.round == Some(Round::Rzi) => row!(N1, |a| f(a) as u32),
        (Ty::BF16, Ty::F32) if mods.round.is_none() => row!(N1, |a| a << 16),
        (Ty::F32, Ty::BF16) if nearest => row!(N1, |a| {
            if f(a).is_nan() { 0x7FFF } else { (a + 0x7FFF + (a >> 16 & 1)) >> 16 }
        }),
        _ => return None,
    })
}

macro_rules! compare {
    ($kind:ident, |$a:ident, $b:ident| $e:expr) => {
        CmpRow::$kind(|x, y| {
            (0..32).fold(0, |m, i| {
                let ($a, $b) = (x[i], y[i]);
                m | u32::from($e) << i
            })
        })
    };
}

pub fn cmp(cmp: Cmp, ty: Ty) -> Option<CmpRow> {
    Some(match (ty, cmp) {
        (Ty::B32 | Ty::U32 | Ty::S32, Cmp::Eq) => compare!(N, |a, b| a == b),
        (Ty::B32 | Ty::U32 | Ty::S32, Cmp::Ne) => compare!(N, |a, b| a != b),
        (Ty::U32 | Ty::B32, Cmp::Lt) => compare!(N, |a, b| a < b),
        (Ty::U32 | Ty::B32, Cmp::Le) => compare!(N, |a, b| a <= b),
        (Ty::U32 | Ty::B32, Cmp::Gt) => compare!(N, |a, b| a > b),
        (Ty::U32 | Ty::B32, Cmp::Ge) => compare!(N, |a, b| a >= b),
        (Ty::S32, Cmp::Lt) => compare!(N, |a, b| (a as i32) < b as i32),
        (Ty::S32, Cmp::Le) => compare!(N, |a, b| a as i32 <= b as i32),
        (Ty::S32, Cmp::Gt) => compare!(N, |a, b| a as i32 > b as i32),
        (Ty::S32, Cmp::Ge) => compare!(N, |a, b| a as i32 >= b as i32),
        (Ty::F32, Cmp::Lt) => compare!(N, |a, b| f(a) < f(b)),
        (Ty::F32, Cmp::Le) => compare!(N, |a, b| f(a) <= f(b)),
        (Ty::F32, Cmp::Gt) => compare!(N, |a, b| f(a) > f(b)),
        (Ty::F32, Cmp::Ge) => compare!(N, |a, b| f(a) >= f(b)),
        (Ty::F32, Cmp::Eq) => compare!(N, |a, b| f(a) == f(b)),
        (Ty::F32, Cmp::Neu) => compare!(N, |a, b| f(a) != f(b)),
        (Ty::F32, Cmp::Nan) => compare!(N, |a, b| f(a).is_nan() || f(b).is_nan()),
        (Ty::B64 | Ty::U64 | Ty::S64, Cmp::Eq) => compare!(W, |a, b| a == b),
        (Ty::B64 | Ty::U64 | Ty::S64, Cmp::Ne) => compare!(W, |a, b| a != b),
        (Ty::U64 | Ty::B64, Cmp::Lt) => compare!(W, |a, b| a < b),
        (Ty::U64 | Ty::B64, Cmp::Ge) => compare!(W, |a, b| a >= b),
        (Ty::S64, Cmp::Lt) => compare!(W, |a, b| (a as i64) < b as i64),
        (Ty::S64, Cmp::Le) => compare!(W, |a, b| a as i64 <= b as i64),
        (Ty::S64, Cmp::Gt) => compare!(W, |a, b| a as i64 > b as i64),
        (Ty::S64, Cmp::Ge) => compare!(W, |a, b| a as i64 >= b as i64),
        _ => return None,
    })
}
