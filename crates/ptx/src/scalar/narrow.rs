//! From f32 to the codes of floats of at most 16 bits.

use super::emit::Emit;
use super::encode::{clamp_finite, most, rounding};
use super::format;
use super::val::Val;
use crate::inst::{Cmp, Ty};
use tessera_numerics::{CANONICAL_NAN_F32, DType, FloatFormat, Rounding};

impl Emit {
    /// The code in 16 bits.
    pub(super) fn narrow<'e>(
        &'e self,
        dtype: DType,
        x: Val<'e>,
        round: Rounding,
        saturate: bool,
        canonical: bool,
    ) -> Val<'e> {
        let nearest = round == Rounding::Rne;
        let fix = |code: Val<'e>| if canonical { self.nan_code(x, code, dtype) } else { code };
        // A format without NaN always saturates.
        let saturates = saturate || !format(dtype).has_nan;
        let pair = self.has.byte_pair(dtype).filter(|_| nearest && saturates);
        match dtype {
            DType::F16 => {
                let x = if saturate { clamp_finite(x, most(dtype)) } else { x };
                fix(x.cvt(Ty::F16, Some(rounding(round))).of(Ty::U16))
            }
            DType::BF16 if nearest && self.has.pairs => {
                let x = if saturate { clamp_finite(x, most(dtype)) } else { x };
                fix(x.cvt(Ty::BF16, Some(rounding(round))).of(Ty::U16))
            }
            _ if let Some(ty) = pair => {
                let code = x.cvt_pair(0.0, ty, rounding(round), true).of(Ty::U16);
                // The others write NaN as one code only.
                if dtype == DType::Fp8E5M2 { fix(code) } else { code }
            }
            _ => self.narrow_word(dtype, x, round, saturate).cvt(Ty::U16, None),
        }
    }

    /// The code in the low bits of a word, by integer operations: for formats without an
    /// instruction. A NaN is canonical.
    pub(super) fn narrow_word<'e>(
        &'e self,
        dtype: DType,
        x: Val<'e>,
        round: Rounding,
        saturate: bool,
    ) -> Val<'e> {
        match dtype {
            DType::BF16 => self.bf16_bits(x, round, saturate).shr(16),
            DType::E8M0 => self.encode_e8m0(x, round, saturate),
            _ => self.encode_fields(x, format(dtype), round, saturate),
        }
    }

    /// Replaces a NaN's code by the canonical one.
    fn nan_code<'e>(&'e self, x: Val<'e>, code: Val<'e>, dtype: DType) -> Val<'e> {
        x.is_nan().pick_of(code, format(dtype).nan_code() as i64, code)
    }

    /// The code of a bf16 in the upper half of a word; the lower half is undefined.
    pub(super) fn bf16_bits<'e>(&'e self, x: Val<'e>, round: Rounding, saturate: bool) -> Val<'e> {
        let x = if saturate { clamp_finite(x, most(DType::BF16)) } else { x };
        let bits = x.of(Ty::U32);
        let sign = || x.of(Ty::S32).shr(31).of(Ty::U32);
        // What is added below the code so that its carry rounds.
        let rounded = match round {
            Rounding::Rne | Rounding::Stochastic => bits + 0x7FFF + bits.field(16, 1),
            Rounding::Rtz => bits,
            Rounding::Up => bits + sign().not().and(0xFFFF),
            Rounding::Down => bits + sign().and(0xFFFF),
        };
        x.is_nan().pick_of(bits, i64::from(CANONICAL_NAN_F32), rounded)
    }

    /// By the fields of f32: the significand is rounded where it is cut, and its carry goes on into
    /// the exponent. A subnormal of the format is rounded by adding the power of two whose last bit
    /// is the format's smallest step.
    fn encode_fields<'e>(
        &'e self,
        x: Val<'e>,
        fmt: FloatFormat,
        round: Rounding,
        saturate: bool,
    ) -> Val<'e> {
        let (shift, sign_shift) = (i64::from(23 - fmt.man_bits), i64::from(fmt.sign_shift()));
        let rebias = i64::from(127 - fmt.bias) << 23;
        let (max, nan) = (fmt.max_code() as i64, fmt.nan_code() as i64);
        let bits = x.of(Ty::U32);
        let unclamped = bits.and(0x7FFF_FFFF);
        // A format without infinity and NaN always saturates.
        let saturate = saturate || !fmt.has_nan;
        let magnitude = if saturate { unclamped.min((max << shift) + rebias) } else { unclamped };
        let below = (1i64 << shift) - 1;
        let sign = || x.of(Ty::S32).shr(31).of(Ty::U32);
        let raised = match round {
            Rounding::Rne | Rounding::Stochastic => {
                magnitude + ((below >> 1) - rebias) + magnitude.field(shift, 1)
            }
            Rounding::Rtz => magnitude + -rebias,
            Rounding::Up => magnitude + -rebias + sign().not().and(below),
            Rounding::Down => magnitude + -rebias + sign().and(below),
        };
        let normal = raised.shr(shift);
        let magic = i64::from(127 + fmt.min_exp() - fmt.man_bits as i32 + 23) << 23;
        let step = x.c(f32::from_bits(magic as u32));
        let lifted = match round {
            Rounding::Rne | Rounding::Stochastic | Rounding::Rtz => {
                magnitude.of(Ty::F32).add_by(rounding(round), step).of(Ty::U32)
            }
            // Up and down refer to the number, not to its magnitude.
            Rounding::Up | Rounding::Down => {
                let sum = x.add_by(rounding(round), step.with_sign(x));
                sum.of(Ty::U32).and(0x7FFF_FFFF)
            }
        };
        let small = magnitude.lt(i64::from(127 + fmt.min_exp()) << 23);
        let mut code = small.pick(lifted - magic, normal);
        let mut is_nan = unclamped.gt(0x7F80_0000);
        if !saturate {
            let over = code.gt(max);
            // Infinity is always beyond; a number is not where it is rounded towards zero.
            let infinite = || unclamped.eq(0x7F80_0000);
            let outward = match round {
                Rounding::Rne | Rounding::Stochastic => over,
                Rounding::Rtz => infinite(),
                Rounding::Up => over.and(infinite().or(x.of(Ty::S32).cmp(Cmp::Ge, 0))),
                Rounding::Down => over.and(infinite().or(x.of(Ty::S32).lt(0))),
            };
            code = code.min(max);
            if fmt.has_inf {
                code = outward.pick_of(code, fmt.inf_code() as i64, code);
            } else {
                // There the NaN is positive, as it always is.
                is_nan = is_nan.or(outward);
            }
        }
        let sign = bits.shr(31 - sign_shift).and(1 << sign_shift);
        is_nan.pick_of(code, nan, code.or(sign))
    }

    /// The code is the exponent, from 2^-127 up. Nothing below that, no sign, no infinity: zero and
    /// what is smaller give code 0, what is negative NaN.
    fn encode_e8m0<'e>(&'e self, x: Val<'e>, round: Rounding, saturate: bool) -> Val<'e> {
        // -0 becomes +0; every other number stays.
        let bits = (x + 0.0).of(Ty::U32);
        let is_nan = bits.gt(0x7F80_0000);
        // The one binade of subnormals that has a code, with an exponent field of zero.
        let doubled = (bits + bits + -(1i64 << 23)).of(Ty::S32).max(0).of(Ty::U32);
        let field = bits.lt(1 << 23).pick(doubled, bits);
        let raised = match round {
            Rounding::Rne | Rounding::Stochastic => field + 0x3F_FFFF + field.field(23, 1),
            Rounding::Rtz | Rounding::Down => field,
            Rounding::Up => field + 0x7F_FFFF,
        };
        let code = raised.shr(23);
        let code = if saturate { code.min(0xFE) } else { code };
        is_nan.pick_of(code, 0xFF, code)
    }
}
