//! sin, cos, tan: a multiple of π/2 in three parts is taken off; from 2^30 on the significand is
//! multiplied with the right 192 bits of 2/π (Payne and Hanek's method).

use super::super::emit::Emit;
use super::super::pair::Pair;
use super::super::val::Val;
use super::bits;
use super::exp::TINY;
use crate::inst::{Alu, Round, Ty};
use tessera_numerics::ScalarFn;

/// sin r = r + r t g(t), t = r²; weighted error 2^-63.2 for t <= 0.617 (tools/fit.py SIN).
const SIN: [f64; 7] = [
    -0.16666666666666666,
    0.008333333333333037,
    -0.0001984126984095333,
    2.7557319068188543e-06,
    -2.5052069227813558e-08,
    1.6054078884442602e-10,
    -7.377324049072209e-13,
];
/// cos r = 1 - t/2 + t² g(t); weighted error 2^-69.1 (tools/fit.py COS).
const COS: [f64; 7] = [
    0.041666666666666664,
    -0.0013888888888888376,
    2.4801587301161806e-05,
    -2.755731905030622e-07,
    2.0876719326620817e-09,
    -1.1466529982740578e-11,
    4.576849631382388e-14,
];
const WHOLE: f64 = 6_755_399_441_055_744.0;
/// π/2 in three parts.
const HALF_PI: [f64; 3] =
    [bits(0x3ff921fb54442d18), bits(0x3c91a62633145c06), bits(0x394c1cd129024e09)];
/// π/2 · 2^-62.
const HALF_PI_SMALL: [f64; 2] = [bits(0x3c1921fb54442d18), bits(0x38b1a62633145c07)];
const LARGE: f64 = 1_073_741_824.0;

/// 32 zero bits, then 2/π.
const TWO_OVER_PI: [u64; 19] = [
    0x00000000a2f9836e,
    0x4e441529fc2757d1,
    0xf534ddc0db629599,
    0x3c439041fe5163ab,
    0xdebbc561b7246e3a,
    0x424dd2e006492eea,
    0x09d1921cfe1deb1c,
    0xb129a73ee88235f5,
    0x2ebb4484e99c7026,
    0xb45f7e413991d639,
    0x835339f49c845f8b,
    0xbdf9283b1ff897ff,
    0xde05980fef2f118b,
    0x5a0a6d1f6d367ecf,
    0x27cb09b74f463f66,
    0x9e5fea2d7527bac7,
    0xebe5f17b3d0739f7,
    0x8a5292ea6bfb5fb1,
    0x1f8d5d0856033046,
];

/// The angle reduced by `quarter` multiples of π/2.
#[derive(Copy, Clone)]
struct Reduced<'e> {
    quarter: Val<'e>,
    r: Pair<'e>,
}

impl Emit {
    pub(super) fn double_angle<'e>(&'e self, f: ScalarFn, x: Val<'e>) -> Val<'e> {
        let near = reduce(x);
        let [quarter, hi, lo] = [near.quarter, near.r.hi, near.r.lo].map(|v| self.variable(v));
        let end = self.label();
        self.branch(x.abs().gt(LARGE), false, end);
        let far = reduce_large(x);
        self.assign(quarter.reg(), far.quarter);
        self.assign(hi.reg(), far.r.hi);
        self.assign(lo.reg(), far.r.lo);
        self.place(end);
        let y = value(f, Reduced { quarter, r: Pair { hi, lo } });
        if f == ScalarFn::Cos { y } else { x.abs().lt(TINY).pick(x, y) }
    }
}

