//! The logarithms: `x = 2^k (1 + f)` with `1 + f` between √½ and √2, and
//! `log(1 + f) = f - f²/2 + f³ g(f)` with the first two terms summed exactly.

use super::exp::TINY;
use super::pair::Pair;
use super::real::{Int, Real, horner};

/// Weighted error 2^-32.5 on [-0.2930, 0.4143] (tools/fit.py LOG).
const LOG: [f32; 10] = [
    0.33333334,
    -0.24999973,
    0.19999947,
    -0.16669054,
    0.14288674,
    -0.12432011,
    0.10999783,
    -0.1074466,
    0.10765579,
    -0.06255639,
];

const LN2_SHORT: f32 = f32::from_bits(0x3f317400);
const LN2_REST: f32 = f32::from_bits(0xb7f40417);
const LOG10_2_SHORT: f32 = f32::from_bits(0x3e9a2000);
const LOG10_2_REST: f32 = f32::from_bits(0x369a84fc);
const SQRT_HALF: i32 = 0x3f3504f3;
const MIN_NORMAL: f32 = f32::MIN_POSITIVE;

/// `x = 2^k m` with m in [√½, √2), for a normal positive `x`; anything else gives some numbers.
#[inline(always)]
pub fn split<T: Real>(x: T) -> (T::Int, T) {
    let bits = x.bits();
    let k = bits.sub(T::Int::c(SQRT_HALF)).shr(23);
    (k, bits.sub(k.shl(23)).float())
}

/// [`split`] for subnormals too.
#[inline(always)]
pub fn split_any<T: Real>(x: T) -> (T::Int, T) {
    let small = x.lt(T::c(MIN_NORMAL));
    let (k, m) = split(T::pick(small, x * T::c(33_554_432.0), x));
    (k.sub(T::Int::pick(small, T::Int::c(25), T::Int::c(0))), m)
}

/// log(1 + f).
#[inline(always)]
fn log_1p<T: Real>(f: T) -> Pair<T> {
    let half_square = Pair::product(f, f * T::c(0.5));
    let cube = f * (half_square.hi + half_square.hi);
    let head = Pair::ordered_sum(f, -half_square.hi);
    Pair { hi: head.hi, lo: cube.fma(horner(f, &LOG), head.lo - half_square.lo) }
}

/// `k ln 2 + head`, rounded once but for the low parts.
#[inline(always)]
fn with_exponent<T: Real>(k: T, head: Pair<T>) -> T {
    let sum = Pair::sum(k * T::c(LN2_SHORT), head.hi);
    sum.hi + (sum.lo + k.fma(T::c(LN2_REST), head.lo))
}

/// The values at and beyond the ends of the domain; `zero` is where the function is -∞.
#[inline(always)]
fn ends<T: Real>(y: T, x: T, zero: f32) -> T {
    let y = T::pick(x.lt(T::c(f32::INFINITY)), y, x);
    let y = T::pick(x.lt(T::c(zero)), T::c(f32::NAN), y);
    T::pick(x.eq(T::c(zero)), T::c(f32::NEG_INFINITY), y)
}

#[inline(always)]
pub fn log<T: Real>(x: T) -> T {
    let (k, m) = split_any(x);
    ends(with_exponent(k.to_real(), log_1p(m - T::c(1.0))), x, 0.0)
}

#[inline(always)]
pub fn log2<T: Real>(x: T) -> T {
    let (k, m) = split_any(x);
    let scaled = log_1p(m - T::c(1.0)).times(Pair::c(0x3fb8aa3b, 0x32a57060));
    let sum = Pair::sum(k.to_real(), scaled.hi);
    ends(sum.hi + (sum.lo + scaled.lo), x, 0.0)
}

#[inline(always)]
pub fn log10<T: Real>(x: T) -> T {
    let (k, m) = split_any(x);
    let k = k.to_real();
    let scaled = log_1p(m - T::c(1.0)).times(Pair::c(0x3ede5bd9, 0xb22d91af));
    let sum = Pair::sum(k * T::c(LOG10_2_SHORT), scaled.hi);
    ends(sum.hi + (sum.lo + k.fma(T::c(LOG10_2_REST), scaled.lo)), x, 0.0)
}

/// `1 + x` is summed exactly; what its head cannot hold joins `f` again after the scaling, so that
/// for small `x` the argument of the polynomial is `x` itself.
#[inline(always)]
pub fn log1p<T: Real>(x: T) -> T {
    let u = Pair::sum(T::c(1.0), x);
    let (k, m) = split(u.hi);
    // 2^-k, or zero where 1 is lost beside x anyway.
    let capped = T::Int::pick(k.lt(T::Int::c(127)), k, T::Int::c(127));
    let unscale = T::Int::c(127).sub(capped).shl(23).float();
    let f = Pair::sum(m - T::c(1.0), u.lo * unscale);
    let head = log_1p(f.hi).plus_low(f.lo / (T::c(1.0) + f.hi));
    let y = ends(with_exponent(k.to_real(), head), x, -1.0);
    T::pick(x.abs().lt(T::c(TINY)), x, y)
}
