//! Warp-level matrix instructions: `ldmatrix`, `stmatrix` and `mma.sync`.
//!
//! The hardware's order of additions inside one `mma` is not published. The stand-in: starting from
//! c, the exact products are added in ascending k, each sum rounded to nearest in f32 (f64 for
//! f64). f16 accumulators are computed in f32 and rounded once at the end. Integers are exact.

use super::exec::Flow;
use super::fault::Res;
use super::float::{NAN_F32, NAN_F64};
use super::machine::Machine;
use super::program::{Slot, WarpMma, Where};
use super::races::Use;
use super::soft::Mode;
use super::warp::Warp;
use std::sync::LazyLock;
use tessera_numerics::{DType, decode};
use tessera_ptx::inst::{MmaRow, Ty};

/// Whether a row can be run.
pub(super) fn check(row: MmaRow) -> Result<(), String> {
    let MmaRow { m, n, k, a, b, c, .. } = row;
    let known = n == 8
        && match (a, b) {
            (Ty::F16, Ty::F16) => m == 16 && matches!(k, 8 | 16) && matches!(c, Ty::F16 | Ty::F32),
            (Ty::BF16, Ty::BF16) => m == 16 && matches!(k, 8 | 16) && c == Ty::F32,
            (Ty::Tf32, Ty::Tf32) => m == 16 && matches!(k, 4 | 8) && c == Ty::F32,
            (Ty::F64, Ty::F64) => {
                c == Ty::F64 && (m == 16 && matches!(k, 4 | 8 | 16) || m == 8 && k == 4)
            }
            (Ty::E4M3 | Ty::E5M2, Ty::E4M3 | Ty::E5M2) => {
                m == 16 && matches!(k, 16 | 32) && matches!(c, Ty::F16 | Ty::F32)
            }
            (Ty::S8 | Ty::U8, Ty::S8 | Ty::U8) => {
                c == Ty::S32 && (m == 16 && matches!(k, 16 | 32) || m == 8 && k == 16)
            }
            (Ty::S4 | Ty::U4, Ty::S4 | Ty::U4) => {
                c == Ty::S32 && (m == 16 && matches!(k, 32 | 64) || m == 8 && k == 32)
            }
            _ => false,
        };
    if known {
        return Ok(());
    }
    Err(format!("mma m{m}n{n}k{k} of {a:?} and {b:?} into {c:?} is not interpreted"))
}

impl Machine<'_> {
    /// The rows of 16 bytes that the lanes address, as many as `n` matrices have.
    fn rows(&mut self, w: &Warp, n: usize, at: Where, how: Use) -> Res<[usize; 32]> {
        let mut places = [0; 32];
        for (lane, place) in places[..8 * n].iter_mut().enumerate() {
            let named = at.base.is_some();
            let offset = self.own(w, w.address(at, lane), named).map_err(|t| t.lane(lane))?;
            let shared = &self.blocks[w.block].shared;
            *place = shared.place(offset, 16).map_err(|t| t.lane(lane))?;
            let may = match how {
                Use::Read | Use::Together => shared.readable(*place, 16),
                Use::Write | Use::Rewrite | Use::Atomic => shared.writable(*place, 16),
            };
            may.map_err(|t| t.lane(lane))?;
            self.used(w, lane, w.block, *place, 16, how)?;
        }
        Ok(places)
    }

    pub(super) fn ldmatrix(
        &mut self,
        w: &mut Warp,
        mask: u32,
        d: &[Slot],
        trans: bool,
        at: Where,
    ) -> Res<Flow> {
        if mask != u32::MAX {
            return Ok(Flow::Park);
        }
        let places = self.rows(w, d.len(), at, Use::Together)?;
        let data = &self.blocks[w.block].shared.data;
        let element = |matrix: usize, row: usize, column: usize| {
            let at = places[matrix * 8 + row] + column * 2;
            u16::from_le_bytes([data[at], data[at + 1]]) as u32
        };
        for (matrix, d) in d.iter().enumerate() {
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4 * 2);
                let pair = match trans {
                    false => [element(matrix, g, t), element(matrix, g, t + 1)],
                    true => [element(matrix, t, g), element(matrix, t + 1, g)],
                };
                w.set(*d, lane, (pair[0] | pair[1] << 16) as u64);
            }
        }
        Ok(Flow::Next)
    }

    pub(super) fn stmatrix(
        &mut self,
        w: &mut Warp,
        mask: u32,
        a: &[Slot],
        trans: bool,
        at: Where,
    ) -> Res<Flow> {
        if mask != u32::MAX {
            return Ok(Flow::Park);
        }
        let places = self.rows(w, a.len(), at, Use::Write)?;
        let shared = &mut self.blocks[w.block].shared;
        for (matrix, a) in a.iter().enumerate() {
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4 * 2);
                let pair = w.get(*a, lane);
                for (i, half) in [pair & 0xFFFF, pair >> 16].into_iter().enumerate() {
                    let (row, column) = if trans { (t + i, g) } else { (g, t + i) };
                    shared.store(places[matrix * 8 + row] + column * 2, 2, half);
                }
            }
        }
        for (lane, place) in places[..8 * a.len()].iter().enumerate() {
            self.wrote(w, lane, w.block, *place, 16);
        }
        Ok(Flow::Next)
    }

    pub(super) fn mma(&mut self, w: &mut Warp, mask: u32, p: &WarpMma) -> Res<Flow> {
        if mask != u32::MAX {
            return Ok(Flow::Park);
        }
        match p.row.c {
            Ty::F64 => mma_f64(w, p),
            Ty::S32 => mma_int(w, p),
            _ => mma_f32(w, p),
        }
        Ok(Flow::Next)
    }
}

