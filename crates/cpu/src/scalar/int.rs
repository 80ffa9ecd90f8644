//! Functions of integers and bools.

#![deny(clippy::wildcard_enum_match_arm)]

use super::Scalars;
use super::float::Whole;
use crate::llvm::{IntCmp, Val};
use tessera_numerics::{Basic, DType};

impl Scalars<'_> {
    pub(super) fn apply_int(&self, f: Basic, dtype: DType, args: &[Val]) -> Val {
        let ir = self.ir;
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let ty = ir.ty(a);
        let c = |v: i64| ir.const_int(ty, v);
        let signed = dtype.is_signed_int();
        let width = i64::from(dtype.bits());
        let min = |a, b| if signed { ir.smin(a, b) } else { ir.umin(a, b) };
        let max = |a, b| if signed { ir.smax(a, b) } else { ir.umax(a, b) };
        let cmp = |s: IntCmp, u: IntCmp| ir.icmp(if signed { s } else { u }, a, b);
        match f {
            Basic::Add => ir.add(a, b),
            Basic::Sub => ir.sub(a, b),
            Basic::Mul => ir.mul(a, b),
            Basic::FloorDiv => self.floor_div(a, b, signed),
            Basic::Mod => self.modulo(a, b, signed),
            Basic::Neg => ir.sub(c(0), a),
            Basic::Abs if signed => ir.intrinsic("llvm.abs", &[ty], &[a, ir.bool(false)]),
            Basic::Abs => a,
            Basic::Fma => ir.add(ir.mul(a, b), args[2]),
            Basic::Sign if signed => ir.smin(ir.smax(a, c(-1)), c(1)),
            Basic::Sign => ir.umin(a, c(1)),
            Basic::Maximum => max(a, b),
            Basic::Minimum => min(a, b),
            Basic::Clamp => min(max(a, b), args[2]),
            Basic::And => ir.and(a, b),
            Basic::Or => ir.or(a, b),
            Basic::Xor => ir.xor(a, b),
            Basic::Not => ir.not(a),
            Basic::Shl | Basic::Shr => {
                let inside = ir.icmp(IntCmp::LLVMIntULT, b, c(width));
                if f == Basic::Shl {
                    self.pick(inside, ir.shl(a, b), c(0))
                } else if signed {
                    ir.ashr(a, self.pick(inside, b, c(width - 1)))
                } else {
                    self.pick(inside, ir.lshr(a, b), c(0))
                }
            }
            Basic::Popcount => ir.intrinsic("llvm.ctpop", &[ty], &[a]),
            // Of zero they are the width.
            Basic::Clz => ir.intrinsic("llvm.ctlz", &[ty], &[a, ir.bool(false)]),
            Basic::Ctz => ir.intrinsic("llvm.cttz", &[ty], &[a, ir.bool(false)]),
            Basic::Brev => ir.intrinsic("llvm.bitreverse", &[ty], &[a]),
            Basic::MulHi => self.mul_hi(a, b, width as u32, signed),
            Basic::FunnelShift => ir.intrinsic("llvm.fshl", &[ty], &[a, b, args[2]]),
            Basic::Eq => ir.icmp(IntCmp::LLVMIntEQ, a, b),
            Basic::Ne => ir.icmp(IntCmp::LLVMIntNE, a, b),
            Basic::Lt => cmp(IntCmp::LLVMIntSLT, IntCmp::LLVMIntULT),
            Basic::Le => cmp(IntCmp::LLVMIntSLE, IntCmp::LLVMIntULE),
            Basic::Gt => cmp(IntCmp::LLVMIntSGT, IntCmp::LLVMIntUGT),
            Basic::Ge => cmp(IntCmp::LLVMIntSGE, IntCmp::LLVMIntUGE),
            // Of floats only; `accepts` has said no.
            Basic::Div | Basic::Sqrt | Basic::Recip => a,
            Basic::Floor => a,
            Basic::Ceil | Basic::Round | Basic::Trunc => a,
            Basic::IsNan | Basic::IsInf | Basic::IsFinite => a,
        }
    }

    pub(super) fn apply_bool(&self, f: Basic, args: &[Val]) -> Val {
        let ir = self.ir;
        let (a, b) = (args[0], args[args.len() - 1]);
        match f {
            Basic::And => ir.and(a, b),
            Basic::Or => ir.or(a, b),
            Basic::Xor | Basic::Ne => ir.xor(a, b),
            Basic::Not => ir.not(a),
            Basic::Eq => ir.not(ir.xor(a, b)),
            Basic::Lt => ir.and(ir.not(a), b),
            Basic::Le => ir.or(ir.not(a), b),
            Basic::Gt => ir.and(a, ir.not(b)),
            Basic::Ge => ir.or(a, ir.not(b)),
            // `accepts` has said no to everything else.
            Basic::Add | Basic::Sub | Basic::Mul | Basic::Div | Basic::FloorDiv | Basic::Mod => a,
            Basic::Neg | Basic::Abs | Basic::Fma | Basic::Sqrt | Basic::Recip => a,
            Basic::Floor | Basic::Ceil | Basic::Round | Basic::Trunc | Basic::Sign => a,
            Basic::Maximum | Basic::Minimum | Basic::Clamp | Basic::Shl | Basic::Shr => a,
            Basic::Popcount
            | Basic::Clz
            | Basic::Ctz
            | Basic::Brev
            | Basic::MulHi
            | Basic::FunnelShift => a,
            Basic::IsNan | Basic::IsInf | Basic::IsFinite => a,
        }
    }

    /// The high half of a product, in twice the width.
    fn mul_hi(&self, a: Val, b: Val, width: u32, signed: bool) -> Val {
        let ir = self.ir;
        let ty = ir.ty(a);
        let wide = ir.vec(ir.int(2 * width), ir.lanes(ty));
        let extend = |v| if signed { ir.sext(v, wide) } else { ir.zext(v, wide) };
        let product = ir.mul(extend(a), extend(b));
        ir.trunc(ir.lshr(product, ir.const_int(wide, i64::from(width))), ty)
    }

    /// A selection, made here where the condition is known.
    fn pick(&self, cond: Val, yes: Val, no: Val) -> Val {
        match self.known(cond) {
            Some(0) => no,
            Some(_) => yes,
            None => self.ir.select(cond, yes, no),
        }
    }

    /// The value that all lanes of an integer are known to have.
    pub(super) fn known(&self, v: Val) -> Option<i64> {
        if !self.ir.is_const(v) {
            return None;
        }
        let first = self.ir.as_int(self.ir.extract(v, 0))?;
        let same = |lane| self.ir.as_int(self.ir.extract(v, lane)) == Some(first);
        (1..self.lanes(v)).all(same).then_some(first)
    }

    /// Rounded down; by zero gives 0.
    fn floor_div(&self, a: Val, b: Val, signed: bool) -> Val {
        let ir = self.ir;
        let zero = ir.zero(ir.ty(a));
        if let Some(power) = self.known(b).filter(|&b| b > 0 && b & (b - 1) == 0) {
            let count = ir.const_int(ir.ty(a), power.trailing_zeros().into());
            return if signed { ir.ashr(a, count) } else { ir.lshr(a, count) };
        }
        let by_zero = ir.icmp(IntCmp::LLVMIntEQ, b, zero);
        self.pick(by_zero, zero, self.quotient(a, b, signed, by_zero))
    }

    /// With the sign of the divisor; by zero gives 0.
    fn modulo(&self, a: Val, b: Val, signed: bool) -> Val {
        let ir = self.ir;
        let zero = ir.zero(ir.ty(a));
        if let Some(power) = self.known(b).filter(|&b| b > 0 && b & (b - 1) == 0) {
            return ir.and(a, ir.const_int(ir.ty(a), power - 1));
        }
        let by_zero = ir.icmp(IntCmp::LLVMIntEQ, b, zero);
        let quotient = self.quotient(a, b, signed, by_zero);
        self.pick(by_zero, zero, ir.sub(a, ir.mul(quotient, b)))
    }

    /// The quotient rounded down, anything where the divisor is zero. The least number divided by
    /// -1 is itself.
    fn quotient(&self, a: Val, b: Val, signed: bool, by_zero: Val) -> Val {
        let ir = self.ir;
        let ty = ir.ty(a);
        let narrow = ir.bits(ty) == 32;
        if narrow && self.lanes(a) > 1 && !ir.is_const(b) {
            return self.quotient_by_doubles(a, b, signed);
        }
        let one = ir.const_int(ty, 1);
        if let Some(by) = self.each_known(b) {
            return self.quotient_by_constants(a, &by, signed);
        }
        if !signed {
            return ir.udiv(a, self.pick(by_zero, one, b));
        }
        // What would trap is divided by 1, which is right for the least number and -1.
        let least = ir.const_int(ty, if narrow { i32::MIN.into() } else { i64::MIN });
        let by_minus_one = ir.icmp(IntCmp::LLVMIntEQ, b, ir.const_int(ty, -1));
        let trap = match self.known(by_minus_one) {
            Some(0) => by_zero,
            _ => ir.or(ir.and(by_minus_one, ir.icmp(IntCmp::LLVMIntEQ, a, least)), by_zero),
        };
        self.rounded_down(a, self.pick(trap, one, b))
    }

    /// The value of each lane of a constant integer.
    fn each_known(&self, v: Val) -> Option<Vec<i64>> {
        let known = |lane| self.ir.as_int(self.ir.extract(v, lane));
        if self.ir.is_const(v) { (0..self.lanes(v)).map(known).collect() } else { None }
    }

    /// LLVM takes a division for undefined in all lanes where a constant divisor is zero in one, also
    /// where a selection has taken that lane out: no constant that it sees may hold a zero. Nor does it
    /// hold -1 here, so that nothing can trap; by -1 the quotient is the number's negative.
    fn quotient_by_constants(&self, a: Val, by: &[i64], signed: bool) -> Val {
        let ir = self.ir;
        let ty = ir.ty(a);
        let each =
            |f: &dyn Fn(i64) -> Val| ir.const_vec(&by.iter().map(|&v| f(v)).collect::<Vec<_>>());
        let plain = |v: i64| v != 0 && !(signed && v == -1);
        let divisor = each(&|v| ir.const_int(ir.elem(ty), if plain(v) { v } else { 1 }));
        if !signed {
            return ir.udiv(a, divisor);
        }
        let quotient = self.rounded_down(a, divisor);
        let negated = each(&|v| ir.bool(v == -1));
        self.pick(negated, ir.sub(ir.zero(ty), a), quotient)
    }

    /// The signed quotient rounded down, by a divisor that cannot trap.
    fn rounded_down(&self, a: Val, divisor: Val) -> Val {
        let (ir, ty) = (self.ir, self.ir.ty(a));
        let quotient = ir.sdiv(a, divisor);
        let rest = ir.sub(a, ir.mul(quotient, divisor));
        // One less where something is left and its sign is not the divisor's.
        let zero = ir.zero(ty);
        let left = ir.icmp(IntCmp::LLVMIntNE, rest, zero);
        let apart = ir.icmp(IntCmp::LLVMIntSLT, ir.xor(rest, divisor), zero);
        ir.add(quotient, ir.sext(ir.and(left, apart), ty))
    }

    /// Processors divide vectors of doubles, not of integers. The quotient of two numbers of 32
    /// bits is nowhere so near a whole number that rounding it to 53 bits could reach one.
    fn quotient_by_doubles(&self, a: Val, b: Val, signed: bool) -> Val {
        let ir = self.ir;
        let real = ir.like(ir.ty(a), ir.f64());
        let double = |v| if signed { ir.si_to_fp(v, real) } else { ir.ui_to_fp(v, real) };
        let quotient = self.whole(ir.fdiv(double(a), double(b)), Whole::Floor);
        self.low_bits(quotient, ir.ty(a))
    }

    /// The low bits of a whole number below 2^51 in magnitude, in two's complement; 2^31 wraps.
    pub(super) fn low_bits(&self, whole: Val, to: crate::llvm::Ty) -> Val {
        let ir = self.ir;
        let real = ir.ty(whole);
        // Added to this, the number is in the low bits of the sum.
        let base = ir.const_float(real, 3.0 * 2f64.powi(51));
        let bits = ir.bitcast(ir.fadd(whole, base), ir.like(real, ir.i64()));
        if ir.bits(to) == 64 { bits } else { ir.trunc(bits, to) }
    }
}
