//! atan2 and atan: the quotient of the smaller by the larger coordinate, taken relative to 45° when
//! it is above tan 22.5°, then a short polynomial, then the octant's multiple of π/4.

use super::pair::Pair;
use super::real::{Cond, Int, Real, horner, with_sign};

/// atan q = q + q t g(t), t = q²; weighted error 2^-33.9 for t <= 0.172 (tools/fit.py ATAN).
const ATAN: [f32; 6] = [-0.3333333, 0.19999804, -0.14279206, 0.1101078, -0.08290961, 0.043690007];

const TAN_22_5: f32 = 0.41421357;
/// π/4 in two parts, the first of 20 bits so that a small multiple of it is exact.
const QUARTER_PI_SHORT: f32 = f32::from_bits(0x3f490fe0);
const QUARTER_PI_REST: f32 = f32::from_bits(0xb4abbbd3);
/// Quotients below this are their own inverse tangent.
const SMALL: f32 = f32::from_bits((127 - 13) << 23);
const BIG: f32 = f32::from_bits((127 + 64) << 23);
const INV_BIG: f32 = f32::from_bits((127 - 64) << 23);

#[inline(always)]
pub fn atan2<T: Real>(y: T, x: T) -> T {
    let (zero, one) = (T::c(0.0), T::c(1.0));
    let (ax, ay) = (x.abs(), y.abs());
    let steep = ax.lt(ay);
    let (low, high) = (T::pick(steep, ax, ay), T::pick(steep, ay, ax));
    // ∞ beside a number is 1 beside 0, beside ∞ it is 1 beside 1; 0 beside 0 is 0 beside 1.
    let inf = high.eq(T::c(f32::INFINITY));
    let low = T::pick(inf, T::pick(low.eq(high), one, zero), low);
    let high = T::pick(inf.or(high.eq(zero)), one, high);
    // Both are brought near 1, so that sums do not overflow and residuals do not underflow.
    let factor = T::pick(T::c(BIG).lt(high), T::c(INV_BIG), one);
    let factor = T::pick(high.lt(T::c(INV_BIG)), T::c(BIG), factor);
    let (a, b) = (low * factor, high * factor);
    let near_45 = (b * T::c(TAN_22_5)).lt(a);
    let n = Pair::pick(near_45, Pair::sum(a, -b), Pair { hi: a, lo: zero });
    let d = Pair::pick(near_45, Pair::sum(a, b), Pair { hi: b, lo: zero });
    let q = n.over(d).normal();
    let t = q.hi * q.hi;
    let angle = Pair { hi: q.hi, lo: (q.hi * t).fma(horner(t, &ATAN), q.lo) };
    // The result is `eighths π/4 ± angle`: reflect in the diagonal, then in the vertical axis.
    let backwards = x.bits().lt(T::Int::c(0));
    let eighths = T::pick(near_45, one, zero);
    let eighths = T::pick(steep, T::c(2.0) - eighths, eighths);
    let eighths = T::pick(backwards, T::c(4.0) - eighths, eighths);
    let flip = steep.xor(backwards);
    let angle = Pair::pick(flip, Pair { hi: -angle.hi, lo: -angle.lo }, angle);
    let sum = Pair::sum(eighths * T::c(QUARTER_PI_SHORT), angle.hi);
    let far = sum.hi + (sum.lo + eighths.fma(T::c(QUARTER_PI_REST), angle.lo));
    // A small angle from the positive axis is the quotient itself, subnormals included.
    let quotient = low / high;
    let direct = quotient.lt(T::c(SMALL)).and(steep.or(backwards).not());
    let value = with_sign(T::pick(direct, quotient, far), y);
    T::pick(x.ne(x).or(y.ne(y)), T::c(f32::NAN), value)
}

#[inline(always)]
pub fn atan<T: Real>(x: T) -> T {
    atan2(x, T::c(1.0))
}
