//! Packed words of several elements, as wide loads and stores move them.

use super::emit::Emit;
use super::format;
use super::val::Val;
use crate::inst::{Alu, Round, Ty};
use tessera_numerics::{DType, Rounding};

/// The table of `a & !b & c`.
const A_NOT_B_C: Alu = Alu::Lop3(0x20);
/// Bytes 0 and 1 of both, the first below.
const LOW_HALVES: i64 = 0x5410;
const HIGH_HALVES: i64 = 0x7632;

impl Emit {
    /// The elements of a word of 32 bits, the lowest first: two of 16 bits, or four.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn decode_packed<'e>(&'e self, dtype: DType, word: Val<'e>) -> Vec<Val<'e>> {
        let (s, u) = (word.of(Ty::S32), word.of(Ty::U32));
        let bytes = [0, 8, 16, 24];
        let halves = |word: Val<'e>| word.halves(Ty::F16).map(|h| h.cvt(Ty::F32, None));
        match dtype {
            DType::BF16 => vec![u.shl(16).of(Ty::F32), u.and(0xFFFF_0000i64).of(Ty::F32)],
            DType::F16 => halves(word).to_vec(),
            DType::I16 => vec![s.field(0, 16), s.shr(16)],
            DType::U16 => vec![u.and(0xFFFF).of(Ty::S32), u.shr(16).of(Ty::S32)],
            DType::I8 => bytes.map(|at| s.field(at, 8)).to_vec(),
            DType::U8 => bytes.map(|at| u.field(at, 8).of(Ty::S32)).to_vec(),
            DType::I4 => bytes.map(|at| s.field(at, 4)).to_vec(),
            DType::Bool => bytes.map(|at| u.and(1i64 << at).ne(0)).to_vec(),
            // Each code is the upper byte of a half.
            DType::Fp8E5M2 => [0x1404, 0x3424].map(|which| halves(word.bytes(0, which))).concat(),
            _ if let Some(ty) = self.has.byte_pair(dtype) => {
                let pairs = word.halves(Ty::B16);
                pairs.map(|p| self.decode_pair(dtype, ty, p)).concat()
            }
            DType::E8M0 => bytes.map(|at| self.decode_e8m0(u.field(at, 8))).to_vec(),
            DType::Fp8E4M3 | DType::Fp6E3M2 | DType::Fp6E2M3 | DType::Fp4E2M1 => {
                bytes.map(|at| self.decode_fields(format(dtype), u, at)).to_vec()
            }
            // One of these is the word.
            DType::I32 | DType::U32 | DType::F32 | DType::Tf32 => vec![word],
            DType::I64 | DType::U64 | DType::F64 => vec![],
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn encode_packed<'e>(&'e self, dtype: DType, xs: &[Val<'e>]) -> Val<'e> {
        let words: Vec<Val<'e>> = match dtype {
            DType::BF16 | DType::F16 if self.has.pairs => {
                let ty = if dtype == DType::F16 { Ty::F16x2 } else { Ty::BF16x2 };
                let codes = xs[0].cvt_pair(xs[1], ty, Round::Rn, false);
                return self.canonical_halves(dtype, codes.of(Ty::U32));
            }
            DType::F16 => {
                let [low, high] = [xs[0], xs[1]].map(|x| x.cvt(Ty::F16, Some(Round::Rn)));
                return self.canonical_halves(dtype, low.join(high, Ty::U32));
            }
            DType::BF16 => {
                let [low, high] = [xs[0], xs[1]].map(|x| self.bf16_bits(x, Rounding::Rne, false));
                return low.bytes(high, HIGH_HALVES);
            }
            _ if let Some(ty) = self.has.byte_pair(dtype) => {
                let pair = |i: usize| xs[i].cvt_pair(xs[i + 1], ty, Round::Rn, true);
                let codes = pair(0).join(pair(2), Ty::U32);
                return self.canonical_bytes(dtype, codes);
            }
            DType::Bool => {
                let one = |(i, x): (usize, &Val<'e>)| x.pick(self.int(Ty::U32, 1 << (8 * i)), 0);
                let bits = xs.iter().enumerate().map(one);
                return bits.reduce(Val::or).unwrap_or(self.int(Ty::U32, 0));
            }
            DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 | DType::Fp6E2M3 => {
                xs.iter().map(|&x| self.narrow_word(dtype, x, Rounding::Rne, true)).collect()
            }
            DType::Fp4E2M1 | DType::E8M0 => {
                xs.iter().map(|&x| self.narrow_word(dtype, x, Rounding::Rne, true)).collect()
            }
            DType::I4 | DType::I8 | DType::I16 | DType::U8 | DType::U16 => xs.to_vec(),
            DType::F32 | DType::Tf32 => {
                let saturate = dtype.saturates_by_default();
                return self.encode(dtype, xs[0], Rounding::Rne, saturate);
            }
            DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::F64 => return xs[0],
        };
        let word = match words[..] {
            [a, b, c, d] => a.bytes(b, 0x40).bytes(c.bytes(d, 0x40), LOW_HALVES),
            [a, b, ..] => a.bytes(b, LOW_HALVES),
            _ => words[0],
        };
        if dtype == DType::I4 { word.and(0x0F0F_0F0F) } else { word }
    }

    /// The hardware writes NaN as 0x7FFF. Adding 1 sets the sign of such a half and of no other;
    /// nothing is ever carried out of a half.
    fn canonical_halves<'e>(&'e self, dtype: DType, codes: Val<'e>) -> Val<'e> {
        if !self.strict {
            return codes;
        }
        let rest = [codes, self.int(Ty::U32, 0x8000_8000)];
        let nans = (codes + 0x0001_0001).alu(A_NOT_B_C, None, false, &rest);
        let excess = 0x7FFF - format(dtype).nan_code() as i64;
        nans.shr(15).fma(-excess, codes)
    }

    /// The hardware writes NaN of e5m2 as 0x7F, and no infinity when it saturates: a full exponent
    /// is a NaN, whose last bit goes.
    fn canonical_bytes<'e>(&'e self, dtype: DType, codes: Val<'e>) -> Val<'e> {
        if !self.strict || dtype != DType::Fp8E5M2 {
            return codes;
        }
        let nans = (codes.and(0x7F7F_7F7F) + 0x0404_0404).and(0x8080_8080i64);
        codes - nans.shr(7)
    }
}
