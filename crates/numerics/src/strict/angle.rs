//! sin, cos, tan: an angle is brought to `|r| <= π/4` around a multiple of π/2, exactly enough for
//! every f32, by multiplying its significand with the right 96 bits of 2/π (Payne and Hanek's
//! method).

use super::pair::Pair;
use super::real::{Cond, Int, Real, Word, horner};

/// sin r = r + r t g(t), t = r²; weighted error 2^-32.5 for t <= 0.617 (tools/fit.py SIN).
const SIN: [f32; 4] = [-0.16666667, 0.00833338, -0.00019853504, 0.0000028373859];
/// cos r = 1 - t/2 + t² g(t); weighted error 2^-37.2 (tools/fit.py COS).
const COS: [f32; 4] = [0.041666668, -0.0013888982, 0.000024822983, -0.00000028976956];

/// 26 zero bits, then 2/π. Bit `o` of this stream has the weight 2^(1-o) of a quarter revolution
/// for an angle whose significand, read as an integer, is multiplied by 2^-24.
const TWO_OVER_PI: [u64; 5] = [
    0x00000028be60db93,
    0x91054a7f09d5f47d,
    0x4d377036d8a5664f,
    0x10e4107f9458eaf7,
    0xaef1586dc91b8e90,
];
const PI_OVER_4: f32 = f32::from_bits(0x3f490fdb);
/// Below this, sin x and tan x are x.
const SMALL: f32 = f32::from_bits((127 - 14) << 23);

/// The angle less `quarter` quarter revolutions.
struct Reduced<T: Real> {
    quarter: T::Int,
    r: Pair<T>,
}

/// The reduction for magnitudes from ½ up (Payne-Hanek). Whole revolutions are shifted out at the
/// top of the product, because the window begins at the bits that weigh half a revolution. Two bits
/// of quarters and 62 of fraction are left, and no f32 but 0 is nearer than 2^-29.9 to a whole
/// number of quarters (0x6f79be45 is the nearest).
#[inline(always)]
fn reduce_large<T: Real>(x: T) -> Reduced<T> {
    let word = <<T::Int as Int>::Word as Word>::c;
    let bits = x.abs().bits();
    // Offset of the window, 0 to 128, from the exponent; |x| >= ½ makes it non-negative.
    let offset = bits.shr(23).sub(T::Int::c(126)).and(T::Int::c(0xff));
    let significand = bits.and(T::Int::c(0x7f_ffff)).or(T::Int::c(0x80_0000)).to_word();
    let (first, second) = (offset.lt(T::Int::c(64)), offset.lt(T::Int::c(128)));
    let take = |i: usize| {
        let [a, b, c] = [i, i + 1, i + 2].map(|i| word(TWO_OVER_PI[i]));
        Word::pick(first, a, Word::pick(second, b, c))
    };
    let (w0, w1, w2) = (take(0), take(1), take(2));
    let shift = offset.and(T::Int::c(63)).to_word();
    let back = word(63).sub(shift);
    // Shifting down in two steps keeps every count below 64.
    let join = |hi: <T::Int as Int>::Word, lo: <T::Int as Int>::Word| {
        hi.shl(shift).or(lo.shr(word(1)).shr(back))
    };
    let (high, low) = (join(w0, w1), join(w1, w2).shr(word(32)));
    let product = significand.mul(high).add(significand.mul(low).shr(word(32)));
    let quarter = product.add(word(1 << 61)).shr(word(62));
    let fraction = product.sub(quarter.shl(word(62)));
    let hi = fraction.signed_to_real();
    let lo = fraction.sub(Word::from_whole(hi)).signed_to_real();
    // π/2 · 2^-62.
    let r = Pair { hi, lo }.times(Pair::c(0x20c90fdb, 0x943bbd2e)).normal();
    let negative = x.lt(T::c(0.0));
    let q = quarter.to_int();
    Reduced {
        quarter: T::Int::pick(negative, T::Int::c(0).sub(q), q),
        r: Pair::pick(negative, Pair { hi: -r.hi, lo: -r.lo }, r),
    }
}

#[inline(always)]
fn reduce<T: Real>(x: T) -> Reduced<T> {
    let large = reduce_large(x);
    let small = x.abs().lt(T::c(PI_OVER_4));
    Reduced {
        quarter: T::Int::pick(small, T::Int::c(0), large.quarter),
        r: Pair::pick(small, Pair { hi: x, lo: T::c(0.0) }, large.r),
    }
}

/// sin of the reduced angle.
#[inline(always)]
fn sin_part<T: Real>(r: Pair<T>) -> Pair<T> {
    let t = Pair::product(r.hi, r.hi);
    let g = horner(t.hi, &SIN);
    // The low part moves the sine by its cosine, near enough 1 - t/2.
    let low = (r.lo * t.hi).fma(T::c(-0.5), r.lo);
    let u = Pair::product(t.hi, g).plus_low(t.lo * g);
    Pair { hi: r.hi, lo: r.hi.fma(u.hi, r.hi.fma(u.lo, low)) }
}

/// cos of the reduced angle.
#[inline(always)]
fn cos_part<T: Real>(r: Pair<T>) -> Pair<T> {
    let t = Pair::product(r.hi, r.hi);
    let head = Pair::ordered_sum(T::c(1.0), t.hi * T::c(-0.5));
    let low = t.lo.fma(T::c(-0.5), (-r.hi).fma(r.lo, head.lo));
    Pair { hi: head.hi, lo: (t.hi * t.hi).fma(horner(t.hi, &COS), low) }
}

/// sin of `r` plus `quarter` quarter revolutions.
#[inline(always)]
fn sin_of<T: Real>(quarter: T::Int, r: Pair<T>) -> T {
    let odd = quarter.and(T::Int::c(1)).eq(T::Int::c(1));
    let y = Pair::pick(odd, cos_part(r), sin_part(r)).value();
    y.bits().xor(quarter.shl(30).and(T::Int::c(i32::MIN))).float()
}

/// NaN where `x` is infinite or NaN.
#[inline(always)]
fn finite<T: Real>(y: T, x: T) -> T {
    T::pick(x.abs().lt(T::c(f32::INFINITY)), y, T::c(f32::NAN))
}

#[inline(always)]
pub fn sin<T: Real>(x: T) -> T {
    let a = reduce(x);
    let y = finite(sin_of(a.quarter, a.r), x);
    T::pick(x.abs().lt(T::c(SMALL)), x, y)
}

#[inline(always)]
pub fn cos<T: Real>(x: T) -> T {
    let a = reduce(x);
    finite(sin_of(a.quarter.add(T::Int::c(1)), a.r), x)
}

/// sin / cos, or -cos / sin an odd number of quarters on.
#[inline(always)]
pub fn tan<T: Real>(x: T) -> T {
    let a = reduce(x);
    let even = a.quarter.and(T::Int::c(1)).eq(T::Int::c(1)).not();
    let (s, c) = (sin_part(a.r), cos_part(a.r));
    let n = Pair::pick(even, s, Pair { hi: -c.hi, lo: -c.lo });
    let d = Pair::pick(even, c, s);
    // The heads must hold all but half a unit of the sums for the quotient's correction to be
    // small.
    let (n, d) = (n.normal(), d.normal());
    let y = finite(n.over(d).value(), x);
    T::pick(x.abs().lt(T::c(SMALL)), x, y)
}
