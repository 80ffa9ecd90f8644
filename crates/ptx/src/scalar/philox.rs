//! Random words from a seed and a counter: Philox4x32-10.

use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Class, Reg, Ty};

const ROUNDS: usize = 10;
const MULTIPLIERS: [i64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [i64; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// The table of `a ^ b ^ c`.
const XOR3: Alu = Alu::Lop3(0x96);

impl Emit {
    pub(super) fn philox4(&self, seed: Reg, counter: Reg) -> [Val<'_>; 4] {
        let [mut k0, mut k1] = self.words(seed);
        let [mut c0, mut c1] = self.words(counter);
        let zero = self.int(Ty::U32, 0);
        let (mut c2, mut c3) = (zero, zero);
        for round in 0..ROUNDS {
            if round > 0 {
                (k0, k1) = (k0 + WEYL[0], k1 + WEYL[1]);
            }
            let [p0, p1] = [(c0, MULTIPLIERS[0]), (c2, MULTIPLIERS[1])]
                .map(|(c, by)| c.op2(Alu::MulWide, by).halves(Ty::U32));
            let next0 = p1[1].alu(XOR3, None, false, &[c1, k0]);
            let next2 = p0[1].alu(XOR3, None, false, &[c3, k1]);
            (c0, c1, c2, c3) = (next0, p1[0], next2, p0[0]);
        }
        [c0, c1, c2, c3]
    }

    /// The two words of a number, the low one first.
    fn words(&self, r: Reg) -> [Val<'_>; 2] {
        if r.class == Class::B64 {
            return self.val(r, Ty::U64).halves(Ty::U32);
        }
        let low = self.val(r, Ty::S32);
        [low, low.shr(31)].map(|v| v.of(Ty::U32))
    }
}