fn reduce(x: Val<'_>) -> Reduced<'_> {
    let shifted = x.fma(std::f64::consts::FRAC_2_PI, WHOLE);
    let n = shifted - WHOLE;
    let [first, second, third] = HALF_PI;
    // The first product leaves an exact difference; the error of the second is kept.
    let head = n.fma(-first, x);
    let part = Pair::product(n, x.c(second));
    let r = Pair::sum(head, -part.hi);
    let r = r.plus_low(n.fma(-third, -part.lo)).normal();
    Reduced { quarter: shifted.of(Ty::U64).cvt(Ty::U32, None), r }
}

/// The reduction for magnitudes from 2^30 up. Multiples of 2π fall off the top of the product,
/// because the window begins at the bit that weighs π. No f64 is nearer than about 2^-62 to a whole
/// number of quarters, so 126 bits of fraction are enough. An infinity or NaN gives NaN.
fn reduce_large(x: Val<'_>) -> Reduced<'_> {
    let e = x.emitter();
    let magnitude = x.abs().of(Ty::U64);
    let significand = magnitude.and((1i64 << 52) - 1).or(1i64 << 52);
    // x is its significand times 2^(field - 1075), and bit p of the table weighs 2^(31 - p).
    let place = magnitude.shr(52).cvt(Ty::U32, None) + (30 - 1075);
    let word = place.shr(6);
    let mut window = [(); 4].map(|()| e.int(Ty::U64, 0));
    for i in 0..TWO_OVER_PI.len() - 3 {
        let here = word.eq(i as i64);
        for (w, &bits) in window.iter_mut().zip(&TWO_OVER_PI[i..]) {
            *w = here.pick(e.int(Ty::U64, bits as i64), *w);
        }
    }
    let shift = place.and(63);
    let back = shift.xor(63);
    // Shifting down in two steps keeps every count below 64.
    let join = |i: usize| window[i].shl(shift).or(window[i + 1].shr(1).shr(back));
    let (w0, w1, w2) = (join(0), join(1), join(2));
    let middle = significand * w1;
    let low = middle + significand.op2(Alu::MulHi, w2);
    let carry = low.lt(middle).pick_of(low, 1, 0);
    let high = significand * w0 + significand.op2(Alu::MulHi, w1) + carry;
    let quarter = (high + (1i64 << 61)).shr(62);
    let fraction = (high - quarter.shl(62)).of(Ty::S64);
    let hi = fraction.cvt(Ty::F64, Some(Round::Rn));
    let left = (fraction - hi.cvt(Ty::S64, Some(Round::Rzi))).cvt(Ty::F64, Some(Round::Rn));
    let rest = low.cvt(Ty::F64, Some(Round::Rn)).fma(2f64.powi(-64), left);
    let r = Pair::ordered_sum(hi, rest).times(Pair::c(x, HALF_PI_SMALL)).normal();
    let finite = x.abs().lt(f64::INFINITY);
    let r = Pair { hi: finite.pick(r.hi, f64::NAN), lo: r.lo };
    let negative = x.lt(0.0);
    let q = quarter.cvt(Ty::U32, None);
    let quarter = negative.pick(q.c(0) - q, q);
    Reduced { quarter, r: Pair::pick(negative, r.negated(), r) }
}

/// sin of the reduced angle.
fn sin_part(r: Pair<'_>) -> Pair<'_> {
    let t = r.hi * r.hi;
    let tail = (r.hi * t).fma(t.horner(&SIN), r.lo.fma(t * -0.5, r.lo));
    Pair { hi: r.hi, lo: tail }
}

/// cos of the reduced angle.
fn cos_part(r: Pair<'_>) -> Pair<'_> {
    let t = Pair::product(r.hi, r.hi);
    let head = Pair::ordered_sum(r.hi.c(1.0), t.hi * -0.5);
    let low = t.lo.fma(-0.5, (-r.hi).fma(r.lo, head.lo));
    Pair { hi: head.hi, lo: (t.hi * t.hi).fma(t.hi.horner(&COS), low) }
}

fn value(f: ScalarFn, a: Reduced<'_>) -> Val<'_> {
    let (sin, cos) = (sin_part(a.r), cos_part(a.r));
    let odd = a.quarter.and(1).ne(0);
    if f == ScalarFn::Tan {
        // sin / cos, or -cos / sin an odd number of quarters on.
        let n = Pair::pick(odd, cos, sin).normal();
        let d = Pair::pick(odd, sin, cos).normal();
        let y = n.over(d).value();
        return odd.pick(-y, y);
    }
    // The cosine is the sine a quarter on.
    let (y, quarter) = match f {
        ScalarFn::Cos => (Pair::pick(odd, sin, cos), a.quarter + 1),
        _ => (Pair::pick(odd, cos, sin), a.quarter),
    };
    let y = y.value();
    let opposite = quarter.and(2).ne(0);
    opposite.pick(-y, y)
}
