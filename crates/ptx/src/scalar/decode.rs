//! From storage codes to carriers.

use super::emit::Emit;
use super::val::Val;
use super::{format, stored};
use crate::inst::{Class, Reg, Round, Ty};
use tessera_numerics::{CANONICAL_NAN_F32, DType, FloatFormat};

impl Emit {
    /// From the bits in memory. Those above the width of the code are ignored.
    pub(super) fn decode(&self, dtype: DType, code: Reg) -> Val<'_> {
        let ty = match stored(dtype) {
            Class::B16 | Class::Pred => Ty::U16,
            Class::B32 => Ty::U32,
            Class::B64 => Ty::U64,
        };
        self.decode_val(dtype, self.val(code, ty))
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn decode_val<'e>(&'e self, dtype: DType, code: Val<'e>) -> Val<'e> {
        let word = || code.cvt(Ty::U32, None);
        match dtype {
            DType::Bool => code.and(1).ne(0),
            DType::I4 => word().of(Ty::S32).field(0, 4),
            DType::I8 => code.of(Ty::S8).cvt(Ty::S32, None),
            DType::I16 => code.of(Ty::S16).cvt(Ty::S32, None),
            DType::U8 => code.of(Ty::U8).cvt(Ty::U32, None).of(Ty::S32),
            DType::U16 => word().of(Ty::S32),
            DType::I32 => code.of(Ty::S32),
            DType::U32 => code.of(Ty::U32),
            DType::I64 => code.of(Ty::S64),
            DType::U64 => code.of(Ty::U64),
            DType::F64 => code.of(Ty::F64),
            DType::F32 | DType::Tf32 => code.of(Ty::F32),
            DType::BF16 => word().shl(16).of(Ty::F32),
            DType::F16 => code.of(Ty::F16).cvt(Ty::F32, None),
            // The upper byte of a half.
            DType::Fp8E5M2 => code.shl(8).of(Ty::F16).cvt(Ty::F32, None),
            _ if let Some(ty) = self.has.byte_pair(dtype) => self.decode_pair(dtype, ty, code)[0],
            DType::Fp8E4M3 | DType::Fp6E3M2 | DType::Fp6E2M3 | DType::Fp4E2M1 => {
                self.decode_fields(format(dtype), word(), 0)
            }
            DType::E8M0 => self.decode_e8m0(word().and(0xFF)),
        }
    }

    /// Two codes, one per byte, converted by the hardware to halves.
    pub(super) fn decode_pair<'e>(&'e self, dtype: DType, ty: Ty, codes: Val<'e>) -> [Val<'e>; 2] {
        // Bits above a code are ignored.
        let codes = if dtype.bits() == 6 { codes.of(Ty::B16).and(0x3F3F) } else { codes };
        let halves = codes.of(ty).cvt(Ty::F16x2, Some(Round::Rn)).halves(Ty::F16);
        halves.map(|h| h.cvt(Ty::F32, None))
    }

    /// The code that begins at bit `at` of a word: its fields are moved to their places in f32,
    /// where the exponent has a greater bias; a multiplication corrects it. A subnormal number of
    /// the format is a subnormal f32 in between.
    pub(super) fn decode_fields<'e>(&'e self, fmt: FloatFormat, word: Val<'e>, at: i64) -> Val<'e> {
        let sign = i64::from(fmt.sign_shift());
        let down = i64::from(8 - fmt.exp_bits);
        let magnitudes = ((1i64 << sign) - 1) << (23 - fmt.man_bits);
        // The sign moves to the top; copies of it are masked.
        let moved = word.shl(31 - sign - at).of(Ty::S32).shr(down).and(magnitudes | 1 << 31);
        let scale = f32::from_bits(((254 - fmt.bias) as u32) << 23);
        let x = moved.of(Ty::F32) * scale;
        if !fmt.has_nan {
            return x;
        }
        moved.and(magnitudes).eq(magnitudes).pick_of(x, f32::NAN, x)
    }

    /// The code, without anything above it, is the exponent field of f32; code 0 is 2^-127, a
    /// subnormal.
    pub(super) fn decode_e8m0<'e>(&'e self, code: Val<'e>) -> Val<'e> {
        let bits = code.shl(23).max(1 << 22);
        code.eq(0xFF).pick_of(bits, i64::from(CANONICAL_NAN_F32), bits).of(Ty::F32)
    }
}
