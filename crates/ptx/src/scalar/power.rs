//! pow: `2^(y log2 |x|)` with the logarithm to some ten bits more than the type has, then C's special
//! cases. One formula serves f32 and f64.

use super::pair::Pair;
use super::val::Val;
use crate::inst::{Cmp, Round, Ty};

/// What differs between the types.
pub(super) struct Power {
    /// atanh s = s + s t (1/3 + t g(t)), t = s² <= 0.02945: the polynomial g.
    pub atanh: &'static [f64],
    pub third: [f64; 2],
    /// 2 / ln 2.
    pub scale: [f64; 2],
    /// About `1 / d`.
    pub inverse: fn(Val<'_>) -> Val<'_>,
    /// The exponent `k` as a float and `x / 2^k` between √½ and √2, of a positive finite number.
    pub split: for<'e> fn(Val<'e>) -> (Val<'e>, Val<'e>),
    /// 2^p of a sum, for any `p`; the low part is small beside 1.
    pub exp2: for<'e> fn(Pair<'e>) -> Val<'e>,
    /// Results of 2^p are 0 or infinite beyond this.
    pub reach: f64,
    /// From here on, every number is an even whole one.
    pub even: f64,
    pub int: Ty,
}

impl Power {
    /// `k + (2 / ln 2) atanh((m - 1) / (m + 1))`.
    fn log2<'e>(&self, x: Val<'e>) -> Pair<'e> {
        let (k, m) = (self.split)(x);
        let f = m - 1.0;
        let d = m + 1.0;
        let d_low = m - (d - 1.0);
        let inverse = (self.inverse)(d);
        let near = f * inverse;
        let rest = (-near).fma(d_low, (-near).fma(d, f));
        let s = Pair::ordered_sum(near, rest * inverse);
        let t = Pair::product(s.hi, s.hi).plus_low((s.hi + s.hi) * s.lo);
        let g = t.hi.horner(self.atanh);
        let third = Pair::c(x, self.third);
        let w = Pair::ordered_sum(third.hi, t.hi * g).plus_low(t.lo.fma(g, third.lo));
        let u = s.times(t.times(w));
        let atanh = Pair::ordered_sum(s.hi, u.hi).plus_low(s.lo + u.lo);
        let scaled = atanh.times(Pair::c(x, self.scale));
        Pair::ordered_sum(k, scaled.hi).plus_low(scaled.lo).normal()
    }

    /// |x|^y.
    fn magnitude<'e>(&self, ax: Val<'e>, y: Val<'e>) -> Val<'e> {
        let log = self.log2(ax);
        let p = Pair::product(y, log.hi);
        // Out of range, infinities included, the low part means nothing.
        let lo = p.hi.abs().lt(self.reach).pick(y.fma(log.lo, p.lo), 0.0);
        let r = (self.exp2)(Pair { hi: p.hi, lo });
        let falling = y.lt(0.0);
        let (zero, inf) = (y.c(0.0), y.c(f64::INFINITY));
        let r = ax.eq(0.0).pick(falling.pick(inf, zero), r);
        let r = ax.eq(f64::INFINITY).pick(falling.pick(zero, inf), r);
        ax.eq(1.0).pick_of(ax, 1.0, r)
    }

    pub fn pow<'e>(&self, x: Val<'e>, y: Val<'e>) -> Val<'e> {
        let ax = x.abs();
        let r = self.magnitude(ax, y);
        let small_y = y.abs().lt(self.even).pick(y, 0.0);
        let whole = small_y.cvt(self.int, Some(Round::Rzi));
        let fractional = whole.cvt(y.ty(), Some(Round::Rn)).cmp(Cmp::Neu, small_y);
        let odd = whole.and(1).ne(0).and(fractional.not());
        let negative = x.of(self.int).lt(0);
        let r = negative.and(odd).pick(-r, r);
        let no_root = x.lt(0.0).and(ax.lt(f64::INFINITY)).and(fractional);
        let r = no_root.or(x.cmp(Cmp::Nan, y)).pick_of(x, f64::NAN, r);
        y.eq(0.0).or(x.eq(1.0)).pick_of(x, 1.0, r)
    }
}
