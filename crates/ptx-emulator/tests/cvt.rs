use super::*;
use tessera_numerics::{DType, Rounding, Scalar, encode};
use tessera_ptx_emulator::inner::cvt::{CvtSpec, compare, eval};
use tessera_ptx_emulator::inner::fast::{self, Row};
use tessera_ptx_emulator::inner::float::Mods;

fn spec(to: Ty, from: Ty, round: Option<Round>) -> CvtSpec {
    let mods = Mods { round, ftz: false, sat: false };
    CvtSpec { to, from, mods, pair: false, narrow: false }
}

fn cvt(to: Ty, from: Ty, round: Option<Round>, a: u64) -> u64 {
    eval(spec(to, from, round), a, 0)
}

#[test]
fn integers_are_cut_extended_and_clamped() {
    assert_eq!(cvt(Ty::S8, Ty::S32, None, 0x180) as u32, 0xFFFF_FF80);
    assert_eq!(cvt(Ty::U8, Ty::S32, None, 0x180), 0x80);
    assert_eq!(cvt(Ty::S64, Ty::S16, None, 0x8000), 0xFFFF_FFFF_FFFF_8000);
    assert_eq!(cvt(Ty::U64, Ty::U16, None, 0x8000), 0x8000);
    let mut sat = spec(Ty::S8, Ty::S32, None);
    sat.mods.sat = true;
    assert_eq!(eval(sat, 1000, 0), 127);
    assert_eq!(eval(sat, -1000i32 as u32 as u64, 0) as u8, 0x80);
    sat.to = Ty::U8;
    assert_eq!(eval(sat, -1i32 as u32 as u64, 0), 0);
}

#[test]
fn floats_become_integers_by_clamping() {
    let f = |to, r, x: f32| cvt(to, Ty::F32, Some(r), x.to_bits() as u64);
    assert_eq!(f(Ty::S32, Round::Rzi, -2.9) as i32, -2);
    assert_eq!(f(Ty::S32, Round::Rni, 2.5) as i32, 2);
    assert_eq!(f(Ty::S32, Round::Rmi, -2.1) as i32, -3);
    assert_eq!(f(Ty::S32, Round::Rpi, 2.1) as i32, 3);
    assert_eq!(f(Ty::S32, Round::Rzi, 1e20) as i32, i32::MAX);
    assert_eq!(f(Ty::U32, Round::Rzi, -5.0), 0);
    assert_eq!(f(Ty::U8, Round::Rzi, 300.0), 255);
    assert_eq!(f(Ty::S32, Round::Rzi, f32::NAN), 0);
    assert_eq!(f(Ty::S64, Round::Rzi, f32::NAN), 1 << 63);
    assert_eq!(f(Ty::U64, Round::Rzi, f32::INFINITY), u64::MAX);
    let d = |to, x: f64| cvt(to, Ty::F64, Some(Round::Rzi), x.to_bits());
    assert_eq!(d(Ty::S32, f64::NAN) as u32, 0x8000_0000);
    assert_eq!(d(Ty::S64, -1.5) as i64, -1);
}

#[test]
fn integers_become_floats_rounded_once() {
    let odd = (1u64 << 53) + 1;
    assert_eq!(f64::from_bits(cvt(Ty::F64, Ty::U64, Some(Round::Rn), odd)), 2f64.powi(53));
    assert_eq!(f64::from_bits(cvt(Ty::F64, Ty::U64, Some(Round::Rp), odd)), 2f64.powi(53) + 2.0);
    let f = |r, x: i32| f32::from_bits(cvt(Ty::F32, Ty::S32, Some(r), x as u32 as u64) as u32);
    assert_eq!(f(Round::Rn, -16_777_217), -16_777_216.0);
    assert_eq!(f(Round::Rm, -16_777_217), -16_777_218.0);
    assert_eq!(cvt(Ty::F16, Ty::S32, Some(Round::Rn), 100_000), 0x7C00);
    assert_eq!(cvt(Ty::F16, Ty::S32, Some(Round::Rz), 100_000), 0x7BFF);
}

#[test]
fn narrow_floats_agree_with_numerics() {
    let mut draw = Draw(2);
    for _ in 0..100_000 {
        let x = f32::from_bits(draw.word() as u32);
        for (ty, dt) in [(Ty::F16, DType::F16), (Ty::BF16, DType::BF16)] {
            for (r, n) in [(Round::Rn, Rounding::Rne), (Round::Rz, Rounding::Rtz)] {
                let want = if x.is_nan() { 0x7FFF } else { encode(dt, Scalar::F32(x), n, false) };
                assert_eq!(cvt(ty, Ty::F32, Some(r), x.to_bits() as u64), want, "{ty:?} {x:e}");
            }
        }
    }
    assert_eq!(cvt(Ty::F32, Ty::F16, None, 0x7C01), 0x7FFF_FFFF);
    assert_eq!(cvt(Ty::F32, Ty::BF16, None, 0xFF89), 0xFF89_0000);
    assert_eq!(cvt(Ty::F32, Ty::F64, Some(Round::Rn), 0xFFF8_2468_A000_0000), 0xFFC1_2345);
    assert_eq!(cvt(Ty::F16, Ty::F64, Some(Round::Rn), 0xFFF8_2468_A000_0000), 0xFE09);
    assert_eq!(cvt(Ty::F64, Ty::F16, None, 0xFC0E), 0xFFF8_3800_0000_0000);
    assert_eq!(cvt(Ty::F32, Ty::F16, None, 1) as u32, 2f32.powi(-24).to_bits());
    assert_eq!(cvt(Ty::F32, Ty::F64, Some(Round::Rn), 1e300f64.to_bits()) as u32, 0x7F80_0000);
    assert_eq!(cvt(Ty::F32, Ty::F32, Some(Round::Rni), (-0.3f32).to_bits() as u64), 0x8000_0000);
}

