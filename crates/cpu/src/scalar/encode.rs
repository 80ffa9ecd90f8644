//! From carriers to storage codes, rounded once.

use super::expand::WIDEST;
use super::{Scalars, format};
use crate::isa::Isa;
use crate::llvm::{IntCmp, RealCmp, Val};
use tessera_numerics::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, DType, FloatFormat, Rounding};

impl Scalars<'_> {
    /// From any value of the carrier to the code in memory, as a store without a policy writes it:
    /// to nearest even, NaN canonical.
    pub fn encode(&self, x: Val, dtype: DType) -> Val {
        self.encode_with(x, dtype, Rounding::Rne, dtype.saturates_by_default())
    }

    /// [`Scalars::encode`] by the rounding, not stochastic, and saturation of a policy.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn encode_with(&self, x: Val, dtype: DType, round: Rounding, saturate: bool) -> Val {
        let ir = self.ir;
        let to = self.stored(dtype, self.lanes(x));
        let carrier = dtype.carrier();
        match dtype {
            DType::Bool => ir.zext(x, to),
            DType::I32 | DType::I64 | DType::U32 | DType::U64 => x,
            DType::I4 | DType::I8 | DType::I16 | DType::U8 | DType::U16 => {
                let x = if saturate { self.clamp_int(x, carrier, dtype) } else { x };
                let x = if dtype == DType::I4 { ir.and(x, ir.const_int(ir.ty(x), 15)) } else { x };
                ir.trunc(x, to)
            }
            DType::F64 => {
                let x = if saturate { self.clamp_finite(x, f64::MAX) } else { x };
                ir.bitcast(self.canonical(x), to)
            }
            DType::F32 | DType::Tf32 => {
                let x = if saturate { self.clamp_finite(x, f32::MAX.into()) } else { x };
                ir.bitcast(self.canonical(x), to)
            }
            DType::BF16 => {
                let bits = self.bf16_bits(x, round, saturate);
                ir.trunc(ir.lshr(bits, ir.const_int(ir.ty(bits), 16)), to)
            }
            DType::F16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => {
                self.narrow_code(x, carrier, dtype, round, saturate)
            }
            DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => {
                self.narrow_code(x, carrier, dtype, round, saturate)
            }
        }
    }

    /// The positive quiet NaN in the place of every NaN.
    pub(super) fn canonical(&self, x: Val) -> Val {
        let ir = self.ir;
        let ty = ir.ty(x);
        let double = ir.elem(ty) == ir.f64();
        if !double && self.has_scale(self.lanes(x)) {
            return self.fixed_up(x);
        }
        let bits = if double { CANONICAL_NAN_F64 } else { CANONICAL_NAN_F32.into() };
        let is_nan = ir.fcmp(RealCmp::LLVMRealUNO, x, x);
        ir.select(is_nan, ir.const_bits(ty, bits), x)
    }

    /// The same in one instruction of AVX-512, which picks one of two by the kind of number.
    fn fixed_up(&self, x: Val) -> Val {
        /// For quiet and signalling NaN the first operand, for all else the second.
        const KINDS: i64 = 0x1111_1100;
        let (ir, lanes) = (self.ir, self.lanes(x));
        if lanes > WIDEST {
            return self.by_halves(lanes, &|part| self.fixed_up(part(x)));
        }
        let nan = ir.const_bits(ir.ty(x), CANONICAL_NAN_F32.into());
        let kinds = ir.const_int(ir.vec(ir.i32(), lanes), KINDS);
        let every = ir.const_int(ir.int(lanes.max(8)), -1);
        let mut args = vec![nan, x, kinds, ir.c32(0), every];
        if lanes == WIDEST {
            // The exceptions that are in force.
            args.push(ir.c32(4));
        }
        ir.intrinsic(&format!("llvm.x86.avx512.mask.fixupimm.ps.{}", lanes * 32), &[], &args)
    }

    /// From the carrier of any type to a value of bf16 in its carrier.
    pub(super) fn cast_to_bf16(&self, x: Val, from: DType, round: Rounding, saturate: bool) -> Val {
        let Some(x32) = self.odd_f32(x, from) else {
            return self.cast_by_call(x, from, DType::BF16, round, saturate);
        };
        let bits = self.bf16_bits(x32, round, saturate);
        let bits = self.ir.and(bits, self.ir.const_int(self.ir.ty(bits), 0xFFFF << 16));
        self.ir.bitcast(bits, self.ir.ty(x32))
    }

    /// The code in the upper half of 32 bits, over a lower half that means nothing.
    fn bf16_bits(&self, x: Val, round: Rounding, saturate: bool) -> Val {
        let ir = self.ir;
        // The largest bf16, which nothing below rounds beyond.
        let most = f32::from_bits(0x7F7F_0000);
        let x = if saturate { self.clamp_finite(x, most.into()) } else { x };
        let ty = ir.vec(ir.i32(), self.lanes(x));
        let c = |v: i64| ir.const_int(ty, v);
        let bits = ir.bitcast(x, ty);
        // What is added below the code so that its carry rounds.
        let rounded = match round {
            Rounding::Rne | Rounding::Stochastic => {
                let odd = ir.and(ir.lshr(bits, c(16)), c(1));
                ir.add(ir.add(bits, c(0x7FFF)), odd)
            }
            Rounding::Rtz => bits,
            Rounding::Up => {
                let positive = ir.not(ir.ashr(bits, c(31)));
                ir.add(bits, ir.and(positive, c(0xFFFF)))
            }
            Rounding::Down => ir.add(bits, ir.and(ir.ashr(bits, c(31)), c(0xFFFF))),
        };
        let is_nan = ir.fcmp(RealCmp::LLVMRealUNO, x, x);
        ir.select(is_nan, c(CANONICAL_NAN_F32.into()), rounded)
    }

    /// The value as f32 such that rounding it to a narrower format rounds the value itself once: an
    /// inexact f32 is the one of the two neighbours whose last bit is set, which no narrower format
    /// has and which is on the right side of every middle. `None` for 64-bit integers.
    fn odd_f32(&self, x: Val, from: DType) -> Option<Val> {
        let ir = self.ir;
        let n = self.lanes(x);
        let (f32s, f64s, i32s) = (ir.vec(ir.f32(), n), ir.vec(ir.f64(), n), ir.vec(ir.i32(), n));
        let x = match from.carrier() {
            DType::F32 => return Some(x),
            DType::F64 => x,
            DType::I64 | DType::U64 => return None,
            carrier if from.is_storage_only() => return Some(self.int_to_float(x, carrier, f32s)),
            carrier => self.int_to_float(x, carrier, f64s),
        };
        let near = ir.fptrunc(x, f32s);
        let back = ir.fpext(near, f64s);
        let outside = ir.fcmp(RealCmp::LLVMRealOGT, ir.fabs(back), ir.fabs(x));
        let inexact = ir.fcmp(RealCmp::LLVMRealONE, back, x);
        let bits = ir.add(ir.bitcast(near, i32s), ir.sext(outside, i32s));
        Some(ir.bitcast(ir.or(bits, ir.zext(inexact, i32s)), f32s))
    }

    /// From the carrier of any type to the code of a narrow float type.
    pub(super) fn narrow_code(
        &self,
        x: Val,
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
    ) -> Val {
        let x32 = if round == Rounding::Rne { self.odd_f32(x, from) } else { None };
        let Some(x32) = x32 else {
            return self.encode_by_call(x, from, to, round, saturate);
        };
        match to {
            DType::F16 if self.isa >= Isa::Avx2 => self.encode_f16(x32, saturate),
            DType::E8M0 => self.encode_e8m0(x32, saturate),
            _ => self.encode_by_fields(x32, format(to), saturate),
        }
    }

    fn encode_f16(&self, x: Val, saturate: bool) -> Val {
        let ir = self.ir;
        let n = self.lanes(x);
        let x = if saturate { self.clamp_finite(x, 65504.0) } else { x };
        let half = ir.fptrunc(self.canonical(x), ir.vec(ir.f16(), n));
        ir.bitcast(half, ir.vec(ir.i16(), n))
    }

    /// The code is the exponent, from 2^-127 up. Nothing below that, no sign, no infinity: zero and
    /// what is smaller give code 0, what is negative NaN.
    fn encode_e8m0(&self, x: Val, saturate: bool) -> Val {
        let ir = self.ir;
        let (real, n) = (ir.ty(x), self.lanes(x));
        let ty = ir.vec(ir.i32(), n);
        let c = |v: i64| ir.const_int(ty, v);
        // -0 becomes +0; every other number stays.
        let bits = ir.bitcast(ir.fadd(x, ir.const_float(real, 0.0)), ty);
        let is_nan = ir.icmp(IntCmp::LLVMIntUGT, bits, c(0x7F80_0000));
        // The one binade of subnormals that has a code, with an exponent field of zero.
        let subnormal = ir.smax(ir.sub(ir.add(bits, bits), c(1 << 23)), c(0));
        let small = ir.icmp(IntCmp::LLVMIntULT, bits, c(1 << 23));
        let field = ir.select(small, subnormal, bits);
        let odd = ir.and(ir.lshr(field, c(23)), c(1));
        let code = ir.lshr(ir.add(ir.add(field, c(0x3F_FFFF)), odd), c(23));
        let code = if saturate { ir.umin(code, c(0xFE)) } else { code };
        ir.trunc(ir.select(is_nan, c(0xFF), code), ir.vec(ir.i8(), n))
    }

    /// To nearest even by the fields of f32: the significand is rounded where it is cut, and its
    /// carry goes on into the exponent. A subnormal of the format is rounded by adding the power of
    /// two whose last bit is the format's smallest step.
    fn encode_by_fields(&self, x: Val, fmt: FloatFormat, saturate: bool) -> Val {
        let ir = self.ir;
        let (real, n) = (ir.ty(x), self.lanes(x));
        let ty = ir.vec(ir.i32(), n);
        let c = |v: i64| ir.const_int(ty, v);
        let (shift, sign_shift) = (i64::from(23 - fmt.man_bits), i64::from(fmt.sign_shift()));
        let rebias = i64::from(127 - fmt.bias) << 23;
        let (max, nan) = (fmt.max_code() as i64, fmt.nan_code() as i64);
        let bits = ir.bitcast(x, ty);
        let mut magnitude = ir.and(bits, c(0x7FFF_FFFF));
        // A format without infinity and NaN always saturates.
        let saturate = saturate || !fmt.has_nan;
        if saturate {
            magnitude = ir.umin(magnitude, c((max << shift) + rebias));
        }
        let odd = ir.and(ir.lshr(magnitude, c(shift)), c(1));
        let biased = ir.add(magnitude, c((1 << (shift - 1)) - 1 - rebias));
        let normal = ir.lshr(ir.add(biased, odd), c(shift));
        let magic = i64::from(127 + fmt.min_exp() - fmt.man_bits as i32 + 23) << 23;
        let lifted = ir.fadd(ir.bitcast(magnitude, real), ir.const_bits(real, magic as u64));
        let subnormal = ir.sub(ir.bitcast(lifted, ty), c(magic));
        let least = i64::from(127 + fmt.min_exp()) << 23;
        let small = ir.icmp(IntCmp::LLVMIntULT, magnitude, c(least));
        let mut code = ir.select(small, subnormal, normal);
        let mut is_nan = ir.fcmp(RealCmp::LLVMRealUNO, x, x);
        if !saturate {
            let over = ir.icmp(IntCmp::LLVMIntUGT, code, c(max));
            if fmt.has_inf {
                code = ir.select(over, c(fmt.inf_code() as i64), code);
            } else {
                // There the NaN is positive, as it always is.
                is_nan = ir.or(is_nan, over);
            }
        }
        let sign = ir.and(ir.lshr(bits, c(31 - sign_shift)), c(1 << sign_shift));
        let code = ir.select(is_nan, c(nan), ir.or(code, sign));
        ir.trunc(code, ir.vec(ir.int(if fmt.width() > 8 { 16 } else { 8 }), n))
    }
}
