//! The logarithms: `x = 2^k (1 + f)` with `1 + f` between √½ and √2, and with `s = f / (2 + f)`
//! `log(1 + f) = 2 atanh s = f - (f²/2 - s (f²/2 + R))`.

use super::super::pair::Pair;
use super::super::val::Val;
use super::bits;
use super::exp::TINY;
use crate::inst::{Round, Ty};

/// atanh s = s + s t g(t), t = s²; weighted error 2^-66.6 for t <= 0.02945 (tools/fit.py ATANH_ALL).
const ATANH: [f64; 8] = [
    0.3333333333333333,
    0.20000000000002463,
    0.1428571428470469,
    0.11111111303675808,
    0.09090889158842855,
    0.07693495359901885,
    0.06626051197831587,
    0.06617608103039874,
];
/// ln 2 as two parts, the first so short that its product with an exponent is exact.
const LN2_SHORT: f64 = bits(0x3fe62e42fef00000);
const LN2_REST: f64 = bits(0x3dd473de6af278ed);
/// log10 2, likewise.
const LOG10_2_SHORT: f64 = bits(0x3fd3441350900000);
const LOG10_2_REST: f64 = bits(0x3dcef3fde623e256);
const LOG10_E: [f64; 2] = [bits(0x3fdbcb7b1526e50e), bits(0x3c695355baaafad3)];
const LOG2_E: [f64; 2] = [bits(0x3ff71547652b82fe), bits(0x3c7777d0ffda0d24)];
/// The upper word of √½.
const SQRT_HALF: i64 = 0x3fe6a09e;

/// `x = 2^k m` with m between √½ and √2, for a normal positive `x`; anything else gives some numbers.
fn split_normal(x: Val<'_>) -> (Val<'_>, Val<'_>) {
    let [low, high] = x.halves(Ty::U32);
    let high = high.of(Ty::S32);
    let k = (high - SQRT_HALF).shr(20);
    let m = low.join((high - k.shl(20)).of(Ty::U32), Ty::F64);
    (k.cvt(Ty::F64, Some(Round::Rn)), m)
}

/// The same for subnormals too.
pub fn split(x: Val<'_>) -> (Val<'_>, Val<'_>) {
    let small = x.lt(f64::MIN_POSITIVE);
    let (k, m) = split_normal(small.pick(x * 18_014_398_509_481_984.0, x));
    (small.pick(k - 54.0, k), m)
}

/// `f² / 2`, and `s (f²/2 + R)`.
fn parts<'e>(f: Val<'e>) -> (Val<'e>, Val<'e>) {
    let s = f / (f + 2.0);
    let t = s * s;
    let half_square = f * 0.5 * f;
    (half_square, s * (t + t).fma(t.horner(&ATANH), half_square))
}

/// `k ln 2 + log(1 + f) + c`.
fn with_exponent<'e>(k: Val<'e>, f: Val<'e>, c: Option<Val<'e>>) -> Val<'e> {
    let (half_square, rest) = parts(f);
    let low = match c {
        Some(c) => k.fma(LN2_REST, c),
        None => k * LN2_REST,
    };
    k * LN2_SHORT - ((half_square - (rest + low)) - f)
}

/// The values at and beyond the ends of the domain; `zero` is where the function is -∞.
fn ends<'e>(y: Val<'e>, x: Val<'e>, zero: f64) -> Val<'e> {
    let y = x.lt(f64::INFINITY).pick(y, x);
    let y = x.lt(zero).pick_of(x, f64::NAN, y);
    x.eq(zero).pick_of(x, f64::NEG_INFINITY, y)
}

pub fn log(x: Val<'_>) -> Val<'_> {
    let (k, m) = split(x);
    ends(with_exponent(k, m - 1.0, None), x, 0.0)
}

/// `log(1 + f)` times a constant, to more than f64.
fn scaled<'e>(f: Val<'e>, by: [f64; 2]) -> Pair<'e> {
    let (half_square, rest) = parts(f);
    let low = (f * 0.5).fma(f, -half_square);
    let head = Pair::ordered_sum(f, -half_square).plus_low(rest - low);
    head.times(Pair::c(f, by))
}

pub fn log2(x: Val<'_>) -> Val<'_> {
    let (k, m) = split(x);
    let scaled = scaled(m - 1.0, LOG2_E);
    let sum = Pair::ordered_sum(k, scaled.hi);
    ends(sum.hi + (sum.lo + scaled.lo), x, 0.0)
}

pub fn log10(x: Val<'_>) -> Val<'_> {
    let (k, m) = split(x);
    let scaled = scaled(m - 1.0, LOG10_E);
    let sum = Pair::ordered_sum(k * LOG10_2_SHORT, scaled.hi);
    ends(sum.hi + (sum.lo + k.fma(LOG10_2_REST, scaled.lo)), x, 0.0)
}

pub fn log1p(x: Val<'_>) -> Val<'_> {
    let u = Pair::sum(x.c(1.0), x);
    let (k, m) = split_normal(u.hi);
    let y = ends(with_exponent(k, m - 1.0, Some(u.lo / u.hi)), x, -1.0);
    x.abs().lt(TINY).pick(x, y)
}
