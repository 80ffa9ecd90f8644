use super::*;
use tessera_ptx_emulator::inner::float::{Mods, NAN_F32, NAN_F64, eval};

fn mods(round: Round) -> Mods {
    Mods { round: Some(round), ftz: false, sat: false }
}

fn f32_of(op: Alu, m: Mods, x: &[f32]) -> f32 {
    let mut a = [0; 3];
    x.iter().enumerate().for_each(|(i, v)| a[i] = v.to_bits() as u64);
    f32::from_bits(eval(op, Ty::F32, m, a) as u32)
}

/// Soft arithmetic in nearest mode equals the processor's.
#[test]
fn soft_arithmetic_agrees_with_the_processor() {
    use tessera_numerics::FloatFormat as F;
    use tessera_ptx_emulator::inner::soft::{self, Mode, take_apart};
    let mut draw = Draw(3);
    let near = Mode::Nearest;
    for i in 0..200_000 {
        let [a, b, c] = [(); 3].map(|()| draw.word() as u32);
        // Often of similar size, so that sums cancel.
        let c = if i % 3 == 0 {
            (f32::from_bits(a) * f32::from_bits(b)).to_bits() ^ 1 << 31
        } else {
            c
        };
        let [x, y, z] = [a, b, c].map(|v| take_apart(F::F32, v as u64));
        let [p, q, r] = [a, b, c].map(f32::from_bits);
        let same = |got: u64, want: f32, what: &str| {
            let want = if std::hint::black_box(want).is_nan() { NAN_F32 } else { want.to_bits() };
            assert_eq!(got as u32, want, "{what} {a:x} {b:x} {c:x}");
        };
        same(soft::round(F::F32, near, soft::add(x, y, near)), p + q, "add");
        same(soft::round(F::F32, near, soft::mul(x, y)), p * q, "mul");
        same(soft::round(F::F32, near, soft::div(x, y)), p / q, "div");
        same(soft::round(F::F32, near, soft::sqrt(x)), p.sqrt(), "sqrt");
        same(
            soft::round(F::F32, near, soft::add(soft::mul(x, y), z, near)),
            p.mul_add(q, r),
            "fma",
        );
    }
    for i in 0..200_000 {
        let [a, b, c] = [(); 3].map(|()| draw.word());
        let c = if i % 3 == 0 {
            (f64::from_bits(a) * f64::from_bits(b)).to_bits() ^ 1 << 63
        } else {
            c
        };
        let [x, y, z] = [a, b, c].map(|v| take_apart(F::F64, v));
        let [p, q, r] = [a, b, c].map(f64::from_bits);
        let same = |got: u64, want: f64, what: &str| {
            let want = if std::hint::black_box(want).is_nan() { NAN_F64 } else { want.to_bits() };
            assert_eq!(got, want, "{what} {a:x} {b:x} {c:x}");
        };
        same(soft::round(F::F64, near, soft::add(x, y, near)), p + q, "add");
        same(soft::round(F::F64, near, soft::mul(x, y)), p * q, "mul");
        same(soft::round(F::F64, near, soft::div(x, y)), p / q, "div");
        same(soft::round(F::F64, near, soft::sqrt(x)), p.sqrt(), "sqrt");
        same(
            soft::round(F::F64, near, soft::add(soft::mul(x, y), z, near)),
            p.mul_add(q, r),
            "fma",
        );
    }
}

