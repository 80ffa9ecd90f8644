//! Functions of f32 and f64.

use super::Scalars;
use crate::isa::Isa;
use crate::llvm::{RealCmp, Val};
use tessera_numerics::{DType, ScalarFn, expansion};

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
        let ir = self.ir;
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let ty = ir.ty(a);
        let c = |v: f64| ir.const_float(ty, v);
        if dtype == DType::F32
            && let Some(e) = expansion(f)
        {
            return self.expand(f, e, args);
        }
        match f {
            ScalarFn::Add => ir.fadd(a, b),
            ScalarFn::Sub => ir.fsub(a, b),
            ScalarFn::Mul => ir.fmul(a, b),
            ScalarFn::Div => ir.fdiv(a, b),
            ScalarFn::Neg => ir.fneg(a),
            ScalarFn::Abs => ir.fabs(a),
            ScalarFn::Fma => ir.fma(a, b, args[2]),
            ScalarFn::Sqrt => ir.sqrt(a),
            ScalarFn::Recip => ir.fdiv(c(1.0), a),
            // In f32 this is an expansion.
            ScalarFn::Rsqrt => ir.fdiv(c(1.0), ir.sqrt(a)),
            ScalarFn::Floor => self.whole(a, Whole::Floor),
            ScalarFn::Ceil => self.whole(a, Whole::Ceil),
            ScalarFn::Round => self.whole(a, Whole::Nearest),
            ScalarFn::Trunc => self.whole(a, Whole::Trunc),
            ScalarFn::Sign => {
                let negative = ir.fcmp(RealCmp::LLVMRealOLT, a, c(0.0));
                let rest = ir.select(negative, c(-1.0), a);
                ir.select(ir.fcmp(RealCmp::LLVMRealOGT, a, c(0.0)), c(1.0), rest)
            }
            ScalarFn::Maximum => self.extreme(a, b, true),
            ScalarFn::Minimum => self.extreme(a, b, false),
            ScalarFn::Clamp => self.extreme(self.extreme(a, b, true), args[2], false),
            ScalarFn::Eq => ir.fcmp(RealCmp::LLVMRealOEQ, a, b),
            ScalarFn::Ne => ir.fcmp(RealCmp::LLVMRealUNE, a, b),
            ScalarFn::Lt => ir.fcmp(RealCmp::LLVMRealOLT, a, b),
            ScalarFn::Le => ir.fcmp(RealCmp::LLVMRealOLE, a, b),
            ScalarFn::Gt => ir.fcmp(RealCmp::LLVMRealOGT, a, b),
            ScalarFn::Ge => ir.fcmp(RealCmp::LLVMRealOGE, a, b),
            ScalarFn::IsNan => ir.fcmp(RealCmp::LLVMRealUNO, a, a),
            ScalarFn::IsInf => ir.fcmp(RealCmp::LLVMRealOEQ, ir.fabs(a), c(f64::INFINITY)),
            ScalarFn::IsFinite => ir.fcmp(RealCmp::LLVMRealOLT, ir.fabs(a), c(f64::INFINITY)),
            // Remainders are long divisions, and these functions have no expansion in this type.
            ScalarFn::FloorDiv | ScalarFn::Mod | ScalarFn::Exp | ScalarFn::Exp2 => {
                self.apply_by_call(f, dtype, args)
            }
            ScalarFn::Log | ScalarFn::Log2 | ScalarFn::Log1p | ScalarFn::Expm1 => {
                self.apply_by_call(f, dtype, args)
            }
            ScalarFn::Sin | ScalarFn::Cos | ScalarFn::Tan | ScalarFn::Asin | ScalarFn::Acos => {
                self.apply_by_call(f, dtype, args)
            }
            ScalarFn::Atan | ScalarFn::Atan2 | ScalarFn::Sinh | ScalarFn::Cosh => {
                self.apply_by_call(f, dtype, args)
            }
            ScalarFn::Tanh | ScalarFn::Sigmoid | ScalarFn::Erf | ScalarFn::Pow => {
                self.apply_by_call(f, dtype, args)
            }
            // Of integers only; `accepts` has said no.
            ScalarFn::And | ScalarFn::Or | ScalarFn::Xor | ScalarFn::Not => a,
            ScalarFn::Shl | ScalarFn::Shr => a,
        }
    }

    /// The greater or the lesser operand; NaN wins, and -0 is below +0.
    fn extreme(&self, a: Val, b: Val, greater: bool) -> Val {
        let name = if greater { "llvm.maximum" } else { "llvm.minimum" };
        self.ir.intrinsic(name, &[self.ir.ty(a)], &[a, b])
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
