//! asin, acos, atan, atan2.

use super::super::val::Val;
use super::inverse_of;
use crate::inst::{Alu, Cmp, Ty};
use std::f64::consts::{FRAC_PI_2, PI};

/// asin s = s + s t g(t), t = s²; weighted error 2^-27.5 for s <= 0.5 (tools/fit.py ASIN).
const ASIN: [f64; 5] = [0.16666752, 0.07495287, 0.04547354, 0.024157751, 0.042211194];
/// atan q = q + q t g(t), t = q²; weighted error 2^-25.8 for q <= 1 (tools/fit.py ATAN).
const ATAN: [f64; 8] = [
    -0.33333206,
    0.1999497,
    -0.14220577,
    0.10702846,
    -0.076295964,
    0.044113696,
    -0.016916199,
    0.0030563255,
];

/// Whether `|x|` is at most ½, and then asin |x|, else half of acos |x|.
fn asin_part(x: Val<'_>) -> (Val<'_>, Val<'_>) {
    let a = x.abs();
    let small = a.cmp(Cmp::Le, 0.5);
    // cos 2p = 1 - 2 sin² p.
    let t = small.pick(x * x, a.fma(-0.5, 0.5));
    let s = small.pick(a, t.approx(Alu::SqrtApprox));
    (small, (t * t.horner(&ASIN)).fma(s, s))
}

pub fn asin(x: Val<'_>) -> Val<'_> {
    let (small, p) = asin_part(x);
    small.pick(p, p.fma(-2.0, FRAC_PI_2)).with_sign(x)
}

pub fn acos(x: Val<'_>) -> Val<'_> {
    let (small, p) = asin_part(x);
    let near = x.c(FRAC_PI_2) - p.with_sign(x);
    let far = p + p;
    let far = x.lt(0.0).pick(x.c(PI) - far, far);
    small.pick(near, far)
}

/// Of a quotient between 0 and 1.
fn atan_part(q: Val<'_>) -> Val<'_> {
    let t = q * q;
    (t * t.horner(&ATAN)).fma(q, q)
}

pub fn atan(x: Val<'_>) -> Val<'_> {
    let a = x.abs();
    let steep = a.gt(1.0);
    let p = atan_part(steep.pick(inverse_of(a), a));
    steep.pick(p.c(FRAC_PI_2) - p, p).with_sign(x)
}

pub fn atan2<'e>(y: Val<'e>, x: Val<'e>) -> Val<'e> {
    let (ax, ay) = (x.abs(), y.abs());
    let (low, high) = (ax.min(ay), ax.max(ay));
    // Equals are at 45°, infinities too; 0 beside 0 is 0.
    let q = low.eq(high).pick_of(x, 1.0, low / high);
    let p = atan_part(high.eq(0.0).pick_of(x, 0.0, q));
    let p = ay.gt(ax).pick(p.c(FRAC_PI_2) - p, p);
    let p = x.of(Ty::S32).lt(0).pick(p.c(PI) - p, p).with_sign(y);
    x.cmp(Cmp::Nan, y).pick_of(x, f64::NAN, p)
}