/// f64 holds sums, products and quotients of f32 precisely enough to check the directed modes.
#[test]
fn directed_modes_enclose_the_result() {
    let mut draw = Draw(5);
    for _ in 0..100_000 {
        let a = f32::from_bits(0x3000_0000 + draw.next() as u32 % 0x2000_0000);
        let b = f32::from_bits(0x3000_0000 + draw.next() as u32 % 0x2000_0000);
        let b = if draw.next() & 1 == 0 { -b } else { b };
        for (op, exact) in [
            (Alu::Mul, a as f64 * b as f64),
            (Alu::Div, a as f64 / b as f64),
            (Alu::Sqrt, (a as f64).sqrt()),
            (Alu::Rcp, 1.0 / a as f64),
        ] {
            let [down, up, zero, near] =
                [Round::Rm, Round::Rp, Round::Rz, Round::Rn].map(|r| f32_of(op, mods(r), &[a, b]));
            assert!(down as f64 <= exact && exact <= up as f64, "{op:?} {a} {b}");
            assert!(down == up || down.next_up() == up, "{op:?} {a} {b}: {down} {up}");
            assert_eq!(zero, if exact > 0.0 { down } else { up });
            assert!(near == down || near == up);
        }
    }
    let tiny = f32::from_bits(1);
    assert_eq!(f32_of(Alu::Add, mods(Round::Rp), &[1.0, tiny]), 1f32.next_up());
    assert_eq!(f32_of(Alu::Add, mods(Round::Rm), &[1.0, -tiny]), 1f32.next_down());
    assert_eq!(f32_of(Alu::Add, mods(Round::Rz), &[f32::MAX, f32::MAX]), f32::MAX);
    assert_eq!(f32_of(Alu::Fma, mods(Round::Rp), &[1.0, 1.0, 1e-30]), 1f32.next_up());
    assert!(f32_of(Alu::Add, mods(Round::Rm), &[1.0, -1.0]).is_sign_negative());
    assert!(f32_of(Alu::Add, mods(Round::Rn), &[1.0, -1.0]).is_sign_positive());
}

#[test]
fn nan_is_canonical_and_min_max_prefer_numbers() {
    let m = Mods { round: None, ftz: false, sat: false };
    let bits = |op, a: u32, b: u32| eval(op, Ty::F32, m, [a as u64, b as u64, 0]) as u32;
    let (nan, one, minus) = (0xFFC0_1234, 1f32.to_bits(), 0x8000_0000);
    assert_eq!(bits(Alu::Add, nan, one), 0x7FFF_FFFF);
    assert_eq!(bits(Alu::Min, nan, one), one);
    assert_eq!(bits(Alu::Max, one, nan), one);
    assert_eq!(bits(Alu::Max, nan, nan), 0x7FFF_FFFF);
    assert_eq!(bits(Alu::MinNan, nan, one), 0x7FFF_FFFF);
    for x in [0x8000_0001, 0xC849_EE7A, 0xFF80_0000, nan, 0x7F80_0001] {
        assert_eq!(bits(Alu::Sqrt, x, 0), 0x7FFF_FFFF);
    }
    assert_eq!(bits(Alu::Sqrt, minus, 0), minus);
    assert_eq!(bits(Alu::Min, 0, minus), minus);
    assert_eq!(bits(Alu::Max, minus, 0), 0);
    assert_eq!(bits(Alu::CopySign, minus, one), (-1f32).to_bits());
    let wide = |op, a: u64, b: u64| eval(op, Ty::F64, m, [a, b, 0]);
    let (first, second) = (0x7FFF_FFFF_E000_0000, 0xFFF8_0000_0000_0001);
    for op in [Alu::Add, Alu::Mul, Alu::Min] {
        assert_eq!(wide(op, first, second), second, "the last NaN passes");
    }
    assert_eq!(wide(Alu::Div, first, second), first);
    assert_eq!(wide(Alu::Neg, second, 0), second);
    assert_eq!(wide(Alu::Sub, f64::INFINITY.to_bits(), f64::INFINITY.to_bits()), NAN_F64);
    let half = |op, a: u64, b: u64| eval(op, Ty::F16x2, m, [a, b, 0]);
    assert_eq!(half(Alu::Add, 0x3C00_7C00, 0x3C00_FC00), 0x4000_7FFF);
    assert_eq!(half(Alu::MaxNan, 0x3C00_7E00, 0xBC00_3C00), 0x3C00_7FFF);
}

