//! Double-word arithmetic: sums and products with their rounding error, as an unevaluated pair
//! `hi + lo`.

use super::val::Val;

/// `hi + lo`, where `lo` is at most about half a unit in the last place of `hi`.
#[derive(Copy, Clone)]
pub(super) struct Pair<'e> {
    pub hi: Val<'e>,
    pub lo: Val<'e>,
}

impl<'e> Pair<'e> {
    /// A constant of the type of `like`, by two numbers.
    pub fn c(like: Val<'e>, [hi, lo]: [f64; 2]) -> Self {
        Pair { hi: like.c(hi), lo: like.c(lo) }
    }

    /// `a + b`, exactly.
    pub fn sum(a: Val<'e>, b: Val<'e>) -> Self {
        let hi = a + b;
        let part = hi - a;
        Pair { hi, lo: (a - (hi - part)) + (b - part) }
    }

    /// `a + b`, exactly, if `a` is zero or not smaller than `b` in magnitude.
    pub fn ordered_sum(a: Val<'e>, b: Val<'e>) -> Self {
        let hi = a + b;
        Pair { hi, lo: b - (hi - a) }
    }

    /// `a * b`, exactly unless it underflows.
    pub fn product(a: Val<'e>, b: Val<'e>) -> Self {
        let hi = a * b;
        Pair { hi, lo: a.fma(b, -hi) }
    }

    /// The same with `x` added to the low part.
    pub fn plus_low(self, x: Val<'e>) -> Self {
        Pair { hi: self.hi, lo: self.lo + x }
    }

    /// The same value with as much of it as possible in `hi`.
    pub fn normal(self) -> Self {
        Pair::ordered_sum(self.hi, self.lo)
    }

    /// The product to nearly twice the precision.
    pub fn times(self, b: Self) -> Self {
        let p = Pair::product(self.hi, b.hi);
        p.plus_low(self.hi.fma(b.lo, self.lo * b.hi))
    }

    /// The quotient, rounded once but for the error of the correction.
    pub fn over(self, d: Self) -> Self {
        let q = self.hi / d.hi;
        let rest = (-q).fma(d.hi, self.hi) + (-q).fma(d.lo, self.lo);
        Pair { hi: q, lo: rest / d.hi }
    }

    pub fn pick(cond: Val<'e>, yes: Self, no: Self) -> Self {
        Pair { hi: cond.pick(yes.hi, no.hi), lo: cond.pick(yes.lo, no.lo) }
    }

    pub fn negated(self) -> Self {
        Pair { hi: -self.hi, lo: -self.lo }
    }

    pub fn value(self) -> Val<'e> {
        self.hi + self.lo
    }
}
