//! Numbers to try: edges of every format, ties between neighbours, and random ones.

use tessera_numerics::{DType, Rounding, decode, encode};

/// A small generator (xorshift64*), the same numbers in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Magnitudes that are edge cases, beside the powers of two.
const MAGNITUDES: &[&str] = &[
    "0 1e-45 1e-40 1.1754944e-38 6.1e-5 0.1 0.6 0.7853982 0.99999994 1.5 2.5 3 3.1415927 6 7.5 10",
    "88.7 89 104 127.5 255.5 448 464 32767.5 57344 65504 65520 8388607.5 2147483520 2147483647",
    "4294967040 4294967295 4503599627370497.5 9007199254740993 9223371487098961920",
    "9223372036854774784 18446742974197923840 18446744073709549568 3.3e38 3.4028235e38",
    "3.4028235677973366e38 1e300 1.7976931348623157e308 5e-324 2.3e-308 inf nan",
];

/// Powers of two that are edge cases.
const POWERS: &[i32] = &[-24, -6, -2, -1, 0, 1, 7, 23, 24, 31, 32, 63, 64];

/// Integers that are edge cases, beside the neighbours of powers of two.
const INTEGERS: &[i64] = &[
    5,
    100,
    16_777_219,
    2_147_483_519,
    (1 << 53) + 3,
    0x0020_0000_2000_0001,
    0x4000_0080_0000_0001,
    0x7FFF_FF40_0000_0001,
    0x7FFF_FFFF_FFFF_FC00,
    0x7FFF_FFFF_FFFF_FE00,
];

fn magnitudes() -> impl Iterator<Item = f64> {
    let written = MAGNITUDES.iter().flat_map(|line| line.split(' ')).map(|x| x.parse().unwrap());
    written.chain(POWERS.iter().map(|&n| 2f64.powi(n)))
}

fn integers() -> impl Iterator<Item = i64> {
    let powers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 24, 31, 32, 53, 62, 63].map(|n| 1i64 << n);
    let near = powers.into_iter().flat_map(|p| [p, p.wrapping_add(1), p.wrapping_sub(1)]);
    near.chain(INTEGERS.iter().copied())
}

/// The edges of a carrier, as bits.
pub fn edges(carrier: DType) -> Vec<u64> {
    let floats = || magnitudes().flat_map(|x| [x, -x]);
    let ints = || integers().flat_map(|x| [x, x.wrapping_neg()]);
    let mut bits: Vec<u64> = match carrier {
        DType::Bool => vec![0, 1],
        DType::F32 => {
            let near = floats().flat_map(|x| {
                let b = (x as f32).to_bits();
                [b, b ^ 1]
            });
            near.map(u64::from).chain([0x7F80_0001, 0xFFC0_1234]).collect()
        }
        DType::F64 => {
            let near = floats().flat_map(|x| [x.to_bits(), x.to_bits() ^ 1]);
            near.chain([0x7FF0_0000_0000_0001, 0xFFF8_0000_1234_5678]).collect()
        }
        DType::I32 | DType::U32 => ints().map(|x| u64::from(x as u32)).collect(),
        _ => ints().map(|x| x as u64).collect(),
    };
    let mut seen = std::collections::BTreeSet::new();
    bits.retain(|b| seen.insert(*b));
    bits
}

