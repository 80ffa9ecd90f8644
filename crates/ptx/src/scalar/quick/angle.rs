//! sin, cos, tan: a multiple of π/2 in three parts is taken off, which is exact enough for angles up
//! to about 10^5; beyond that the strict expansion is used.

use super::super::emit::Emit;
use super::super::val::Val;
use super::inverse_of;
use crate::inst::Ty;
use tessera_numerics::{ScalarFn, expansion};

/// sin r / r of t = r²; weighted error 2^-28 for t <= 0.617 (tools/fit.py SIN).
const SIN: [f64; 4] = [1.0, -0.16666655, 0.008332192, -0.00019518785];
/// cos r; weighted error 2^-33.1 (tools/fit.py COS).
const COS: [f64; 5] = [1.0, -0.5, 0.041666646, -0.0013887304, 2.4431321e-5];

/// Adding this brings a number below 2^22 to a whole one, ties to even, in the low bits.
const WHOLE: f64 = 12_582_912.0;
/// π/2 in three parts, all positive so that nothing times them leaves -0 alone.
const HALF_PI: [f32; 3] =
    [f32::from_bits(0x3fc90fda), f32::from_bits(0x33a22168), f32::from_bits(0x27c234c5)];
/// Below this the parts are exact enough.
const LARGE: f64 = 105_000.0;

impl Emit {
    pub(super) fn quick_angle<'e>(&'e self, f: ScalarFn, x: Val<'e>) -> Val<'e> {
        let out = self.variable(near(f, x));
        let Some(exact) = expansion(f) else { return out };
        let end = self.label();
        self.branch(x.abs().gt(LARGE), false, end);
        self.assign(out.reg(), self.expand(exact, &[x], false));
        self.place(end);
        out
    }
}

fn near(f: ScalarFn, x: Val<'_>) -> Val<'_> {
    let shifted = x.fma(std::f64::consts::FRAC_2_PI, WHOLE);
    let whole = shifted - WHOLE;
    let r = HALF_PI.iter().fold(x, |r, &part| whole.fma(-part, r));
    let quarter = shifted.of(Ty::U32);
    let t = r * r;
    let (sin, cos) = (r * t.horner(&SIN), t.horner(&COS));
    let odd = quarter.and(1).ne(0);
    if f == ScalarFn::Tan {
        // sin / cos, or -cos / sin an odd number of quarters on.
        let (n, d) = (odd.pick(cos, sin), odd.pick(sin, cos));
        let inverse = inverse_of(d);
        let y = n * inverse;
        let y = (-y).fma(d, n).fma(inverse, y).with_sign(y);
        return y.of(Ty::U32).xor(quarter.shl(31)).of(Ty::F32);
    }
    // The cosine is the sine a quarter on.
    let (y, quarter) = match f {
        ScalarFn::Cos => (odd.pick(sin, cos), quarter + 1),
        _ => (odd.pick(cos, sin), quarter),
    };
    y.of(Ty::U32).xor(quarter.shl(30).and(1i64 << 31)).of(Ty::F32)
}
