//! asin, acos, atan, atan2.

use super::super::val::Val;
use super::bits;
use crate::inst::{Cmp, Ty};
use std::f64::consts::{FRAC_PI_2, PI};

/// asin s = s + s t g(t), t = s²; weighted error 2^-59.7 for s <= 0.5 (tools/fit.py ASIN).
const ASIN: [f64; 13] = [
    0.1666666666666674,
    0.07499999999974614,
    0.04464285717185546,
    0.030381942811630168,
    0.02237221264425044,
    0.017351646060384238,
    0.013980489566366718,
    0.011401100343045516,
    0.010770443842168305,
    0.0037355013681140085,
    0.02165353348240897,
    -0.020943844073095786,
    0.032605860928699465,
];
/// atan q = q + q t g(t), t = q²; weighted error 2^-64 for t <= 0.172 (tools/fit.py ATAN).
const ATAN: [f64; 12] = [
    -0.3333333333333333,
    0.1999999999999872,
    -0.1428571428549177,
    0.1111111109350412,
    -0.09090908307563254,
    0.07692285953374539,
    -0.06666268304139329,
    0.05877384636848274,
    -0.05220508730796694,
    0.045113234941095745,
    -0.03364004783486552,
    0.015349941062682823,
];
const TAN_22_5: f64 = 0.41421356237309503;
/// π/4 in two parts, the first so short that a small multiple of it is exact.
const QUARTER_PI_SHORT: f64 = bits(0x3fe921fb54442d20);
const QUARTER_PI_REST: f64 = bits(0xbccee59d9cceba40);
/// What the f64 nearest to π/2 lacks.
const HALF_PI_REST: f64 = bits(0x3c91a62633145c07);

/// Whether `|x|` is at most ½, and then asin |x|, else half of acos |x|.
fn asin_part(x: Val<'_>) -> (Val<'_>, Val<'_>) {
    let a = x.abs();
    let small = a.cmp(Cmp::Le, 0.5);
    // cos 2p = 1 - 2 sin² p.
    let t = small.pick(x * x, a.fma(-0.5, 0.5));
    let s = small.pick(a, t.sqrt());
    (small, (t * t.horner(&ASIN)).fma(s, s))
}

pub fn asin(x: Val<'_>) -> Val<'_> {
    let (small, p) = asin_part(x);
    let far = p.c(FRAC_PI_2) - p.fma(2.0, -HALF_PI_REST);
    small.pick(p, far).with_sign(x)
}

pub fn acos(x: Val<'_>) -> Val<'_> {
    let (small, p) = asin_part(x);
    let near = x.c(FRAC_PI_2) - (p.with_sign(x) - HALF_PI_REST);
    let far = x.lt(0.0).pick(p.c(PI) - p.fma(2.0, -2.0 * HALF_PI_REST), p + p);
    small.pick(near, far)
}

pub fn atan2<'e>(y: Val<'e>, x: Val<'e>) -> Val<'e> {
    let (ax, ay) = (x.abs(), y.abs());
    let (low, high) = (ax.min(ay), ax.max(ay));
    // Equals are at 45°, infinities too; 0 beside 0 is 0.
    let q = low.eq(high).pick_of(x, 1.0, low / high);
    let q = high.eq(0.0).pick_of(x, 0.0, q);
    let (steep, backwards) = (ay.gt(ax), x.of(Ty::S64).lt(0));
    let value = from_quotient(q, Some(steep), Some(backwards)).with_sign(y);
    x.cmp(Cmp::Nan, y).pick_of(x, f64::NAN, value)
}

/// The angle whose tangent is `q`, between 0 and 1; reflected in the diagonal, then in the vertical
/// axis: `eighths π/4 ± angle`.
fn from_quotient<'e>(q: Val<'e>, steep: Option<Val<'e>>, backwards: Option<Val<'e>>) -> Val<'e> {
    let near_45 = q.gt(TAN_22_5);
    let s = near_45.pick((q - 1.0) / (q + 1.0), q);
    let t = s * s;
    let tail = s * t * t.horner(&ATAN);
    let mut eighths = near_45.pick_of(q, 1.0, 0.0);
    let (mut s, mut tail) = (s, tail);
    for (cond, of) in [(steep, 2.0), (backwards, 4.0)] {
        let Some(cond) = cond else { continue };
        eighths = cond.pick(q.c(of) - eighths, eighths);
        (s, tail) = (cond.pick(-s, s), cond.pick(-tail, tail));
    }
    // With no eighths this is the angle itself, and -0 does not come here.
    eighths.fma(QUARTER_PI_SHORT, s) + eighths.fma(QUARTER_PI_REST, tail)
}

pub fn atan(x: Val<'_>) -> Val<'_> {
    let a = x.abs();
    let steep = a.gt(1.0);
    let q = steep.pick(a.c(1.0) / a, a);
    from_quotient(q, Some(steep), None).with_sign(x)
}
