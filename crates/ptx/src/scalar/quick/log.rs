//! Logarithms. The hardware's is within 2^-22 near 1, which is all that is needed there.

use super::super::val::Val;
use crate::inst::Alu;
use std::f64::consts::{LN_2, LOG10_2};

/// log(1 + x) / x; weighted error 2^-27.1 on [-0.30, 0.45] (tools/fit.py LOG1P).
const LOG1P: [f64; 10] = [
    1.0,
    -0.49999982,
    0.33333346,
    -0.25002214,
    0.20000733,
    -0.1659207,
    0.14199139,
    -0.1340728,
    0.12850071,
    -0.07143072,
];

pub fn log(x: Val<'_>) -> Val<'_> {
    x.approx_full(Alu::Lg2Approx) * LN_2
}

pub fn log10(x: Val<'_>) -> Val<'_> {
    x.approx_full(Alu::Lg2Approx) * LOG10_2
}

pub fn log1p(x: Val<'_>) -> Val<'_> {
    let near = x * x.horner(&LOG1P);
    let far = log(x + 1.0);
    (x - 0.075).abs().lt(0.37).pick(near, far)
}