/// Elements of the first operand by row and column, each code of `BITS` bits as a number.
#[inline(always)]
fn first<const BITS: u32, T>(
    w: &Warp,
    p: &WarpMma,
    to: &mut [[T; 64]; 16],
    number: impl Fn(u64) -> T,
) {
    let tall = (p.row.m / 8) as usize;
    let per = (32 / BITS).max(1) as usize;
    for (r, slot) in p.a.iter().enumerate() {
        for lane in 0..32 {
            let word = w.get(*slot, lane);
            let row = &mut to[lane / 4 + 8 * (r % tall)];
            let from = r / tall * 4 * per + lane % 4 * per;
            for (i, out) in row[from..from + per].iter_mut().enumerate() {
                *out = number(word >> (i as u32 * BITS) & super::alu::mask(BITS));
            }
        }
    }
}

/// The same for the second operand.
#[inline(always)]
fn second<const BITS: u32, T>(
    w: &Warp,
    p: &WarpMma,
    to: &mut [[T; 8]; 64],
    number: impl Fn(u64) -> T,
) {
    let per = (32 / BITS).max(1) as usize;
    for (r, slot) in p.b.iter().enumerate() {
        for lane in 0..32 {
            let word = w.get(*slot, lane);
            let from = r * 4 * per + lane % 4 * per;
            for (i, row) in to[from..from + per].iter_mut().enumerate() {
                row[lane / 4] = number(word >> (i as u32 * BITS) & super::alu::mask(BITS));
            }
        }
    }
}

/// Calls `each` with row, column, lane, register and position in it of each accumulator element.
#[inline(always)]
fn accumulators(row: MmaRow, mut each: impl FnMut(usize, usize, usize, usize, usize)) {
    let halves = row.c == Ty::F16;
    for tall in 0..row.m as usize / 8 {
        for lane in 0..32 {
            for i in 0..2 {
                let (r, part) = if halves { (tall, i) } else { (tall * 2 + i, 0) };
                each(lane / 4 + 8 * tall, lane % 4 * 2 + i, lane, r, part);
            }
        }
    }
}

/// Decoding tables of the formats that take more than a shift.
struct Tables {
    f16: Vec<f32>,
    e4m3: Vec<f32>,
    e5m2: Vec<f32>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let all = |dt: DType, n: u64| (0..n).map(|c| decode(dt, c).as_f64() as f32).collect();
    Tables {
        f16: all(DType::F16, 1 << 16),
        e4m3: all(DType::Fp8E4M3, 1 << 8),
        e5m2: all(DType::Fp8E5M2, 1 << 8),
    }
});

#[inline(always)]
pub(super) fn operand(ty: Ty, code: u64) -> f32 {
    match ty {
        Ty::F16 => TABLES.f16[code as u16 as usize],
        Ty::BF16 => f32::from_bits((code as u32) << 16),
        Ty::E4M3 => TABLES.e4m3[code as u8 as usize],
        Ty::E5M2 => TABLES.e5m2[code as u8 as usize],
        // The hardware reads the upper 19 bits of a tf32 operand.
        _ => f32::from_bits(code as u32 & !0x1FFF),
    }
}

