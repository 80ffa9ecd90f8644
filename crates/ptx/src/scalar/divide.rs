//! `//` and `%` of integers. The assembler does not optimise division by a constant, so
//! multiplications by the inverse are emitted here (Granlund and Montgomery, "Division by invariant
//! integers using multiplication", 1994).

use super::val::Val;
use crate::inst::{Alu, Ty};

/// Rounded down; by zero gives 0. The least number divided by -1 is itself: the hardware divides
/// magnitudes and wraps.
pub(super) fn floor_div<'e>(a: Val<'e>, b: Val<'e>, signed: bool) -> Val<'e> {
    if let Some(quotient) = by_constant(a, b, signed) {
        return quotient;
    }
    let quotient = a / b;
    let by_zero = b.eq(0);
    if !signed {
        return by_zero.pick_of(a, 0, quotient);
    }
    // One less where the remainder is not zero and its sign is not the divisor's.
    let rest = a - quotient * b;
    let apart = rest.xor(b).lt(0).and(rest.ne(0));
    by_zero.pick_of(a, 0, apart.pick(quotient - 1, quotient))
}

/// With the sign of the divisor; by zero gives 0.
pub(super) fn modulo<'e>(a: Val<'e>, b: Val<'e>, signed: bool) -> Val<'e> {
    if let Some(d) = divisor(b, signed).filter(|d| d.is_power_of_two()) {
        return a.and((d - 1) as i64);
    }
    if let Some(quotient) = by_constant(a, b, signed) {
        return a - quotient * b;
    }
    let rest = a.op2(Alu::Rem, b);
    let by_zero = b.eq(0);
    if !signed {
        return by_zero.pick_of(a, 0, rest);
    }
    let apart = rest.xor(b).lt(0).and(rest.ne(0));
    by_zero.pick_of(a, 0, apart.pick(rest + b, rest))
}

/// A divisor that is constant and positive.
fn divisor(b: Val<'_>, signed: bool) -> Option<u64> {
    let known = b.known()?;
    let bits = b.ty().bits();
    let value = known as u64 & (u64::MAX >> (64 - bits));
    let positive = !signed || value >> (bits - 1) == 0;
    (value > 0 && positive).then_some(value)
}

/// The quotient, rounded down, by a positive constant.
fn by_constant<'e>(a: Val<'e>, b: Val<'e>, signed: bool) -> Option<Val<'e>> {
    let d = divisor(b, signed)?;
    if d.is_power_of_two() {
        return Some(a.shr(i64::from(d.trailing_zeros())));
    }
    let width = a.ty().bits();
    let unsigned = if width == 64 { Ty::U64 } else { Ty::U32 };
    // The least l with d < 2^l, as d is no power of two.
    let l = 64 - d.leading_zeros();
    if signed {
        // A negative number's complement is divided in its place. Of magnitudes below 2^(width - 1)
        // the inverse needs no more than `width` bits.
        let sign = a.shr(i64::from(width - 1));
        let magnitude = a.xor(sign).of(unsigned);
        let inverse = (1u128 << (width - 1 + l)).div_ceil(d.into());
        let product = magnitude.op2(Alu::MulHi, inverse as i64);
        return Some(product.shr(i64::from(l - 1)).of(a.ty()).xor(sign));
    }
    // The inverse has one bit more than fits; adding `a` makes up for it.
    let short = ((1u128 << width) * ((1u128 << l) - u128::from(d))) / u128::from(d) + 1;
    let product = a.op2(Alu::MulHi, short as i64);
    Some(((a - product).shr(1) + product).shr(i64::from(l - 1)))
}
