//! Sums and products whose rounding error is kept: the unevaluated pair `hi + lo`.

use super::real::Real;

/// `hi + lo`, where `lo` is at most about half a unit in the last place of `hi`.
#[derive(Copy, Clone)]
pub struct Pair<T> {
    pub hi: T,
    pub lo: T,
}

impl<T: Real> Pair<T> {
    #[inline(always)]
    pub fn c(hi: u32, lo: u32) -> Self {
        Pair { hi: T::c(f32::from_bits(hi)), lo: T::c(f32::from_bits(lo)) }
    }

    /// `a + b`, exactly.
    #[inline(always)]
    pub fn sum(a: T, b: T) -> Self {
        let hi = a + b;
        let b_part = hi - a;
        Pair { hi, lo: (a - (hi - b_part)) + (b - b_part) }
    }

    /// `a + b`, exactly, if `a` is zero or not smaller than `b` in magnitude.
    #[inline(always)]
    pub fn ordered_sum(a: T, b: T) -> Self {
        let hi = a + b;
        Pair { hi, lo: b - (hi - a) }
    }

    /// `a * b`, exactly unless it underflows.
    #[inline(always)]
    pub fn product(a: T, b: T) -> Self {
        let hi = a * b;
        Pair { hi, lo: a.fma(b, -hi) }
    }

    /// The same with `x` added to the low part.
    #[inline(always)]
    pub fn plus_low(self, x: T) -> Self {
        Pair { hi: self.hi, lo: self.lo + x }
    }

    /// The same value with as much of it as can be in `hi`.
    #[inline(always)]
    pub fn normal(self) -> Self {
        Pair::ordered_sum(self.hi, self.lo)
    }

    #[inline(always)]
    pub fn scale(self, by: T) -> Self {
        Pair { hi: self.hi * by, lo: self.lo * by }
    }

    /// The product to nearly twice the precision.
    #[inline(always)]
    pub fn times(self, b: Self) -> Self {
        let p = Pair::product(self.hi, b.hi);
        p.plus_low(self.hi.fma(b.lo, self.lo * b.hi))
    }

    /// The quotient, rounded once but for the error of the correction.
    #[inline(always)]
    pub fn over(self, d: Self) -> Self {
        let q = self.hi / d.hi;
        let rest = (-q).fma(d.hi, self.hi) + (-q).fma(d.lo, self.lo);
        Pair { hi: q, lo: rest / d.hi }
    }

    #[inline(always)]
    pub fn pick(cond: T::Cond, then: Self, other: Self) -> Self {
        Pair { hi: T::pick(cond, then.hi, other.hi), lo: T::pick(cond, then.lo, other.lo) }
    }

    #[inline(always)]
    pub fn value(self) -> T {
        self.hi + self.lo
    }
}