fn mma_f32(w: &mut Warp, p: &WarpMma) {
    let k = p.row.k as usize;
    let mut a = [[0f32; 64]; 16];
    let mut b = [[0f32; 8]; 64];
    let mut c = [[0f32; 8]; 16];
    let t = &*TABLES;
    let bf16 = |c: u64| f32::from_bits((c as u32) << 16);
    match p.row.a {
        Ty::F16 => first::<16, _>(w, p, &mut a, |c| t.f16[c as u16 as usize]),
        Ty::BF16 => first::<16, _>(w, p, &mut a, bf16),
        Ty::E4M3 => first::<8, _>(w, p, &mut a, |c| t.e4m3[c as u8 as usize]),
        Ty::E5M2 => first::<8, _>(w, p, &mut a, |c| t.e5m2[c as u8 as usize]),
        ty => first::<32, _>(w, p, &mut a, |c| operand(ty, c)),
    }
    match p.row.b {
        Ty::F16 => second::<16, _>(w, p, &mut b, |c| t.f16[c as u16 as usize]),
        Ty::BF16 => second::<16, _>(w, p, &mut b, bf16),
        Ty::E4M3 => second::<8, _>(w, p, &mut b, |c| t.e4m3[c as u8 as usize]),
        Ty::E5M2 => second::<8, _>(w, p, &mut b, |c| t.e5m2[c as u8 as usize]),
        ty => second::<32, _>(w, p, &mut b, |c| operand(ty, c)),
    }
    let halves = p.row.c == Ty::F16;
    accumulators(p.row, |row, column, lane, r, part| {
        let word = w.get(p.c[r], lane);
        c[row][column] = match halves {
            true => operand(Ty::F16, word >> (16 * part) & 0xFFFF),
            false => f32::from_bits(word as u32),
        };
    });
    multiply_add(&a, &b, &mut c, k);
    accumulators(p.row, |row, column, lane, r, part| {
        let x = c[row][column];
        if halves {
            let code = super::float::code(Ty::F16, x as f64, Mode::Nearest);
            let old = w.get(p.d[r], lane) & !(0xFFFF << (16 * part));
            w.set(p.d[r], lane, old | code << (16 * part));
        } else {
            let bits = if x.is_nan() { NAN_F32 } else { x.to_bits() };
            w.set(p.d[r], lane, bits as u64);
        }
    });
}

/// `c += a b`, one fused multiply-add for each k.
pub(super) fn multiply_add(
    a: &[[f32; 64]; 16],
    b: &[[f32; 8]; 64],
    c: &mut [[f32; 8]; 16],
    k: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the instruction.
        return unsafe { multiply_add_fma(a, b, c, k) };
    }
    multiply_add_plainly(a, b, c, k);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx")]
unsafe fn multiply_add_fma(
    a: &[[f32; 64]; 16],
    b: &[[f32; 8]; 64],
    c: &mut [[f32; 8]; 16],
    k: usize,
) {
    multiply_add_plainly(a, b, c, k);
}

#[inline(always)]
fn multiply_add_plainly(a: &[[f32; 64]; 16], b: &[[f32; 8]; 64], c: &mut [[f32; 8]; 16], k: usize) {
    for (a, c) in a.iter().zip(c) {
        for (x, b) in a[..k].iter().zip(b) {
            for (y, c) in b.iter().zip(c.iter_mut()) {
                *c = x.mul_add(*y, *c);
            }
        }
    }
}

fn mma_f64(w: &mut Warp, p: &WarpMma) {
    let k = p.row.k as usize;
    let mut a = [[0f64; 64]; 16];
    let mut b = [[0f64; 8]; 64];
    first::<64, _>(w, p, &mut a, f64::from_bits);
    second::<64, _>(w, p, &mut b, f64::from_bits);
    accumulators(p.row, |row, column, lane, r, _| {
        let c = f64::from_bits(w.get(p.c[r], lane));
        let sum = (0..k).fold(c, |c, k| a[row][k].mul_add(b[k][column], c));
        let bits = if sum.is_nan() { NAN_F64 } else { sum.to_bits() };
        w.set(p.d[r], lane, bits);
    });
}

fn mma_int(w: &mut Warp, p: &WarpMma) {
    let k = p.row.k as usize;
    let number = |ty: Ty, code: u64| match ty {
        Ty::S8 => code as i8 as i64,
        Ty::S4 => super::alu::sign_extend(code, 4),
        _ => code as i64,
    };
    let mut a = [[0i64; 64]; 16];
    let mut b = [[0i64; 8]; 64];
    if p.row.a.bits() == 8 {
        first::<8, _>(w, p, &mut a, |c| number(p.row.a, c));
        second::<8, _>(w, p, &mut b, |c| number(p.row.b, c));
    } else {
        first::<4, _>(w, p, &mut a, |c| number(p.row.a, c));
        second::<4, _>(w, p, &mut b, |c| number(p.row.b, c));
    }
    accumulators(p.row, |row, column, lane, r, _| {
        let c = w.get(p.c[r], lane) as i32 as i64;
        let sum = (0..k).fold(c, |c, k| c + a[row][k] * b[k][column]);
        let sum = if p.row.sat { sum.clamp(i32::MIN as i64, i32::MAX as i64) } else { sum };
        w.set(p.d[r], lane, sum as u32 as u64);
    });
}
