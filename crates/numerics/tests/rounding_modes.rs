//! Every rounding mode into every float format, from f64, f32 and integers, against an exact
//! reference: the values of a format are listed from SPEC 4.1 alone, and the place of a number
//! between two of them is a difference and a division by a power of two, which f64 does exactly.

use tessera_numerics::{DType, Rounding, Scalar, decode, encode, encode_drawn};

#[derive(Copy, Clone, PartialEq, Debug)]
enum Mode {
    Plain(Rounding),
    Drawn(u32),
}

const PLAIN: [Mode; 4] = [
    Mode::Plain(Rounding::Rne),
    Mode::Plain(Rounding::Rtz),
    Mode::Plain(Rounding::Up),
    Mode::Plain(Rounding::Down),
];

struct Format {
    dt: DType,
    /// Values of the codes 0, 1, 2, … ascending, the largest finite one last.
    values: Vec<f64>,
    /// Code of NaN, and of what is too large and may not saturate.
    nan: u64,
    over: u64,
    /// Position of the sign bit; `None` for e8m0.
    sign: Option<u32>,
}

fn formats() -> Vec<Format> {
    // Exponent bits, fraction bits, largest value, NaN code, overflow code.
    let rows = [
        (DType::F16, 5, 10, 65504.0, 0x7E00, 0x7C00),
        (DType::BF16, 8, 7, 255.0 * 2f64.powi(120), 0x7FC0, 0x7F80),
        (DType::Fp8E4M3, 4, 3, 448.0, 0x7F, 0x7F),
        (DType::Fp8E5M2, 5, 2, 57344.0, 0x7E, 0x7C),
        (DType::Fp6E3M2, 3, 2, 28.0, 0x1F, 0x1F),
        (DType::Fp6E2M3, 2, 3, 7.5, 0x1F, 0x1F),
        (DType::Fp4E2M1, 2, 1, 6.0, 0x7, 0x7),
    ];
    let format = |(dt, exp_bits, man_bits, max, nan, over): (DType, i32, i32, f64, u64, u64)| {
        let bias = (1 << (exp_bits - 1)) - 1;
        let value = |c: i32| {
            let (e, fraction) =
                (c >> man_bits, (c & ((1 << man_bits) - 1)) as f64 / 2f64.powi(man_bits));
            if e == 0 {
                fraction * 2f64.powi(1 - bias)
            } else {
                (1.0 + fraction) * 2f64.powi(e - bias)
            }
        };
        let values = (0..1 << (exp_bits + man_bits)).map(value).take_while(|v| *v <= max).collect();
        Format { dt, values, nan, over, sign: Some((exp_bits + man_bits) as u32) }
    };
    let mut out: Vec<Format> = rows.into_iter().map(format).collect();
    let scales = (-127..=127).map(|e| 2f64.powi(e)).collect();
    out.push(Format { dt: DType::E8M0, values: scales, nan: 255, over: 255, sign: None });
    out
}

impl Format {
    /// The gap above the value at `i`; above the last it is the gap the format would have gone on
    /// with.
    fn gap(&self, i: usize) -> f64 {
        match (self.values.get(i + 1), self.sign) {
            (Some(next), _) => next - self.values[i],
            (None, Some(_)) => self.values[i] - self.values[i - 1],
            (None, None) => self.values[i],
        }
    }

    fn expected(&self, x: f64, mode: Mode, sat: bool) -> u64 {
        if x.is_nan() || (self.sign.is_none() && x < 0.0) {
            return self.nan;
        }
        let (magnitude, negative) = (x.abs(), x.is_sign_negative() && self.sign.is_some());
        if magnitude < self.values[0] {
            return 0;
        }
        let i = self.values.partition_point(|v| *v <= magnitude) - 1;
        let max = self.values.len() - 1;
        let part = ((magnitude - self.values[i]) / self.gap(i)).min(1.0);
        let up = match mode {
            Mode::Plain(Rounding::Rtz) => false,
            Mode::Plain(Rounding::Up) => part > 0.0 && !negative,
            Mode::Plain(Rounding::Down) => part > 0.0 && negative,
            Mode::Plain(Rounding::Rne | Rounding::Stochastic) => {
                part > 0.5 || (part == 0.5 && i % 2 == 1)
            }
            Mode::Drawn(draw) => (part * 2f64.powi(32)).floor() > draw as f64,
        };
        // Infinity, unlike a large number, is not brought back by rounding inward.
        let code = if i + up as usize > max || magnitude.is_infinite() {
            if sat { max as u64 } else { self.over }
        } else {
            (i + up as usize) as u64
        };
        let canonical_nan = code == self.nan && self.nan > max as u64;
        code | self.sign.map_or(0, |s| ((negative && !canonical_nan) as u64) << s)
    }

    fn check(&self, v: Scalar, mode: Mode) {
        for sat in [false, true] {
            let got = match mode {
                Mode::Plain(r) => encode(self.dt, v, r, sat),
                Mode::Drawn(d) => encode_drawn(self.dt, v, d, sat),
            };
            let want = self.expected(v.as_f64(), mode, sat);
            assert_eq!(got, want, "{} {mode:?} sat={sat} {v:?}: {got:#x} {want:#x}", self.dt);
        }
    }

    /// All plain modes, and draws on both sides of the one where the choice iterations.
    fn check_all(&self, x: f64, draw: u32) {
        PLAIN.into_iter().for_each(|m| self.check(Scalar::F64(x), m));
        let i = self.values.partition_point(|v| *v <= x.abs()).max(1) - 1;
        let part = (x.abs() - self.values[i]) / self.gap(i);
        let iteration = (part * 2f64.powi(32)) as u32;
        for d in
            [0, iteration.saturating_sub(1), iteration, iteration.saturating_add(1), u32::MAX, draw]
        {
            self.check(Scalar::F64(x), Mode::Drawn(d));
        }
    }
}

