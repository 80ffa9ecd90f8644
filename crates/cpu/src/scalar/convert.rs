//! Casts between carriers: integers, f32, f64 and bool, each from every other.

use super::Scalars;
use super::float::Whole;
use crate::isa::Isa;
use crate::llvm::{IntCmp, RealCmp, Ty, Val};
use std::cmp::Ordering;
use tessera_numerics::{DType, Rounding};

impl Scalars<'_> {
    /// From the carrier of one type to that of another, by the rules of `cast_with`. The rounding
    /// is not stochastic.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn cast(&self, x: Val, from: DType, to: DType, round: Rounding, saturate: bool) -> Val {
        let plain = round == Rounding::Rne && saturate == to.saturates_by_default();
        if plain && from == to {
            return x;
        }
        match to {
            DType::Bool => self.truth(x, from),
            DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                self.cast_to_int(x, from, to, saturate)
            }
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                self.cast_to_int(x, from, to, saturate)
            }
            DType::F64 => self.cast_to_f64(x, from, round, saturate),
            DType::F32 | DType::Tf32 => self.cast_to_f32(x, from, to, round, saturate),
            DType::BF16 => self.cast_to_bf16(x, from, round, saturate),
            DType::F16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => {
                self.decode(self.narrow_code(x, from, to, round, saturate), to)
            }
            DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => {
                self.decode(self.narrow_code(x, from, to, round, saturate), to)
            }
        }
    }

    /// Whether the value is other than zero; NaN is.
    fn truth(&self, x: Val, from: DType) -> Val {
        let zero = self.ir.zero(self.ir.ty(x));
        match from.carrier() {
            DType::Bool => x,
            DType::F32 | DType::F64 => self.ir.fcmp(RealCmp::LLVMRealUNE, x, zero),
            _ => self.ir.icmp(IntCmp::LLVMIntNE, x, zero),
        }
    }

    fn cast_to_int(&self, x: Val, from: DType, to: DType, saturate: bool) -> Val {
        let ir = self.ir;
        let ty = self.carrier(to, self.lanes(x));
        match from.carrier() {
            DType::Bool => ir.zext(x, ty),
            DType::F32 | DType::F64 => self.float_to_int(x, to),
            carrier => {
                let signed = carrier.is_signed_int();
                let clamped = if saturate { self.clamp_int(x, carrier, to) } else { x };
                let fits = saturate || inside(from, to);
                let resized = self.resize(clamped, ty, signed);
                if fits { resized } else { self.wrap(resized, to) }
            }
        }
    }

    /// An integer in another width.
    fn resize(&self, x: Val, to: Ty, signed: bool) -> Val {
        let (from, bits) = (self.ir.bits(self.ir.ty(x)), self.ir.bits(to));
        match bits.cmp(&from) {
            Ordering::Less => self.ir.trunc(x, to),
            Ordering::Equal => x,
            Ordering::Greater if signed => self.ir.sext(x, to),
            Ordering::Greater => self.ir.zext(x, to),
        }
    }

    /// The low bits of a carrier that the narrower type `to` has, extended again.
    fn wrap(&self, x: Val, to: DType) -> Val {
        let ir = self.ir;
        let ty = ir.ty(x);
        let spare = ir.bits(ty) - to.bits();
        if spare == 0 {
            x
        } else if to.is_signed_int() {
            let count = ir.const_int(ty, spare.into());
            ir.ashr(ir.shl(x, count), count)
        } else {
            ir.and(x, ir.const_int(ty, (1 << to.bits()) - 1))
        }
    }

    /// Brought into the range of `to`, in the carrier it is in.
    pub(super) fn clamp_int(&self, x: Val, carrier: DType, to: DType) -> Val {
        let ir = self.ir;
        let ((low, high), (least, most)) = (range(to), range(carrier));
        let c = |v: i128| ir.const_int(ir.ty(x), v as i64);
        let x = if low > least { ir.smax(x, c(low)) } else { x };
        match high < most {
            true if carrier.is_signed_int() => ir.smin(x, c(high)),
            true => ir.umin(x, c(high)),
            false => x,
        }
    }

    /// Truncated and clamped; NaN gives 0.
    fn float_to_int(&self, x: Val, to: DType) -> Val {
        let ir = self.ir;
        let real = ir.ty(x);
        let ty = self.carrier(to, self.lanes(x));
        let is_double = ir.elem(real) == ir.f64();
        let (low, high) = range(to);
        let c = |v: f64| ir.const_float(real, v);
        let greater = |a, b| ir.fcmp(RealCmp::LLVMRealOGT, a, b);
        let is_number = || ir.fcmp(RealCmp::LLVMRealORD, x, x);
        // The first selection takes a NaN to the lower bound, which for unsigned types is the end
        // of it.
        let raised = ir.select(greater(x, c(low as f64)), x, c(low as f64));
        let exact_high = to.bits() <= if is_double { 32 } else { 16 };
        let converted = if exact_high {
            let clamped = ir.select(greater(c(high as f64), raised), raised, c(high as f64));
            self.fitting_int(clamped, ty, low < 0 || to.bits() < 32)
        } else {
            // The bound itself is no float. What is above it is replaced after the conversion.
            let fits = greater(c((high + 1) as f64), raised);
            let converted = self.fitting_int(raised, ty, low < 0);
            ir.select(fits, converted, ir.const_int(ty, high as i64))
        };
        if low == 0 { converted } else { ir.select(is_number(), converted, ir.zero(ty)) }
    }

    /// The whole part of a float that the integer type can hold; anything (but no trap) where it
    /// cannot.
    fn fitting_int(&self, x: Val, to: Ty, signed: bool) -> Val {
        let ir = self.ir;
        let is_double = ir.elem(ir.ty(x)) == ir.f64();
        let wide = ir.bits(to) == 64;
        // Without AVX-512 vectors convert to i32 only.
        if self.isa >= Isa::Avx512 || self.lanes(x) == 1 || (signed && !wide) {
            return if signed { ir.fp_to_si(x, to) } else { ir.fp_to_ui(x, to) };
        }
        if !wide && !is_double {
            let half = ir.const_float(ir.ty(x), 2f64.powi(31));
            let big = ir.fcmp(RealCmp::LLVMRealOGE, x, half);
            let low = ir.fp_to_si(ir.select(big, ir.fsub(x, half), x), to);
            return ir.xor(low, ir.shl(ir.zext(big, to), ir.const_int(to, 31)));
        }
        let real = ir.like(to, ir.f64());
        let x = self.whole(if is_double { x } else { ir.fpext(x, real) }, Whole::Trunc);
        if !wide {
            return self.low_bits(x, to);
        }
        // Two halves of 32 bits, each brought to the low bits of a double.
        let up = ir.const_float(real, 2f64.powi(32));
        let high = self.whole(ir.fmul(x, ir.const_float(real, 2f64.powi(-32))), Whole::Floor);
        let low = ir.fsub(x, ir.fmul(high, up));
        let high = ir.shl(self.low_bits(high, to), ir.const_int(to, 32));
        ir.or(high, ir.and(self.low_bits(low, to), ir.const_int(to, 0xFFFF_FFFF)))
    }

    /// A conversion inside an expansion: nothing there is out of range.
    pub(super) fn convert_fitting(&self, x: Val, from: DType, to: DType) -> Val {
        match (from, to) {
            (DType::F32, DType::I32 | DType::I64) => {
                self.fitting_int(x, self.carrier(to, self.lanes(x)), true)
            }
            _ => self.cast(x, from, to, Rounding::Rne, false),
        }
    }

    fn cast_to_f64(&self, x: Val, from: DType, round: Rounding, saturate: bool) -> Val {
        let ir = self.ir;
        let ty = self.carrier(DType::F64, self.lanes(x));
        let finite = |v: Val| if saturate { self.clamp_finite(v, f64::MAX) } else { v };
        match from.carrier() {
            DType::F64 => self.canonical(finite(x)),
            DType::F32 => self.canonical(finite(ir.fpext(x, ty))),
            DType::I64 | DType::U64 if round != Rounding::Rne => {
                self.cast_by_call(x, from, DType::F64, round, saturate)
            }
            carrier => self.int_to_float(x, carrier, ty),
        }
    }

    fn cast_to_f32(&self, x: Val, from: DType, to: DType, round: Rounding, saturate: bool) -> Val {
        let ir = self.ir;
        let ty = self.carrier(to, self.lanes(x));
        let finite = |v: Val| if saturate { self.clamp_finite(v, f32::MAX.into()) } else { v };
        let exact = from.is_storage_only();
        match from.carrier() {
            // Decoded a moment ago, and some NaN is as good as another until it is stored.
            DType::F32 if exact && !saturate => x,
            DType::F32 => self.canonical(finite(x)),
            _ if round != Rounding::Rne && !exact => {
                self.cast_by_call(x, from, to, round, saturate)
            }
            DType::F64 => self.canonical(finite(ir.fptrunc(x, ty))),
            carrier => self.int_to_float(x, carrier, ty),
        }
    }

    /// Infinities to the largest finite number; NaN stays.
    pub(super) fn clamp_finite(&self, x: Val, most: f64) -> Val {
        let ir = self.ir;
        let c = |v: f64| ir.const_float(ir.ty(x), v);
        let x = ir.select(ir.fcmp(RealCmp::LLVMRealOGT, x, c(most)), c(most), x);
        ir.select(ir.fcmp(RealCmp::LLVMRealOLT, x, c(-most)), c(-most), x)
    }

    /// The nearest float of an integer or bool.
    pub(super) fn int_to_float(&self, x: Val, carrier: DType, to: Ty) -> Val {
        let ir = self.ir;
        let native = self.isa >= Isa::Avx512 || self.lanes(x) == 1;
        match carrier {
            DType::Bool => ir.select(x, ir.const_float(to, 1.0), ir.const_float(to, 0.0)),
            DType::I64 | DType::U64 if !native => self.wide_to_float(x, carrier, to),
            _ if carrier.is_signed_int() => ir.si_to_fp(x, to),
            _ => ir.ui_to_fp(x, to),
        }
    }

    /// From 64 bits, where no instruction does it: each half is put into the fraction of a double
    /// of known exponent, and the sum of the two is rounded once.
    fn wide_to_float(&self, x: Val, carrier: DType, to: Ty) -> Val {
        let ir = self.ir;
        let (ty, real) = (ir.ty(x), ir.like(to, ir.f64()));
        let c = |v: i64| ir.const_int(ty, v);
        let signed = carrier.is_signed_int();
        let narrow = ir.elem(to) == ir.f32();
        // On the way to f32 the sum must not be rounded yet: bits beyond its 53 become one that
        // says whether any of them was set.
        let x = if narrow {
            let low = c(0x7FF);
            let sticky = ir.and(ir.or(x, ir.add(ir.and(x, low), low)), ir.not(low));
            let (reach, around) = if signed { (1 << 53, 1 << 54) } else { (0, 1 << 53) };
            let exact = ir.icmp(IntCmp::LLVMIntULT, ir.add_const(x, reach), c(around));
            ir.select(exact, x, sticky)
        } else {
            x
        };
        let (two52, two84) = (0x4330_0000_0000_0000, 0x4530_0000_0000_0000);
        let low = ir.or(ir.and(x, c(0xFFFF_FFFF)), c(two52));
        // The upper half of a signed number is moved to be unsigned, and the sum back again.
        let high = ir.lshr(x, c(32));
        let high = ir.xor(high, c(two84 | if signed { 1 << 31 } else { 0 }));
        let moved = if signed { 2f64.powi(63) } else { 0.0 };
        let base = ir.const_float(real, 2f64.powi(84) + moved + 2f64.powi(52));
        let high = ir.fsub(ir.bitcast(high, real), base);
        let sum = ir.fadd(high, ir.bitcast(low, real));
        if narrow { ir.fptrunc(sum, to) } else { sum }
    }
}

/// Least and greatest value of an integer type; bool counts as one.
fn range(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if dtype.is_signed_int() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// Whether every value of one integer type is one of the other.
fn inside(from: DType, to: DType) -> bool {
    let ((low, high), (least, most)) = (range(from), range(to));
    least <= low && high <= most
}
