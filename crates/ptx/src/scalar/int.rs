//! Functions of integers and bools.

use super::divide::{floor_div, modulo};
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Cmp, Ty};
use tessera_numerics::{DType, ScalarFn};

impl Emit {
    pub(super) fn apply_int<'e>(&'e self, f: ScalarFn, dtype: DType, args: &[Val<'e>]) -> Val<'e> {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let signed = dtype.is_signed_int();
        match f {
            ScalarFn::Add => a + b,
            ScalarFn::Sub => a - b,
            ScalarFn::Mul => a * b,
            ScalarFn::FloorDiv => floor_div(a, b, signed),
            ScalarFn::Mod => modulo(a, b, signed),
            ScalarFn::Neg => -a,
            ScalarFn::Abs if signed => a.abs(),
            ScalarFn::Abs => a,
            ScalarFn::Fma => a.fma(b, args[2]),
            ScalarFn::Sign if signed => a.max(-1).min(1),
            ScalarFn::Sign => a.min(1),
            ScalarFn::Maximum => a.max(b),
            ScalarFn::Minimum => a.min(b),
            ScalarFn::Clamp => a.max(b).min(args[2]),
            ScalarFn::And => a.and(b),
            ScalarFn::Or => a.or(b),
            ScalarFn::Xor => a.xor(b),
            ScalarFn::Not => a.not(),
            ScalarFn::Shl => shift(a, b, true),
            ScalarFn::Shr => shift(a, b, false),
            ScalarFn::Eq => a.eq(b),
            ScalarFn::Ne => a.ne(b),
            ScalarFn::Lt => a.lt(b),
            ScalarFn::Le => a.cmp(Cmp::Le, b),
            ScalarFn::Gt => a.gt(b),
            ScalarFn::Ge => a.cmp(Cmp::Ge, b),
            // Of floats only; `accepts` has said no.
            ScalarFn::Div | ScalarFn::Sqrt | ScalarFn::Rsqrt | ScalarFn::Recip => a,
            ScalarFn::Exp | ScalarFn::Exp2 | ScalarFn::Log | ScalarFn::Log2 => a,
            ScalarFn::Log1p | ScalarFn::Expm1 | ScalarFn::Sin | ScalarFn::Cos => a,
            ScalarFn::Tan | ScalarFn::Asin | ScalarFn::Acos | ScalarFn::Atan => a,
            ScalarFn::Atan2 | ScalarFn::Sinh | ScalarFn::Cosh | ScalarFn::Tanh => a,
            ScalarFn::Sigmoid | ScalarFn::Erf | ScalarFn::Pow | ScalarFn::Floor => a,
            ScalarFn::Ceil | ScalarFn::Round | ScalarFn::Trunc => a,
            ScalarFn::IsNan | ScalarFn::IsInf | ScalarFn::IsFinite => a,
        }
    }

    pub(super) fn apply_bool<'e>(&'e self, f: ScalarFn, args: &[Val<'e>]) -> Val<'e> {
        let (a, b) = (args[0], args[args.len() - 1]);
        match f {
            ScalarFn::And => a.and(b),
            ScalarFn::Or => a.or(b),
            ScalarFn::Xor | ScalarFn::Ne => a.xor(b),
            ScalarFn::Not => a.not(),
            ScalarFn::Eq => a.xor(b).not(),
            ScalarFn::Lt => a.not().and(b),
            ScalarFn::Le => a.not().or(b),
            ScalarFn::Gt => a.and(b.not()),
            ScalarFn::Ge => a.or(b.not()),
            // `accepts` has said no to everything else.
            _ => a,
        }
    }
}

/// A shift by any count. The instruction takes a 32-bit count; from the width on it shifts
/// everything out, or leaves the sign, and a negative count is large. Only constants must be in
/// range.
fn shift<'e>(a: Val<'e>, b: Val<'e>, left: bool) -> Val<'e> {
    let width = i64::from(b.ty().bits());
    let by = |count: Val<'e>| if left { a.shl(count) } else { a.shr(count) };
    let word = |n: i64| a.emitter().int(Ty::U32, n);
    match b.known() {
        Some(n) if (0..width).contains(&n) => by(word(n)),
        Some(_) if !left && a.ty().is_signed() => by(word(width - 1)),
        Some(_) => a.c(0),
        None if width == 64 => by(b.of(Ty::U64).min(64).cvt(Ty::U32, None)),
        None => by(b.of(Ty::U32)),
    }
}
