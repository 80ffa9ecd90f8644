//! From storage codes to carriers.

use super::{Scalars, format};
use crate::isa::Isa;
use crate::llvm::{IntCmp, Val};
use tessera_numerics::{CANONICAL_NAN_F32, DType, FloatFormat, NanConvention, Scalar, decode};

impl Scalars<'_> {
    /// From the code in memory to the carrier. Bits above the width of the code are ignored.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn decode(&self, code: Val, dtype: DType) -> Val {
        let ir = self.ir;
        let n = self.lanes(code);
        let to = self.carrier(dtype, n);
        match dtype {
            DType::Bool => ir.trunc(code, to),
            DType::I8 | DType::I16 => ir.sext(code, to),
            DType::U8 | DType::U16 => ir.zext(code, to),
            DType::I4 => {
                let up = ir.const_int(to, 28);
                ir.ashr(ir.shl(ir.zext(code, to), up), up)
            }
            DType::I32 | DType::I64 | DType::U32 | DType::U64 => code,
            DType::F64 | DType::F32 | DType::Tf32 => ir.bitcast(code, to),
            DType::BF16 => {
                let wide = ir.vec(ir.i32(), n);
                ir.bitcast(ir.shl(ir.zext(code, wide), ir.const_int(wide, 16)), to)
            }
            DType::E8M0 => self.decode_e8m0(code),
            DType::F16 if self.isa >= Isa::Avx2 => {
                ir.fpext(ir.bitcast(code, ir.vec(ir.f16(), n)), to)
            }
            DType::Fp4E2M1 if let Some(x) = self.decode_fp4(code) => x,
            DType::F16 | DType::Fp8E4M3 | DType::Fp8E5M2 => self.decode_small(code, format(dtype)),
            DType::Fp6E3M2 | DType::Fp6E2M3 | DType::Fp4E2M1 => {
                self.decode_small(code, format(dtype))
            }
        }
    }

    /// Where the processor converts half floats, a code of at most eight bits becomes one by moving
    /// its fields. It is then too small by a power of two, because the exponent field is as it was.
    fn decode_small(&self, code: Val, fmt: FloatFormat) -> Val {
        if self.isa < Isa::Avx2 {
            return self.decode_by_fields(code, fmt);
        }
        let ir = self.ir;
        let n = self.lanes(code);
        let ty = ir.vec(ir.i16(), n);
        let c = |v: i64| ir.const_int(ty, v);
        let (moved, sign_shift) = (i64::from(10 - fmt.man_bits), i64::from(fmt.sign_shift()));
        let magnitudes = (1 << sign_shift) - 1;
        let moved_to = magnitudes << moved;
        // A code that fills its byte brings its sign to the top by being extended.
        let bits = if sign_shift == 7 {
            let bits = ir.shl(ir.sext(code, ty), c(moved));
            if moved == 8 { bits } else { ir.and(bits, c(moved_to | 1 << 15)) }
        } else {
            let wide = ir.zext(code, ty);
            let sign = ir.and(ir.shl(wide, c(15 - sign_shift)), c(1 << 15));
            ir.or(ir.and(ir.shl(wide, c(moved)), c(moved_to)), sign)
        };
        let real = ir.vec(ir.f32(), n);
        let x = ir.fpext(ir.bitcast(bits, ir.vec(ir.f16(), n)), real);
        if fmt.bias == 15 {
            return x;
        }
        let x = ir.fmul(x, ir.const_float(real, 2f64.powi(15 - fmt.bias)));
        if !fmt.has_nan {
            return x;
        }
        let is_nan = ir.icmp(IntCmp::LLVMIntEQ, ir.and(bits, c(moved_to)), c(moved_to));
        ir.select(is_nan, ir.const_bits(real, CANONICAL_NAN_F32.into()), x)
    }

    /// By a table in one register, or one of the magnitudes. Of an index only as many low bits
    /// count as the table has.
    fn decode_fp4(&self, code: Val) -> Option<Val> {
        let ir = self.ir;
        let n = self.lanes(code);
        let ints = ir.vec(ir.i32(), n);
        let table = || {
            let value = |i: u32| match decode(DType::Fp4E2M1, i.into()) {
                Scalar::F32(x) => ir.const_float(ir.f32(), x.into()),
                _ => ir.zero(ir.f32()),
            };
            ir.const_vec(&(0..n).map(value).collect::<Vec<_>>())
        };
        match n {
            16 if self.isa >= Isa::Avx512 => {
                let at = ir.zext(code, ints);
                Some(ir.intrinsic("llvm.x86.avx512.permvar.sf.512", &[], &[table(), at]))
            }
            8 if self.isa == Isa::Avx2 => {
                let at = ir.zext(code, ints);
                let magnitude = ir.intrinsic("llvm.x86.avx2.permps", &[], &[table(), at]);
                let c = |v: i64| ir.const_int(ints, v);
                let sign = ir.and(ir.shl(at, c(28)), c(1 << 31));
                Some(ir.bitcast(ir.or(ir.bitcast(magnitude, ints), sign), ir.ty(magnitude)))
            }
            _ => None,
        }
    }

    /// The code is the exponent field of f32; code 0 is 2^-127, a subnormal.
    fn decode_e8m0(&self, code: Val) -> Val {
        let ir = self.ir;
        let wide = ir.vec(ir.i32(), self.lanes(code));
        let c = |v: i64| ir.const_int(wide, v);
        let bits = ir.shl(ir.zext(code, wide), c(23));
        let is_nan = ir.icmp(IntCmp::LLVMIntEQ, bits, c(0xFF << 23));
        let bits = ir.umax(bits, c(1 << 22));
        let bits = ir.select(is_nan, c(CANONICAL_NAN_F32.into()), bits);
        ir.bitcast(bits, ir.like(wide, ir.f32()))
    }

    /// The fields moved to their places in f32. With the exponent field at zero one more step of
    /// exponent stands in for the hidden bit that is not there, and is taken away again.
    fn decode_by_fields(&self, code: Val, fmt: FloatFormat) -> Val {
        let ir = self.ir;
        let (wide, n) = (ir.vec(ir.i32(), self.lanes(code)), self.lanes(code));
        let real = ir.vec(ir.f32(), n);
        let c = |v: i64| ir.const_int(wide, v);
        let (shift, sign_shift) = (i64::from(23 - fmt.man_bits), i64::from(fmt.sign_shift()));
        let code = ir.zext(code, wide);
        let magnitude = ir.and(code, c((1 << sign_shift) - 1));
        let moved = ir.shl(magnitude, c(shift));
        let normal = ir.add(moved, c(i64::from(127 - fmt.bias) << 23));
        let lifted = ir.bitcast(ir.add(normal, c(1 << 23)), real);
        let step = ir.const_bits(real, ((127 + fmt.min_exp()) as u64) << 23);
        let subnormal = ir.bitcast(ir.fsub(lifted, step), wide);
        let small = ir.icmp(IntCmp::LLVMIntULT, magnitude, c(1 << fmt.man_bits));
        let mut bits = ir.select(small, subnormal, normal);
        bits = match fmt.nan {
            NanConvention::None => bits,
            NanConvention::AllOnes => {
                let is_nan = ir.icmp(IntCmp::LLVMIntEQ, magnitude, c(fmt.nan_code() as i64));
                ir.select(is_nan, c(CANONICAL_NAN_F32.into()), bits)
            }
            // Infinity and NaN alike: every bit of the exponent set.
            NanConvention::Ieee => {
                let special = ir.icmp(IntCmp::LLVMIntUGE, magnitude, c(fmt.inf_code() as i64));
                ir.select(special, ir.or(moved, c(0xFF << 23)), bits)
            }
        };
        let sign = ir.shl(ir.and(code, c(1 << sign_shift)), c(31 - sign_shift));
        ir.bitcast(ir.or(bits, sign), real)
    }
}
