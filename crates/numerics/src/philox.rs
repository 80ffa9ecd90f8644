//! The counter-based generator Philox4x32-10 and the dropout rule built on it (LANGUAGE 14 and 19).
//!
//! Being a pure function of a key and a counter, it gives an element the same bits however the work
//! is cut into tiles. Constants and round count are those of Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3" (2011).

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What is added to the key after each round.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Philox4x32-10 of a 128-bit counter and a 64-bit key, both as words from the lowest.
pub const fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    let mut round = 0;
    while round < ROUNDS {
        let p0 = MULTIPLIERS[0] as u64 * c0 as u64;
        let p1 = MULTIPLIERS[1] as u64 * c2 as u64;
        let next0 = (p1 >> 32) as u32 ^ c1 ^ k0;
        let next2 = (p0 >> 32) as u32 ^ c3 ^ k1;
        (c0, c1, c2, c3) = (next0, p1 as u32, next2, p0 as u32);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// The four words of `tile.philox4`: the seed is the key, low half first, and the counter fills the
/// two low words of the 128-bit counter, low half first; the two high words are zero.
pub const fn philox4(seed: u64, counter: u64) -> [u32; 4] {
    philox4x32([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

/// The one word of `tile.philox`: the first of [`philox4`].
pub const fn philox(seed: u64, counter: u64) -> u32 {
    philox4(seed, counter)[0]
}

/// A dropout probability made ready: which words keep an element, and what kept elements are scaled
/// by.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Dropout {
    /// `round(p · 2^32)`, ties to even; 2^32 itself for p = 1, which keeps nothing.
    pub threshold: u64,
    /// `1 / (1 - p)`, rounded once to f32; 1 for p = 1, where nothing is left to scale.
    pub scale: f32,
}

impl Dropout {
    /// `None` unless `0 <= p <= 1`.
    pub fn new(p: f64) -> Option<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            return None;
        }
        let threshold = (p * 4_294_967_296.0).round_ties_even() as u64;
        let scale = if p == 1.0 { 1.0 } else { (1.0 / (1.0 - p)) as f32 };
        Some(Dropout { threshold, scale })
    }

    /// Whether the element at this row-major absolute coordinate is kept.
    pub const fn keeps(self, seed: u64, coordinate: u64) -> bool {
        philox(seed, coordinate) as u64 >= self.threshold
    }

    /// The element after dropout: scaled if kept, else zero.
    pub fn apply(self, x: f32, seed: u64, coordinate: u64) -> f32 {
        if self.keeps(seed, coordinate) { x * self.scale } else { 0.0 }
    }
}
