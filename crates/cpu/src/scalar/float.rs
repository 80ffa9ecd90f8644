//! Functions of f32 and f64.

#![deny(clippy::wildcard_enum_match_arm)]

use super::Scalars;
use crate::isa::Isa;
use crate::llvm::{RealCmp, Val};
use tessera_numerics::{Basic, DType, FnKind, Real, ScalarFn, expansion, quick_expansion};

/// To a whole number: which one.
#[derive(Copy, Clone, PartialEq)]
pub(super) enum Whole {
    Floor,
    Ceil,
    Trunc,
    Nearest,
}

impl Scalars<'_> {
    pub(super) fn apply_float(&self, f: ScalarFn, dtype: DType, args: &[Val]) -> Val {
        if dtype == DType::F32
            && self.quick
            && let Some(e) = quick_expansion(f)
        {
            return self.expand_quick(e, args);
        }
        if f == ScalarFn::Exp {
            return self.exp(dtype, args[0]);
        }
        self.apply_exactly(f, dtype, args)
    }

    /// `e^x`. Where it is zero for certain, as in what a mask leaves out, nothing is computed from `x`:
    /// numbers on the way would be denormal, which processors are slow at.
    fn exp(&self, dtype: DType, x: Val) -> Val {
        let (ir, ty) = (self.ir, self.ir.ty(x));
        // Below these e^x is less than half of the least number.
        let least = if dtype == DType::F32 { -104.0 } else { -746.0 };
        let none = ir.fcmp(RealCmp::LLVMRealOLT, x, ir.const_float(ty, least));
        let some = ir.select(none, ir.zero(ty), x);
        let y = self.apply_exactly(ScalarFn::Exp, dtype, &[some]);
        ir.select(none, ir.zero(ty), y)
    }

    /// With the bits of the function's definition.
    fn apply_exactly(&self, function: ScalarFn, dtype: DType, args: &[Val]) -> Val {
        let ir = self.ir;
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let ty = ir.ty(a);
        let c = |v: f64| ir.const_float(ty, v);
        if dtype == DType::F32
            && let Some(e) = expansion(function)
        {
            return self.expand(function, e, args);
        }
        let f = match function.kind() {
            FnKind::Basic(f) => f,
            // In f32 this is an expansion.
            FnKind::Real(Real::Rsqrt) => return ir.fdiv(c(1.0), ir.sqrt(a)),
            // No expansion in this type.
            FnKind::Real(_) => return self.apply_by_call(function, dtype, args),
        };
        match f {
            Basic::Add => ir.fadd(a, b),
            Basic::Sub => ir.fsub(a, b),
            Basic::Mul => ir.fmul(a, b),
            Basic::Div => ir.fdiv(a, b),
            Basic::Neg => ir.fneg(a),
            Basic::Abs => ir.fabs(a),
            Basic::Fma => ir.fma(a, b, args[2]),
            Basic::Sqrt => ir.sqrt(a),
            Basic::Recip => ir.fdiv(c(1.0), a),
            Basic::Floor => self.whole(a, Whole::Floor),
            Basic::Ceil => self.whole(a, Whole::Ceil),
            Basic::Round => self.whole(a, Whole::Nearest),
            Basic::Trunc => self.whole(a, Whole::Trunc),
            Basic::Sign => {
                let negative = ir.fcmp(RealCmp::LLVMRealOLT, a, c(0.0));
                let rest = ir.select(negative, c(-1.0), a);
                ir.select(ir.fcmp(RealCmp::LLVMRealOGT, a, c(0.0)), c(1.0), rest)
            }
            Basic::Maximum => self.extreme(a, b, true),
            Basic::Minimum => self.extreme(a, b, false),
            Basic::Clamp => self.extreme(self.extreme(a, b, true), args[2], false),
            Basic::Eq => ir.fcmp(RealCmp::LLVMRealOEQ, a, b),
            Basic::Ne => ir.fcmp(RealCmp::LLVMRealUNE, a, b),
            Basic::Lt => ir.fcmp(RealCmp::LLVMRealOLT, a, b),
            Basic::Le => ir.fcmp(RealCmp::LLVMRealOLE, a, b),
            Basic::Gt => ir.fcmp(RealCmp::LLVMRealOGT, a, b),
            Basic::Ge => ir.fcmp(RealCmp::LLVMRealOGE, a, b),
            Basic::IsNan => ir.fcmp(RealCmp::LLVMRealUNO, a, a),
            Basic::IsInf => ir.fcmp(RealCmp::LLVMRealOEQ, ir.fabs(a), c(f64::INFINITY)),
            Basic::IsFinite => ir.fcmp(RealCmp::LLVMRealOLT, ir.fabs(a), c(f64::INFINITY)),
            // Remainders are long divisions.
            Basic::FloorDiv | Basic::Mod => self.apply_by_call(function, dtype, args),
            // Of integers only; `accepts` has said no.
            Basic::And | Basic::Or | Basic::Xor | Basic::Not => a,
            Basic::Shl | Basic::Shr => a,
            Basic::Popcount
            | Basic::Clz
            | Basic::Ctz
            | Basic::Brev
            | Basic::MulHi
            | Basic::FunnelShift => a,
        }
    }

    /// The greater or the lesser operand; NaN wins, and -0 is below +0.
    fn extreme(&self, a: Val, b: Val, greater: bool) -> Val {
        if let Some(value) = self.known_float(b) {
            return self.extreme_const(a, b, value, greater);
        }
        if let Some(value) = self.known_float(a) {
            return self.extreme_const(b, a, value, greater);
        }
        let ir = self.ir;
        let ty = ir.ty(a);
        let unordered = ir.fcmp(RealCmp::LLVMRealUNO, a, b);
        if let Some(y) = self.range(a, b, greater) {
            return ir.select(unordered, ir.fadd(a, b), y);
        }
        // Each order of the operands gives the second one of two zeros, so both together know both
        // signs.
        let bits = ir.like(ty, ir.int(if ir.elem(ty) == ir.f64() { 64 } else { 32 }));
        let [x, y] = [(a, b), (b, a)].map(|(a, b)| ir.bitcast(self.first_if(a, b, greater), bits));
        let joined = if greater { ir.and(x, y) } else { ir.or(x, y) };
        // All bits set are a NaN too.
        ir.select(unordered, ir.const_bits(ty, u64::MAX), ir.bitcast(joined, ty))
    }

    /// `a` if it is beyond `b`, else `b`: one instruction of every processor.
    fn first_if(&self, a: Val, b: Val, greater: bool) -> Val {
        let how = if greater { RealCmp::LLVMRealOGT } else { RealCmp::LLVMRealOLT };
        self.ir.select(self.ir.fcmp(how, a, b), a, b)
    }

    /// The same with a constant, where NaN of `x` and mostly its zeros come out right by
    /// themselves.
    fn extreme_const(&self, x: Val, c: Val, value: f64, greater: bool) -> Val {
        let ir = self.ir;
        if value.is_nan() {
            return c;
        }
        let y = self.first_if(c, x, greater);
        let zero = ir.const_float(ir.ty(x), 0.0);
        match (value == 0.0, value.is_sign_negative(), greater) {
            // -0 with +0 is +0, and +0 with -0 is -0. No sum, which might flush a subnormal number.
            (true, false, true) | (true, true, false) => {
                ir.select(ir.fcmp(RealCmp::LLVMRealOEQ, x, zero), c, y)
            }
            _ => y,
        }
    }

    /// The value that all lanes of a float are known to have.
    fn known_float(&self, v: Val) -> Option<f64> {
        let ir = self.ir;
        if !ir.is_const(v) {
            return None;
        }
        let ty = ir.ty(v);
        let double = ir.elem(ty) == ir.f64();
        let bits = self.known(ir.bitcast(v, ir.like(ty, ir.int(if double { 64 } else { 32 }))))?;
        Some(if double { f64::from_bits(bits as u64) } else { f32::from_bits(bits as u32).into() })
    }

    /// The greater or lesser by AVX-512's own instruction, which knows the signs of zeros but
    /// prefers a number to a NaN. `None` where there is no such instruction.
    fn range(&self, a: Val, b: Val, greater: bool) -> Option<Val> {
        let ir = self.ir;
        let (ty, lanes) = (ir.ty(a), self.lanes(a));
        let (name, width) = if ir.elem(ty) == ir.f64() { ("pd", 64) } else { ("ps", 32) };
        if self.isa < Isa::Avx512 || lanes == 1 || !lanes.is_power_of_two() {
            return None;
        }
        let most = 512 / width;
        if lanes > most {
            let half =
                |v: Val, from: u32| ir.shuffle(v, v, &(from..from + lanes / 2).collect::<Vec<_>>());
            let part = |from| self.range(half(a, from), half(b, from), greater);
            let (low, high) = (part(0)?, part(lanes / 2)?);
            return Some(ir.shuffle(low, high, &(0..lanes).collect::<Vec<_>>()));
        }
        if lanes * width < 128 {
            return None;
        }
        // The sign is that of the result of the comparison.
        let how = ir.c32(if greater { 5 } else { 4 });
        let every = ir.const_int(ir.int(lanes.max(8)), -1);
        let mut args = vec![a, b, how, ir.zero(ty), every];
        if lanes == most {
            // The exceptions that are in force.
            args.push(ir.c32(4));
        }
        let name = format!("llvm.x86.avx512.mask.range.{name}.{}", lanes * width);
        Some(ir.intrinsic(&name, &[], &args))
    }

    pub(super) fn whole(&self, x: Val, how: Whole) -> Val {
        let ir = self.ir;
        let ty = ir.ty(x);
        if self.isa >= Isa::Avx2 {
            let name = match how {
                Whole::Floor => "llvm.floor",
                Whole::Ceil => "llvm.ceil",
                Whole::Trunc => "llvm.trunc",
                Whole::Nearest => "llvm.roundeven",
            };
            return ir.intrinsic(name, &[ty], &[x]);
        }
        // Adding the power of two whose last bit is 1 rounds to a whole number, ties to even; then
        // one step back if that went the wrong way. Beyond that power all numbers are whole.
        let is_double = ir.elem(ty) == ir.f64();
        let whole = ir.const_float(ty, if is_double { 2f64.powi(52) } else { 2f64.powi(23) });
        let (one, zero) = (ir.const_float(ty, 1.0), ir.const_float(ty, 0.0));
        let magnitude = ir.fabs(x);
        let with_sign = |v: Val| ir.intrinsic("llvm.copysign", &[ty], &[v, x]);
        let near = ir.fsub(ir.fadd(magnitude, whole), whole);
        let step = |wrong: Val| ir.select(wrong, one, zero);
        let y = match how {
            Whole::Nearest => near,
            Whole::Trunc => ir.fsub(near, step(ir.fcmp(RealCmp::LLVMRealOGT, near, magnitude))),
            Whole::Floor => {
                let near = with_sign(near);
                ir.fsub(near, step(ir.fcmp(RealCmp::LLVMRealOGT, near, x)))
            }
            Whole::Ceil => {
                let near = with_sign(near);
                ir.fadd(near, step(ir.fcmp(RealCmp::LLVMRealOLT, near, x)))
            }
        };
        ir.select(ir.fcmp(RealCmp::LLVMRealOLT, magnitude, whole), with_sign(y), x)
    }
}
