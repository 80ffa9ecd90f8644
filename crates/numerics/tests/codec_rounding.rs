//! Rounding against an exact reference: the neighbouring codes of a format are listed, and a value
//! is compared with the midpoint between two of them, which f64 holds exactly.

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tessera_numerics::{
    DType, Rounding, Scalar, decode, encode, encode_slice_f32, round_to, round_to_mode,
};

/// Signed formats of at most 16 bits.
fn small() -> impl Iterator<Item = DType> {
    let is_small = |d: &DType| d.is_float() && d.bits() <= 16 && *d != DType::E8M0;
    DType::ALL.iter().copied().filter(is_small)
}

/// A signed format of at most 16 bits, by the values of its codes alone.
struct Reference {
    dt: DType,
    /// Values of the codes 0, 1, 2, ... up to the largest finite one, ascending.
    values: Vec<f64>,
    sign: u64,
    nan: u64,
    inf: u64,
}

impl Reference {
    fn new(dt: DType) -> Reference {
        let top = 1u64 << (dt.bits() - 1);
        let value = |c: u64| decode(dt, c).as_f64();
        let values: Vec<f64> = (0..top).map(value).take_while(|v| v.is_finite()).collect();
        assert!(values.windows(2).all(|w| w[0] < w[1]), "{dt}: codes ascend with values");
        let max = values.len() as u64 - 1;
        // From SPEC 4.1, not from the crate: which formats have NaN and infinity.
        let (nan, inf) = match dt {
            DType::F16 => (0x7E00, 0x7C00),
            DType::BF16 => (0x7FC0, 0x7F80),
            DType::Fp8E4M3 => (0x7F, 0x7F),
            DType::Fp8E5M2 => (0x7E, 0x7C),
            _ => (max, max),
        };
        Reference { dt, values, sign: top, nan, inf }
    }

    fn encode(&self, x: f64, r: Rounding, sat: bool) -> u64 {
        if x.is_nan() {
            return self.nan;
        }
        let (mag, neg) = (x.abs(), x.is_sign_negative());
        let max = self.values.len() - 1;
        let step = self.values[max] - self.values[max - 1];
        let lo = self.values.partition_point(|v| *v <= mag) - 1;
        let next = self.values.get(lo + 1).copied().unwrap_or(self.values[max] + step);
        // Beyond the step past the largest value every rounding but the inward ones overflows.
        let beyond = mag >= next;
        let exact = mag == self.values[lo];
        let up = match r {
            Rounding::Rne | Rounding::Stochastic => {
                let mid = (self.values[lo] + next) / 2.0;
                beyond || mag > mid || (mag == mid && lo % 2 == 1)
            }
            Rounding::Rtz => false,
            Rounding::Up => !exact && !neg,
            Rounding::Down => !exact && neg,
        };
        let code = lo + up as usize;
        let over = code > max || mag.is_infinite();
        let mag_code = match (over, sat) {
            (true, true) => max as u64,
            (true, false) => self.inf,
            (false, _) => code as u64,
        };
        let is_nan = over && !sat && self.inf == self.nan && self.dt == DType::Fp8E4M3;
        if neg && !is_nan { mag_code | self.sign } else { mag_code }
    }
}

fn random_f32() -> impl FnMut() -> f32 {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    move || f32::from_bits(rng.next_u32())
}

/// Both neighbours too, in both signs.
fn around(x: f32) -> [f32; 6] {
    [x, x.next_up(), x.next_down(), -x, -x.next_up(), -x.next_down()]
}

/// Every code of f16 and bf16, every midpoint of the format with one ulp to each side, specials.
fn hard_inputs(reference: &Reference) -> Vec<f32> {
    let mut out = vec![0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    out.extend([f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1)]);
    for dt in [DType::F16, DType::BF16] {
        out.extend((0..=0xFFFF).map(|c| decode(dt, c).as_f64() as f32));
    }
    let max = reference.values.len() - 1;
    let last = 2.0 * reference.values[max] - reference.values[max - 1];
    let ends = reference.values.iter().copied().skip(1).chain([last]);
    for (lo, hi) in reference.values.iter().zip(ends) {
        out.extend(around(((lo + hi) / 2.0) as f32));
        out.extend(around(*lo as f32));
    }
    out
}

fn check(reference: &Reference, x: f32) {
    let dt = reference.dt;
    for r in [Rounding::Rne, Rounding::Rtz, Rounding::Up, Rounding::Down] {
        for sat in [false, true] {
            let want = reference.encode(x as f64, r, sat);
            let got = encode(dt, Scalar::F32(x), r, sat);
            assert_eq!(
                got,
                want,
                "{dt} {r} sat={sat} {x:e} ({:#x}): {got:#x} {want:#x}",
                x.to_bits()
            );
        }
    }
    let sat = dt.saturates_by_default();
    let want = reference.encode(x as f64, Rounding::Rne, sat);
    let value = decode(dt, want);
    assert_eq!(Scalar::F32(round_to(dt, x)), value, "{dt} round_to {x:e}");
    let mode = round_to_mode(dt, x as f64, Rounding::Rne, sat);
    assert!(mode == value.as_f64() || (mode.is_nan() && value.as_f64().is_nan()));
    let mut bytes = [0u8; 2];
    assert_eq!(encode_slice_f32(dt, &[x], &mut bytes[..dt.bytes()]), 1);
    assert_eq!(u16::from_le_bytes(bytes) as u64, want, "{dt} slice {x:e}");
}

