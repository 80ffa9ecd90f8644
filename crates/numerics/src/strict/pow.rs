//! pow: `2^(y log2 |x|)` with the logarithm to 44 bits, then C's special cases.

use super::exp::{clamp, scaled_exp2};
use super::log::split_any;
use super::pair::Pair;
use super::real::{Cond, Int, Real, horner};

/// atanh s = s + s t (1/3 + t g(t)), t = s²; weighted error 2^-36.7 for t <= 0.02945 (tools/fit.py
/// ATANH).
const ATANH: [f32; 3] = [0.20000076, 0.14273547, 0.11709758];

/// log2 of a positive finite number: `k + (2 / ln 2) atanh((m - 1) / (m + 1))`.
#[inline(always)]
fn log2_pair<T: Real>(x: T) -> Pair<T> {
    let (k, m) = split_any(x);
    let one = T::c(1.0);
    let n = Pair { hi: m - one, lo: T::c(0.0) };
    let s = n.over(Pair::sum(m, one));
    let square = Pair::product(s.hi, s.hi);
    let t = square.plus_low((s.hi + s.hi) * s.lo);
    let g = horner(t.hi, &ATANH);
    let third = Pair::c(0x3eaaaaab, 0xb22aaaab);
    let w = Pair::ordered_sum(third.hi, t.hi * g).plus_low(t.lo.fma(g, third.lo));
    let u = s.times(t.times(w));
    let sum = Pair::ordered_sum(s.hi, u.hi);
    let atanh = sum.plus_low(s.lo + u.lo);
    let scaled = atanh.times(Pair::c(0x4038aa3b, 0x33257060));
    Pair::sum(k.to_real(), scaled.hi).plus_low(scaled.lo).normal()
}

/// |x|^y.
#[inline(always)]
fn magnitude<T: Real>(ax: T, y: T) -> T {
    let log = log2_pair(ax);
    let p = Pair::product(y, log.hi).plus_low(y * log.lo);
    // Out of range, infinities included, the low part means nothing.
    let inside = p.hi.abs().lt(T::c(200.0));
    let e = scaled_exp2(clamp(p.hi, -200.0, 200.0), T::pick(inside, p.lo, T::c(0.0)));
    let (zero, inf) = (T::c(0.0), T::c(f32::INFINITY));
    let falling = y.lt(zero);
    let r = T::pick(ax.eq(zero), T::pick(falling, inf, zero), e.value());
    let r = T::pick(ax.eq(inf), T::pick(falling, zero, inf), r);
    T::pick(ax.eq(T::c(1.0)), T::c(1.0), r)
}

#[inline(always)]
pub fn pow<T: Real>(x: T, y: T) -> T {
    let (zero, one) = (T::c(0.0), T::c(1.0));
    let ax = x.abs();
    let r = magnitude(ax, y);
    // From 2^24 on, every float is an even whole number, infinity among them.
    let small_y = T::pick(y.abs().lt(T::c(16_777_216.0)), y, zero);
    let whole_y = small_y.to_int();
    let fractional = whole_y.to_real().ne(small_y);
    let odd = whole_y.and(T::Int::c(1)).eq(T::Int::c(1)).and(fractional.not());
    let negative = x.bits().lt(T::Int::c(0));
    let r = T::pick(negative.and(odd), -r, r);
    let no_root = x.lt(zero).and(ax.lt(T::c(f32::INFINITY))).and(fractional);
    let nan = no_root.or(x.ne(x)).or(y.ne(y));
    let r = T::pick(nan, T::c(f32::NAN), r);
    T::pick(y.eq(zero).or(x.eq(one)), one, r)
}
