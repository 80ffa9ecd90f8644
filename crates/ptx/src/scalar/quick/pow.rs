//! What pow needs in f32.

use super::super::pair::Pair;
use super::super::power::Power;
use super::super::val::Val;
use super::inverse_of;
use crate::inst::{Alu, Round, Ty};
use std::f64::consts::LN_2;

pub const POWER: Power = Power {
    // Weighted error 2^-36.7 (numerics/tools/fit.py ATANH).
    atanh: &[0.20000076, 0.14273547, 0.11709758],
    third: [bits(0x3eaaaaab), bits(0xb22aaaab)],
    scale: [bits(0x4038aa3b), bits(0x33257060)],
    inverse: inverse_of,
    split,
    exp2,
    reach: 200.0,
    even: 16_777_216.0,
    int: Ty::S32,
};

const fn bits(x: u32) -> f64 {
    f32::from_bits(x) as f64
}

const SQRT_HALF: i64 = 0x3f3504f3;

fn split(x: Val<'_>) -> (Val<'_>, Val<'_>) {
    let small = x.lt(f32::MIN_POSITIVE);
    let bits = small.pick(x * 33_554_432.0, x).of(Ty::S32);
    let k = (bits - SQRT_HALF).shr(23);
    let m = (bits - k.shl(23)).of(Ty::F32);
    let whole = k.cvt(Ty::F32, Some(Round::Rn));
    (small.pick(whole - 25.0, whole), m)
}

/// The last number below 128. At 128 itself the power would be infinite whatever the low part is.
const LAST: f32 = f32::from_bits(0x42ff_ffff);

fn exp2(p: Pair<'_>) -> Val<'_> {
    let lo = p.lo + (p.hi - LAST).max(0.0);
    p.hi.min(LAST).approx(Alu::Ex2Approx) * lo.fma(LN_2, 1.0)
}

/// Powers that are products or roots, for an exponent that is known.
pub fn by_known<'e>(x: Val<'e>, y: f64) -> Option<Val<'e>> {
    // -0 counts as 0 and -∞ as ∞ where the exponent is no odd number.
    let root = || (x + 0.0, x.eq(f64::NEG_INFINITY));
    Some(match y {
        0.0 => x.c(1.0),
        1.0 => x,
        2.0 => x * x,
        3.0 => x * x * x,
        4.0 => {
            let square = x * x;
            square * square
        }
        -1.0 => x.alu(Alu::Rcp, Some(Round::Rn), false, &[]),
        0.5 => {
            let (x, end) = root();
            end.pick_of(x, f64::INFINITY, x.sqrt())
        }
        -0.5 => {
            let (x, end) = root();
            end.pick_of(x, 0.0, x.approx_full(Alu::RsqrtApprox))
        }
        _ => return None,
    })
}