fn random() -> impl FnMut() -> u64 {
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Each value and each quarter of the gap above it, with their f64 and f32 neighbours.
#[test]
fn values_quarters_and_neighbours_round_by_every_mode() {
    let mut next = random();
    for f in formats() {
        for (i, v) in f.values.iter().enumerate() {
            let quarters = [0.0, 0.25, 0.5, 0.75].map(|q| v + q * f.gap(i));
            // Three gaps above the last value is beyond it in every mode.
            let last = (i + 1 == f.values.len()).then(|| v + f.gap(i) * 3.0);
            for x in quarters.into_iter().chain(last) {
                let single = x as f32;
                let near = [
                    x,
                    x.next_up(),
                    x.next_down(),
                    single.next_up() as f64,
                    single.next_down() as f64,
                ];
                for y in near.into_iter().flat_map(|y| [y, -y]) {
                    f.check_all(y, next() as u32);
                }
            }
        }
        for x in [f64::NAN, f64::INFINITY, 0.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, 1e-300] {
            [x, -x].into_iter().for_each(|y| f.check_all(y, 1));
        }
    }
}

#[test]
fn random_f32_and_f64_round_by_every_mode() {
    let mut next = random();
    let formats = formats();
    for i in 0..50_000 {
        let (a, b) = (next(), next());
        for f in &formats {
            // Exponents from two below the format's range to two above it, or any at all.
            let (lo, hi) =
                (f.values[1].log2().floor() as i64 - 2, f.values.last().unwrap().log2() as i64 + 2);
            let exponent = (1023 + lo + (b % (hi - lo + 1) as u64) as i64) as u64;
            let near = f64::from_bits((a & !(0x7FF << 52)) | exponent << 52);
            let x = if i % 4 == 0 { f64::from_bits(a) } else { near };
            f.check_all(if i % 2 == 0 { x } else { x as f32 as f64 }, b as u32);
            let single = Scalar::F32(x as f32);
            PLAIN.into_iter().for_each(|m| f.check(single, m));
            f.check(single, Mode::Drawn(a as u32));
        }
    }
}

/// f64 into f32: the neighbours come from the hardware's own conversion and step functions.
#[test]
fn f64_rounds_into_f32_by_every_mode() {
    let mut next = random();
    for i in 0..300_000u32 {
        let bits = next();
        let exponent = 1023 - 152 + next() % 280;
        let mut x = f64::from_bits((bits & !(0x7FF << 52)) | exponent << 52);
        if i % 3 == 0 {
            // A midpoint, or next to one.
            let v = x as f32;
            x = ((v as f64) + (v.next_up() as f64)) / 2.0;
            x = [x, x.next_up(), x.next_down()][(i / 3 % 3) as usize];
        }
        if !x.is_finite() || x.abs() >= f32::MAX as f64 {
            continue;
        }
        let nearest = x as f32;
        let down = if nearest as f64 > x { nearest.next_down() } else { nearest };
        let up = if (nearest as f64) < x { nearest.next_up() } else { nearest };
        let inward = if x < 0.0 { up } else { down };
        let outward = if x < 0.0 { down } else { up };
        let put = |r| f32::from_bits(encode(DType::F32, x.into(), r, false) as u32);
        // A zero keeps the sign of what it came from.
        let same = |got: f32, want: f32| got.to_bits() == want.copysign(x as f32).to_bits();
        assert!(same(put(Rounding::Rne), nearest) && same(put(Rounding::Rtz), inward), "{x:e}");
        assert!(same(put(Rounding::Up), up) && same(put(Rounding::Down), down), "{x:e}");
        if inward != outward {
            let gap = outward as f64 - inward as f64;
            let iteration = ((x - inward as f64) / gap * 2f64.powi(32)).floor() as u64;
            for draw in [
                0,
                iteration.saturating_sub(1),
                iteration,
                (iteration + 1).min(u32::MAX as u64),
                next() >> 32,
            ] {
                let got =
                    f32::from_bits(encode_drawn(DType::F32, x.into(), draw as u32, false) as u32);
                assert!(same(got, if iteration > draw { outward } else { inward }), "{x:e} {draw}");
            }
        }
    }
}

/// 64-bit integers, in whole-number arithmetic.
#[test]
fn integers_round_once_by_every_mode() {
    let mut next = random();
    for i in 0..100_000 {
        let n = next() >> (i % 64);
        let negative = next() & 1 == 1 && n <= i64::MAX as u64;
        let v = if negative { Scalar::I64(-(n as i64)) } else { Scalar::U64(n) };
        for (dt, digits) in [(DType::F32, 24), (DType::F64, 53), (DType::BF16, 8)] {
            let shift = (64 - n.leading_zeros()).saturating_sub(digits);
            let (kept, rest) = (n >> shift, n & ((1u64 << shift) - 1));
            let half = if shift == 0 { u64::MAX } else { 1 << (shift - 1) };
            for mode in PLAIN {
                let Mode::Plain(r) = mode else { unreachable!("PLAIN has plain modes") };
                let up = match r {
                    Rounding::Rtz => false,
                    Rounding::Up => rest > 0 && !negative,
                    Rounding::Down => rest > 0 && negative,
                    _ => rest > half || (rest == half && kept & 1 == 1),
                };
                let want = ((kept + up as u64) as u128) << shift;
                let got = decode(dt, encode(dt, v, r, false)).as_f64();
                assert!(
                    got.abs() as u128 == want && (got < 0.0) == (negative && want > 0),
                    "{dt} {r} {v:?}"
                );
            }
        }
    }
}
