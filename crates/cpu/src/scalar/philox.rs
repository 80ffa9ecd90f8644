//! Random words from a seed and counters: Philox4x32-10 in lanes of 64 bits.

use super::Scalars;
use crate::llvm::Val;

const ROUNDS: usize = 10;
const MULTIPLIERS: [i64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [i64; 2] = [0x9E37_79B9, 0xBB67_AE85];

impl Scalars<'_> {
    /// One of the four random words of each counter, as u32. Seed and counter are integers, narrow
    /// ones signed; a scalar seed serves all lanes.
    pub fn philox(&self, seed: Val, counter: Val, word: usize) -> Val {
        self.philox4(seed, counter)[word]
    }

    /// All four words.
    pub fn philox4(&self, seed: Val, counter: Val) -> [Val; 4] {
        let ir = self.ir;
        let n = self.lanes(counter);
        let wide = ir.vec(ir.i64(), n);
        let extend = |v: Val| {
            let v = if self.lanes(v) == n { v } else { ir.splat(v, n) };
            if ir.bits(ir.ty(v)) == 64 { v } else { ir.sext(v, wide) }
        };
        let c = |v: i64| ir.const_int(wide, v);
        let high = |v: Val| ir.lshr(v, c(32));
        // A word is the low half of its lane and the high half is anything: only the products look
        // at whole lanes, and they are of masked words, which x86 multiplies in one instruction.
        let (seed, counter) = (extend(seed), extend(counter));
        let product = |v: Val, by: i64| ir.mul(ir.and(v, c(0xFFFF_FFFF)), c(by));
        let [mut k0, mut k1] = [seed, high(seed)];
        let [mut c0, mut c1, mut c2, mut c3] = [counter, high(counter), c(0), c(0)];
        for round in 0..ROUNDS {
            if round > 0 {
                (k0, k1) = (ir.add(k0, c(WEYL[0])), ir.add(k1, c(WEYL[1])));
            }
            let (p0, p1) = (product(c0, MULTIPLIERS[0]), product(c2, MULTIPLIERS[1]));
            let next0 = ir.xor(ir.xor(high(p1), c1), k0);
            let next2 = ir.xor(ir.xor(high(p0), c3), k1);
            (c0, c1, c2, c3) = (next0, p1, next2, p0);
        }
        [c0, c1, c2, c3].map(|v| ir.trunc(v, ir.vec(ir.i32(), n)))
    }
}