/// A random value: any bits, or numbers of moderate size.
pub fn random(carrier: DType, r: &mut Random) -> u64 {
    let bits = r.next();
    let small = bits & 7 < 4;
    let scale = 1i64.wrapping_shl((bits >> 3 & 15) as u32) as f64 / 256.0;
    let real = ((bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0) * scale;
    match carrier {
        DType::Bool => bits >> 20 & 1,
        DType::F32 if small => u64::from((real as f32).to_bits()),
        DType::F64 if small => real.to_bits(),
        DType::F32 => bits >> 32,
        DType::F64 => bits,
        DType::I32 | DType::U32 if small => u64::from((bits as i32 >> (bits >> 40 & 31)) as u32),
        DType::I32 | DType::U32 => bits >> 32,
        _ if small => (bits as i64 >> (bits >> 8 & 63)) as u64,
        _ => bits,
    }
}

/// Values around rounding boundaries of a narrow float format: every value of it, every midpoint,
/// and their neighbours.
pub fn ties(dtype: DType, r: &mut Random) -> Vec<f64> {
    let codes: Vec<u64> = match dtype.bits() {
        0..=8 => (0..1 << dtype.bits()).collect(),
        bits => (0..200).map(|_| r.next() >> (64 - bits)).collect(),
    };
    let value = |code: u64| decode(dtype, code).as_f64();
    let mut out = vec![];
    for code in codes {
        let (a, b) = (value(code), value(code + 1));
        let middle = (a + b) / 2.0;
        out.extend([a, middle, middle.next_up(), middle.next_down()]);
        let near = middle as f32;
        out.extend([near.next_up(), near.next_down()].map(f64::from));
    }
    out
}

/// Operands for a function of `arity` values: edges crossed with edges, then `count` random ones.
pub fn operands(carrier: DType, arity: usize, seed: u64, count: usize) -> Vec<Vec<u64>> {
    let mut r = Random::new(seed);
    let all = edges(carrier);
    let mut rows: Vec<Vec<u64>> = match arity {
        1 => all.iter().map(|&a| vec![a]).collect(),
        2 => {
            let some: Vec<u64> = all.iter().copied().step_by(all.len().div_ceil(60)).collect();
            some.iter().flat_map(|&a| some.iter().map(move |&b| vec![a, b])).collect()
        }
        _ => {
            (0..800).map(|_| (0..3).map(|_| all[r.next() as usize % all.len()]).collect()).collect()
        }
    };
    rows.extend(
        (0..count).map(|_| (0..arity).map(|_| random(carrier, &mut r)).collect::<Vec<_>>()),
    );
    (0..arity).map(|i| rows.iter().map(|row| row[i]).collect()).collect()
}

/// Values of `from`, as bits of its carrier, that matter for `to`: edges, ties, and `count`
/// random ones.
pub fn sources(from: DType, to: DType, count: usize) -> Vec<u64> {
    let mut r = Random::new(from as u64 * 32 + to as u64 + 1);
    let carrier = from.carrier();
    let mut bits = edges(carrier);
    bits.extend((0..count).map(|_| random(carrier, &mut r)));
    let narrow = to.is_float() && !matches!(to, DType::F32 | DType::F64 | DType::Tf32);
    if narrow && carrier == DType::F64 {
        bits.extend(ties(to, &mut r).iter().map(|x| x.to_bits()));
    } else if narrow && carrier == DType::F32 {
        bits.extend(ties(to, &mut r).iter().map(|&x| u64::from((x as f32).to_bits())));
    } else if narrow && carrier != DType::Bool {
        let near = ties(to, &mut r);
        bits.extend(near.iter().map(|&x| encode(carrier, x.into(), Rounding::Rne, true)));
    }
    // Through the code, so that every value is one that `from` has.
    let own = |b: u64| {
        let code = encode(from, decode(carrier, b), Rounding::Rne, from.saturates_by_default());
        decode(from, code).bits()
    };
    bits.into_iter().map(own).collect()
}

/// Values to encode: edges, random ones, and of short types every value and every middle of two.
pub fn to_encode(dtype: DType) -> Vec<u64> {
    let mut bits = sources(dtype.carrier(), dtype, 2000);
    if matches!(dtype, DType::F16 | DType::BF16) {
        let value = |code: u64| decode(dtype, code).as_f64();
        let middles = (0..65536).flat_map(|c| [value(c), (value(c) + value(c + 1)) / 2.0]);
        bits.extend(middles.map(|x| u64::from((x as f32).to_bits())));
    }
    bits
}

pub fn pairs() -> impl Iterator<Item = (DType, DType)> {
    DType::ALL.iter().flat_map(|&from| DType::ALL.iter().map(move |&to| (from, to)))
}

/// From carriers only: other types use the code of their carrier, but for what is known to fit.
pub fn from_carriers() -> impl Iterator<Item = (DType, DType)> {
    pairs().filter(|(from, _)| *from == from.carrier())
}