#[test]
fn subnormals_flush_and_sums_saturate() {
    let ftz = Mods { round: Some(Round::Rn), ftz: true, sat: false };
    let sat = Mods { round: Some(Round::Rn), ftz: false, sat: true };
    let tiny = f32::from_bits(0x0000_1234);
    assert_eq!(f32_of(Alu::Add, ftz, &[tiny, tiny]), 0.0);
    assert_eq!(f32_of(Alu::Mul, ftz, &[1e-30, -1e-10]).to_bits(), 0x8000_0000);
    let both = Mods { sat: true, ..ftz };
    assert_eq!(f32_of(Alu::Mul, both, &[1e-30, 1e-10]), 0.0);
    assert_eq!(eval(Alu::Add, Ty::F16, ftz, [0x011B, 0x1CB8, 0]), 0x1CB8);
    assert_eq!(eval(Alu::Mul, Ty::F16, ftz, [0x79D8, 0x036F, 0]), 0);
    assert_eq!(f32_of(Alu::Add, sat, &[0.75, 0.75]), 1.0);
    assert_eq!(f32_of(Alu::Add, sat, &[-0.75, 0.5]).to_bits(), 0);
    assert_eq!(f32_of(Alu::Add, sat, &[f32::NAN, 0.5]).to_bits(), 0);
}

#[test]
fn halves_round_once() {
    // 1 + 2^-11 is a tie, and the product's tail decides it: rounding to f32 first would lose it.
    let m = mods(Round::Rn);
    let fma = |ty, a, b, c| eval(Alu::Fma, ty, m, [a, b, c]);
    assert_eq!(fma(Ty::F16, 0x0C01, 0x0800, 0x3C00), 0x3C00);
    assert_eq!(fma(Ty::F16, 0x1001, 0x3C00, 0x3C00), 0x3C01, "2^-11 (1 + 2^-10) is above half");
    assert_eq!(fma(Ty::F16, 0x1000, 0x3C00, 0x3C00), 0x3C00, "a tie goes to even");
    assert_eq!(fma(Ty::BF16, 0x3B81, 0x3F80, 0x3F80), 0x3F81);
    let mut draw = Draw(11);
    for _ in 0..100_000 {
        let [a, b] = [(); 2].map(|()| draw.next() & 0xFFFF);
        let exact = tessera_ptx_emulator::inner::float::value(Ty::F16, a)
            * tessera_ptx_emulator::inner::float::value(Ty::F16, b);
        let want = tessera_ptx_emulator::inner::float::code(
            Ty::F16,
            exact,
            tessera_ptx_emulator::inner::soft::Mode::Nearest,
        );
        assert_eq!(eval(Alu::Mul, Ty::F16, m, [a, b, 0]), want, "{a:x} {b:x}");
    }
}

#[test]
fn approximations_are_near_and_keep_their_edges() {
    let m = Mods { round: None, ftz: true, sat: false };
    let of = |op, x: f32| f32_of(op, m, &[x]);
    assert_eq!(of(Alu::Ex2Approx, 3.0), 8.0);
    assert_eq!(of(Alu::Ex2Approx, f32::NEG_INFINITY), 0.0);
    assert_eq!(of(Alu::Ex2Approx, -140.0), 0.0, "a subnormal result is flushed");
    assert_eq!(of(Alu::Lg2Approx, 8.0), 3.0);
    assert_eq!(of(Alu::Lg2Approx, 0.0), f32::NEG_INFINITY);
    assert_eq!(of(Alu::RsqrtApprox, 4.0), 0.5);
    assert_eq!(of(Alu::RcpApprox, -0.0), f32::NEG_INFINITY);
    assert_eq!(of(Alu::TanhApprox, f32::INFINITY), 1.0);
    assert!((of(Alu::SinApprox, 1.0) - 1f32.sin()).abs() < 1e-6);
    assert_eq!(f32_of(Alu::DivApprox, m, &[1.0, 2f32.powi(127)]), 0.0);
    assert!(f32_of(Alu::DivApprox, m, &[f32::INFINITY, 2f32.powi(127)]).is_nan());
    assert_eq!(f32_of(Alu::DivApprox, m, &[6.0, 3.0]), 2.0);
}