#[test]
fn tf32_rounds_halves_away() {
    let t = |x: u32| cvt(Ty::Tf32, Ty::F32, Some(Round::Rna), x as u64) as u32;
    assert_eq!(t(0x3F80_1000), 0x3F80_2000);
    assert_eq!(t(0x3F80_0FFF), 0x3F80_0000);
    assert_eq!(t(0xBF80_1000), 0xBF80_2000);
    assert_eq!(t(0x7F7F_FFFF), 0x7F80_0000);
    assert_eq!(t(0x7FC1_2345), 0x7FC1_2000);
    assert_eq!(cvt(Ty::Tf32, Ty::F32, Some(Round::Rn), 0x7F80_0001), 0x7FFF_E000);
}

#[test]
fn pairs_put_the_first_number_on_top() {
    let mut s = spec(Ty::F16x2, Ty::F32, Some(Round::Rn));
    s.pair = true;
    let (one, two) = (1f32.to_bits() as u64, 2f32.to_bits() as u64);
    assert_eq!(eval(s, one, two), 0x3C00_4000);
    s.to = Ty::E4M3x2;
    s.mods.sat = true;
    assert_eq!(eval(s, one, two), 0x3840);
    let big = 1e9f32.to_bits() as u64;
    assert_eq!(eval(s, big, big | 1 << 31), 0x7EFE, "saturates to 448");
    assert_eq!(eval(s, f32::NAN.to_bits() as u64, f32::INFINITY.to_bits() as u64), 0x7F7E);
    s.to = Ty::E5M2x2;
    assert_eq!(eval(s, f32::NAN.to_bits() as u64, big), 0x7F7B);
    let back = spec(Ty::F16x2, Ty::E4M3x2, Some(Round::Rn));
    assert_eq!(eval(back, 0x3840, 0), 0x3C00_4000);
    let halves = spec(Ty::E5M2x2, Ty::F16x2, Some(Round::Rn));
    assert_eq!(eval(halves, 0x3C00_4000, 0), 0x3C40);
}

#[test]
fn comparisons_know_nan() {
    let nan = f32::NAN.to_bits() as u64;
    let one = 1f32.to_bits() as u64;
    let f = |cmp, a, b| compare(cmp, Ty::F32, false, a, b);
    assert!(!f(Cmp::Eq, nan, nan) && !f(Cmp::Ne, nan, one) && !f(Cmp::Lt, nan, one));
    assert!(f(Cmp::Neu, nan, one) && f(Cmp::Ltu, nan, one) && f(Cmp::Equ, nan, one));
    assert!(f(Cmp::Nan, nan, one) && f(Cmp::Num, one, one) && !f(Cmp::Num, one, nan));
    assert!(f(Cmp::Eq, 0, 1 << 31), "zeros are equal");
    assert!(compare(Cmp::Eq, Ty::F32, true, 0, 5), "flushed");
    assert!(compare(Cmp::Lt, Ty::S32, false, 0xFFFF_FFFF, 0));
    assert!(compare(Cmp::Gt, Ty::U32, false, 0xFFFF_FFFF, 0));
    assert!(compare(Cmp::Lt, Ty::S16, false, 0x8000, 0));
}

#[test]
fn fast_conversions_agree_with_the_definition() {
    let mut draw = Draw(4);
    let tys = [Ty::U32, Ty::S32, Ty::B32, Ty::U64, Ty::S64, Ty::F32, Ty::BF16, Ty::F16];
    let rounds = [None, Some(Round::Rn), Some(Round::Rzi)];
    for (from, to) in tys.iter().flat_map(|f| tys.map(|t| (*f, t))) {
        for round in rounds {
            let s = spec(to, from, round);
            let Some(row) = fast::cvt(s) else { continue };
            for _ in 0..2000 {
                let m = tessera_ptx_emulator::inner::alu::mask(from.bits());
                let wide = [(); 32].map(|()| draw.word() & m);
                let narrow = wide.map(|x| x as u32);
                let (mut on, mut ow) = ([0; 32], [0; 32]);
                match row {
                    Row::N1(f) => f(&narrow, &mut on),
                    Row::Widen(f) => f(&narrow, &mut ow),
                    Row::Narrow(f) => f(&wide, &mut on),
                    _ => panic!("{s:?}"),
                }
                for lane in 0..32 {
                    let got = if to.bits() == 64 { ow[lane] } else { on[lane] as u64 };
                    let want =
                        eval(s, wide[lane], 0) & tessera_ptx_emulator::inner::alu::mask(to.bits());
                    assert_eq!(got, want, "{s:?} of {:x}", wide[lane]);
                }
            }
        }
    }
    for cmp in [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge, Cmp::Neu, Cmp::Nan] {
        for ty in tys {
            let Some(fast::CmpRow::N(f)) = fast::cmp(cmp, ty) else { continue };
            let a = [(); 32].map(|()| draw.word() as u32);
            let b = [(); 32].map(|()| draw.word() as u32);
            for lane in 0..32 {
                let want = compare(cmp, ty, false, a[lane] as u64, b[lane] as u64);
                assert_eq!(f(&a, &b) >> lane & 1 == 1, want, "{cmp:?} {ty:?}");
            }
        }
    }
}