#[test]
fn encode_hard_cases_match_the_neighbour_reference() {
    for dt in small() {
        let reference = Reference::new(dt);
        hard_inputs(&reference).into_iter().for_each(|x| check(&reference, x));
    }
}

#[test]
fn encode_random_f32_matches_the_neighbour_reference() {
    let references: Vec<Reference> = small().map(Reference::new).collect();
    let mut next = random_f32();
    for _ in 0..1_000_000 {
        let x = next();
        for reference in &references {
            let want =
                reference.encode(x as f64, Rounding::Rne, reference.dt.saturates_by_default());
            let got =
                encode(reference.dt, x.into(), Rounding::Rne, reference.dt.saturates_by_default());
            assert_eq!(got, want, "{} {x:e}", reference.dt);
        }
    }
    // Random bits rarely hit the range of the narrow formats; these values all do.
    for _ in 0..100_000 {
        let x = f32::from_bits((next().to_bits() & 0x87FF_FFFF) | 0x3800_0000) * 16.0;
        references.iter().for_each(|r| check(r, x));
    }
}

#[test]
fn encode_agrees_with_half_crate() {
    let mut next = random_f32();
    for _ in 0..1_000_000 {
        let x = next();
        if x.is_nan() {
            continue;
        }
        let f16 = encode(DType::F16, x.into(), Rounding::Rne, false);
        assert_eq!(f16, half::f16::from_f32(x).to_bits() as u64, "{x:e}");
        let bf16 = encode(DType::BF16, x.into(), Rounding::Rne, false);
        assert_eq!(bf16, half::bf16::from_f32(x).to_bits() as u64, "{x:e}");
    }
}

#[test]
fn encode_random_f64_to_f32_matches_the_hardware() {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for i in 0..1_000_000u64 {
        // Half of the values lie in or near f32's range, some of them subnormal there.
        let bits = rng.next_u64();
        let near = (bits & !(0x7FF << 52)) | (1023 - 160 + bits % 300) << 52;
        let x = f64::from_bits(if i % 2 == 0 { bits } else { near });
        let want = if x.is_nan() { 0x7FC0_0000 } else { (x as f32).to_bits() };
        assert_eq!(encode(DType::F32, x.into(), Rounding::Rne, false), want as u64, "{x:e}");
        let down = round_to_mode(DType::F32, x, Rounding::Down, false);
        let up = round_to_mode(DType::F32, x, Rounding::Up, false);
        assert!(x.is_nan() || (down <= x && x <= up), "{x:e}");
        assert!(down == up || (down as f32).next_up() == up as f32 || x.is_nan());
    }
}

#[test]
fn encode_from_wide_types_rounds_once() {
    // By way of f32 the first would become a tie and go down.
    let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    assert_eq!(encode(DType::F16, x.into(), Rounding::Rne, false), 0x3C01);
    // By way of f64 the last bit of the integer would be lost.
    let n = (1i64 << 62) + (1 << 38) + 1;
    let want = f32::from_bits((2f32.powi(62)).to_bits() + 1);
    assert_eq!(decode(DType::F32, encode(DType::F32, n.into(), Rounding::Rne, false)), want.into());
    let code = encode(DType::BF16, Scalar::U64(u64::MAX), Rounding::Rtz, false);
    assert_eq!(decode(DType::BF16, code).as_f64(), 255.0 * 2f64.powi(56));
    assert_eq!(encode(DType::F64, u64::MAX.into(), Rounding::Rne, false), 2f64.powi(64).to_bits());
}

#[test]
fn tf32_is_stored_as_f32_and_rounds_operands_to_ten_bits() {
    let x = 1.0f32 + 2f32.powi(-11) + 2f32.powi(-20);
    assert_eq!(encode(DType::Tf32, x.into(), Rounding::Rne, false), x.to_bits() as u64);
    assert_eq!(round_to(DType::Tf32, x), 1.0 + 2f32.powi(-10));
    assert_eq!(round_to(DType::Tf32, 1.0 + 2f32.powi(-11)), 1.0);
    assert_eq!(
        round_to_mode(DType::Tf32, 1.0 + 2f64.powi(-11), Rounding::Up, false),
        1.0 + 2f64.powi(-10)
    );
    let mut next = random_f32();
    for _ in 0..100_000 {
        let x = next();
        let (fast, exact) =
            (round_to(DType::Tf32, x), round_to_mode(DType::Tf32, x as f64, Rounding::Rne, false));
        assert!(fast as f64 == exact || x.is_nan(), "{x:e}");
    }
}
