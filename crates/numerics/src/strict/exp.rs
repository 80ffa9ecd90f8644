//! The exponentials: `e^x = 2^n e^r` with `|r| <= ln 2 / 2`, and `e^r = 1 + r + s`.
//!
//! `r` is a pair and `1 + r` is summed exactly, so that only the rounding of the small `s` and the
//! last one are left.

use super::pair::Pair;
use super::real::{Int, Real, horner, pow2};

/// e^r = 1 + r + r²/2 + r³ g(r); weighted error 2^-33.2 on [-0.3467, 0.3467] (tools/fit.py EXP).
const EXP: [f32; 5] = [0.16666667, 0.041666463, 0.008333204, 0.0013935089, 0.00019947617];

/// ln 2 as two parts, the first of 14 bits so that its product with an exponent is exact.
pub const LN2_SHORT: f32 = f32::from_bits(0x3f317400);
pub const LN2_REST: f32 = f32::from_bits(0xb7f40417);
pub const LOG2_E: f32 = f32::from_bits(0x3fb8aa3b);

/// Adding this brings a number below 2^22 to a whole one, ties to even, in the low bits.
pub const WHOLE: f32 = 12_582_912.0;

/// `2^n (1 + r + s)`, where `|r| <= 0.35`.
pub struct Scaled<T: Real> {
    pub n: T::Int,
    /// `n` as a float.
    pub whole: T,
    pub r: T,
    pub s: T,
}

/// The nearest whole number to `x`, `|x| < 2^22`, as a float and as an integer.
#[inline(always)]
pub fn nearest<T: Real>(x: T) -> (T, T::Int) {
    let shifted = x + T::c(WHOLE);
    (shifted - T::c(WHOLE), shifted.bits().sub(T::Int::c(WHOLE.to_bits() as i32)))
}

/// `e^(r + lo) - 1 - r`, and `(e^r - 1 - r) / r` on the way.
#[inline(always)]
fn tail<T: Real>(r: T, lo: T) -> (T, T) {
    let w = (r * r).fma(horner(r, &EXP), r * T::c(0.5));
    (r.fma(w, lo.fma(r, lo)), w)
}

/// `e^(x + lo)` for `|x| <= 150` and `lo` below half a unit of `x`.
#[inline(always)]
pub fn scaled_exp<T: Real>(x: T, lo: T) -> Scaled<T> {
    let (whole, n) = nearest(x * T::c(LOG2_E));
    let top = (-whole).fma(T::c(LN2_SHORT), x);
    let low = Pair::product(whole, T::c(LN2_REST));
    let r = Pair::sum(top, -low.hi).plus_low(lo - low.lo);
    Scaled { n, whole, r: r.hi, s: tail(r.hi, r.lo).0 }
}

/// `2^(x + lo)` for `|x| <= 1000` and `|lo| <= 2^-14`.
#[inline(always)]
pub fn scaled_exp2<T: Real>(x: T, lo: T) -> Scaled<T> {
    let (whole, n) = nearest(x);
    let ln2 = Pair::c(0x3f317218, 0xb102e308);
    let product = Pair { hi: x - whole, lo }.times(ln2);
    let r = Pair::sum(product.hi, product.lo);
    Scaled { n, whole, r: r.hi, s: tail(r.hi, r.lo).0 }
}

impl<T: Real> Scaled<T> {
    /// `1 + r + s` as a sum of two, the second not yet small beside the first.
    #[inline(always)]
    pub fn significand(&self) -> Pair<T> {
        Pair::ordered_sum(T::c(1.0), self.r).plus_low(self.s)
    }

    #[inline(always)]
    pub fn value(&self) -> T {
        scale(self.significand().value(), self.n)
    }
}

/// `y 2^n` for -252 <= n <= 254, in two steps so that each factor is a normal number. The first is
/// exact for `y` near 1, so there is one rounding.
#[inline(always)]
pub fn scale<T: Real>(y: T, n: T::Int) -> T {
    let half = n.shr(1);
    y * pow2::<T>(half) * pow2::<T>(n.sub(half))
}

#[inline(always)]
pub fn clamp<T: Real>(x: T, lo: f32, hi: f32) -> T {
    let x = T::pick(x.lt(T::c(lo)), T::c(lo), x);
    T::pick(T::c(hi).lt(x), T::c(hi), x)
}

/// Below the lower bound results are zero, above the upper one infinite; NaN passes the clamp.
#[inline(always)]
pub fn exp<T: Real>(x: T) -> T {
    scaled_exp(clamp(x, -104.0, 89.0), T::c(0.0)).value()
}

#[inline(always)]
pub fn exp2<T: Real>(x: T) -> T {
    scaled_exp2(clamp(x, -151.0, 129.0), T::c(0.0)).value()
}

/// `2^n (1 + r + s) - 1`, computed at half size so that `n = 128` does not overflow too soon.
#[inline(always)]
pub fn expm1<T: Real>(x: T) -> T {
    let e = scaled_exp(clamp(x, -26.0, 89.0), T::c(0.0));
    let c = pow2::<T>(e.n.sub(T::Int::c(1)));
    let less = Pair::sum(c, T::c(-0.5));
    let sum = Pair::sum(less.hi, c * e.r).plus_low(less.lo);
    let far = (sum.hi + e.s.fma(c, sum.lo)) * T::c(2.0);
    // Where n = 0 the reduced argument is x itself and one fma ends the sum.
    let near = x.fma(tail(x, T::c(0.0)).1, x);
    let y = T::pick(e.whole.eq(T::c(0.0)), near, far);
    T::pick(x.abs().lt(T::c(TINY)), x, y)
}

/// Below this, functions with `f(x) = x (1 + O(x))` are `x`, which also keeps -0 and subnormals.
pub const TINY: f32 = f32::from_bits((127 - 30) << 23);
