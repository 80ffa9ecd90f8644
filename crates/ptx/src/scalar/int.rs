//! Functions of integers and bools.

#![deny(clippy::wildcard_enum_match_arm)]

use super::divide::{floor_div, modulo};
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Cmp, Ty};
use tessera_numerics::{Basic, DType};

impl Emit {
    pub(super) fn apply_int<'e>(&'e self, f: Basic, dtype: DType, args: &[Val<'e>]) -> Val<'e> {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        let signed = dtype.is_signed_int();
        match f {
            Basic::Add => a + b,
            Basic::Sub => a - b,
            Basic::Mul => a * b,
            Basic::FloorDiv => floor_div(a, b, signed),
            Basic::Mod => modulo(a, b, signed),
            Basic::Neg => -a,
            Basic::Abs if signed => a.abs(),
            Basic::Abs => a,
            Basic::Fma => a.fma(b, args[2]),
            Basic::Sign if signed => a.max(-1).min(1),
            Basic::Sign => a.min(1),
            Basic::Maximum => a.max(b),
            Basic::Minimum => a.min(b),
            Basic::Clamp => a.max(b).min(args[2]),
            Basic::And => a.and(b),
            Basic::Or => a.or(b),
            Basic::Xor => a.xor(b),
            Basic::Not => a.not(),
            Basic::Shl => shift(a, b, true),
            Basic::Shr => shift(a, b, false),
            Basic::Popcount => counted(a, Alu::Popc),
            Basic::Clz => counted(a, Alu::Clz),
            // The zeros below the lowest bit are those above the highest of the reverse.
            Basic::Ctz => counted(reversed(a), Alu::Clz),
            Basic::Brev => reversed(a),
            Basic::MulHi => a.op2(Alu::MulHi, b),
            Basic::FunnelShift => funnel_shift(a, b, args[2]),
            Basic::Eq => a.eq(b),
            Basic::Ne => a.ne(b),
            Basic::Lt => a.lt(b),
            Basic::Le => a.cmp(Cmp::Le, b),
            Basic::Gt => a.gt(b),
            Basic::Ge => a.cmp(Cmp::Ge, b),
            // Of floats only; `accepts` has said no.
            Basic::Div | Basic::Sqrt | Basic::Recip => a,
            Basic::Floor => a,
            Basic::Ceil | Basic::Round | Basic::Trunc => a,
            Basic::IsNan | Basic::IsInf | Basic::IsFinite => a,
        }
    }

    pub(super) fn apply_bool<'e>(&'e self, f: Basic, args: &[Val<'e>]) -> Val<'e> {
        let (a, b) = (args[0], args[args.len() - 1]);
        match f {
            Basic::And => a.and(b),
            Basic::Or => a.or(b),
            Basic::Xor | Basic::Ne => a.xor(b),
            Basic::Not => a.not(),
            Basic::Eq => a.xor(b).not(),
            Basic::Lt => a.not().and(b),
            Basic::Le => a.not().or(b),
            Basic::Gt => a.and(b.not()),
            Basic::Ge => a.or(b.not()),
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

/// A count of bits, which the instruction gives as a word, in the type of the operand.
fn counted<'e>(a: Val<'e>, op: Alu) -> Val<'e> {
    let bits = if a.ty().bits() == 64 { Ty::B64 } else { Ty::B32 };
    let count = a.of(bits).alu(op, None, false, &[]).of(Ty::U32);
    if a.ty().bits() == 64 { count.cvt(Ty::U64, None).of(a.ty()) } else { count.of(a.ty()) }
}

fn reversed(a: Val<'_>) -> Val<'_> {
    let bits = if a.ty().bits() == 64 { Ty::B64 } else { Ty::B32 };
    a.of(bits).alu(Alu::Brev, None, false, &[]).of(a.ty())
}

/// `hi << n | lo >> 1 >> (width - 1 - n)`, which is right for every count below the width.
fn funnel_shift<'e>(hi: Val<'e>, lo: Val<'e>, n: Val<'e>) -> Val<'e> {
    let (ty, width) = (hi.ty(), i64::from(hi.ty().bits()));
    let unsigned = if width == 64 { Ty::U64 } else { Ty::U32 };
    let n = n.of(unsigned).and(n.of(unsigned).c(width - 1));
    let word = |v: Val<'e>| if width == 64 { v.cvt(Ty::U32, None) } else { v };
    let rest = n.c(width - 1) - n;
    let one = hi.emitter().int(Ty::U32, 1);
    let low = lo.of(unsigned).shr(one).shr(word(rest));
    hi.of(unsigned).shl(word(n)).or(low).of(ty)
}
