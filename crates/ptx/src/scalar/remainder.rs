//! `//` and `%` of floats. The remainder is exact: a long division of the significands, as many
//! bits at a time as fit beside the divisor's in a 64-bit word.

use super::emit::Emit;
use super::float::whole;
use super::val::Val;
use crate::inst::{Alu, Cmp, Round, Ty};

/// The constants of a format that the division needs.
struct Layout {
    bits: Ty,
    fraction: i64,
    exponent_mask: i64,
    /// Bits that one step takes.
    step: i64,
}

fn layout(ty: Ty) -> Layout {
    if ty == Ty::F64 {
        Layout { bits: Ty::U64, fraction: 52, exponent_mask: 0x7FF, step: 11 }
    } else {
        Layout { bits: Ty::U32, fraction: 23, exponent_mask: 0xFF, step: 40 }
    }
}

/// Significand, as an integer in 64 bits, and exponent field of a magnitude; that of a subnormal
/// number counts as 1.
fn parts<'e>(x: Val<'e>, l: &Layout) -> (Val<'e>, Val<'e>) {
    let bits = x.abs().of(l.bits);
    let field = bits.shr(l.fraction);
    let fraction = bits.and((1i64 << l.fraction) - 1);
    let hidden = field.ne(0).pick_of(bits, 1i64 << l.fraction, 0);
    let significand = fraction.or(hidden);
    let (significand, field) = if l.bits == Ty::U64 {
        (significand, field.cvt(Ty::U32, None))
    } else {
        (significand.cvt(Ty::U64, None), field)
    };
    (significand, field.max(1).of(Ty::S32))
}

impl Emit {
    /// The remainder of the magnitudes, with the sign of `a`; NaN where there is none.
    fn remainder<'e>(&'e self, a: Val<'e>, b: Val<'e>) -> Val<'e> {
        let l = layout(a.ty());
        let ((ma, ea), (mb, eb)) = (parts(a, &l), parts(b, &l));
        // Division by zero gives NaN, but the integer division must not trap.
        let mb = mb.max(1);
        let left = self.variable(ea - eb);
        // A smaller exponent leaves the dividend unchanged.
        let smaller = left.lt(0);
        let rest = self.variable(ma.op2(Alu::Rem, mb));
        let (again, done) = (self.label(), self.label());
        self.branch(left.cmp(Cmp::Le, 0), true, done);
        self.place(again);
        let count = left.min(l.step);
        let next = rest.shl(count.of(Ty::U32)).op2(Alu::Rem, mb);
        self.assign(rest.reg(), next);
        self.assign(left.reg(), left - count);
        self.branch(left.gt(0), true, again);
        self.place(done);
        // An integer below 2^53 with the divisor's exponent: exact, in two steps where it is
        // subnormal.
        let value = scaled(rest, eb, a.ty());
        let value = smaller.pick(a.abs(), value).with_sign(a);
        let none = b.eq(0.0).or(a.abs().cmp(Cmp::Geu, f64::INFINITY)).or(b.is_nan());
        let value = b.abs().eq(f64::INFINITY).pick(a, value);
        none.pick_of(a, f64::NAN, value)
    }

    /// Python's `%`: the remainder with the sign of the divisor, zero included.
    pub(super) fn float_modulo<'e>(&'e self, a: Val<'e>, b: Val<'e>) -> Val<'e> {
        let rest = self.remainder(a, b);
        let apart = rest.lt(0.0).xor(b.lt(0.0));
        let y = apart.pick(rest + b, rest);
        rest.eq(0.0).pick(rest.c(0.0).with_sign(b), y)
    }

    /// Python's `//`: the floor of the exact quotient, found from the exact remainder.
    pub(super) fn float_floor_div<'e>(&'e self, a: Val<'e>, b: Val<'e>) -> Val<'e> {
        let rest = self.remainder(a, b);
        let apart = rest.cmp(Cmp::Neu, 0.0).and(rest.lt(0.0).xor(b.lt(0.0)));
        let quotient = (a - rest) / b - apart.pick_of(a, 1.0, 0.0);
        let floor = whole(quotient, Round::Rmi);
        // The quotient is whole but for its rounding; step up when that took it below.
        let y = (quotient - floor).gt(0.5).pick(floor + 1.0, floor);
        let plain = a / b;
        let y = quotient.eq(0.0).pick(quotient.c(0.0).with_sign(plain), y);
        b.eq(0.0).pick(plain, y)
    }
}

/// `m 2^(e - bias - fraction bits)` for an exponent field `e` and `m` below the significands with a
/// hidden bit: exact.
fn scaled<'e>(m: Val<'e>, e: Val<'e>, ty: Ty) -> Val<'e> {
    let l = layout(ty);
    let y = m.cvt(ty, Some(Round::Rn));
    // 2^(e - bias - fraction bits) is subnormal for small e, so the product is taken in two steps,
    // the first of which makes the number as large as it may become.
    let bias = l.exponent_mask >> 1;
    let half = e.shr(1);
    let power = |n: Val<'e>, offset: i64| {
        let field = n + offset;
        let wide = if ty == Ty::F64 { field.cvt(Ty::S64, None) } else { field };
        wide.shl(l.fraction).of(ty)
    };
    // e - bias - fraction, as two fields whose powers are normal numbers.
    let first = power(half, bias - l.fraction);
    let second = power(e - half, 0);
    y * first * second
}
