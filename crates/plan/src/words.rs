//! Random words of several keys, in the arithmetic that defines them: ops of Tile IR take one key.

use crate::expand::Site;
use crate::index::dims_of;
use tessera_graph::{GraphOp, tensor};
use tessera_ir::{Attr, Attrs, OpSpec, Value};
use tessera_numerics::{DType, NumType, Scalar, ScalarFn};

type Made = Result<Value, String>;

/// Those of `numerics::philox`, which the tests compare this with.
const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// 32-bit words in 64 bits, where their products fit.
const LOW: u64 = 0xffff_ffff;

pub fn words(site: &mut Site<'_>, operands: &[Value], attrs: &Attrs) -> Made {
    let word = attrs.get("word").and_then(Attr::as_int).unwrap_or(0).clamp(0, 3) as usize;
    let shape = dims_of(site.func, operands[1]);
    let number = |site: &mut Site<'_>, v: u64| site.splat(Scalar::U64(v), &shape, DType::U64);
    let (low, half) = (number(site, LOW)?, number(site, 32)?);
    let halves = |site: &mut Site<'_>, x: Value| -> Result<[Value; 2], String> {
        let ty = tensor(site.func.ty(x).shape().to_vec(), NumType::plain(DType::U64));
        let bits = site.op(OpSpec::new(GraphOp::Bitcast, &[x]).result(ty))?;
        Ok([site.ew(ScalarFn::And, &[bits, low])?, site.ew(ScalarFn::Shr, &[bits, half])?])
    };
    let [mut k0, mut k1] = halves(site, operands[0])?;
    let [mut c0, mut c1] = halves(site, operands[1])?;
    let zero = number(site, 0)?;
    let (mut c2, mut c3) = (zero, zero);
    let multipliers = MULTIPLIERS.map(|m| number(site, m.into()));
    let weyl = WEYL.map(|w| number(site, w.into()));
    let ([m0, m1], [w0, w1]) = (multipliers, weyl);
    let (m0, m1, w0, w1) = (m0?, m1?, w0?, w1?);
    for _ in 0..ROUNDS {
        let p0 = site.ew(ScalarFn::Mul, &[m0, c0])?;
        let p1 = site.ew(ScalarFn::Mul, &[m1, c2])?;
        let mixed = |site: &mut Site<'_>, p: Value, c: Value, k: Value| -> Made {
            let high = site.ew(ScalarFn::Shr, &[p, half])?;
            let x = site.ew(ScalarFn::Xor, &[high, c])?;
            site.ew(ScalarFn::Xor, &[x, k])
        };
        let (next0, next2) = (mixed(site, p1, c1, k0)?, mixed(site, p0, c3, k1)?);
        c1 = site.ew(ScalarFn::And, &[p1, low])?;
        c3 = site.ew(ScalarFn::And, &[p0, low])?;
        (c0, c2) = (next0, next2);
        for (k, w) in [(&mut k0, w0), (&mut k1, w1)] {
            let sum = site.ew(ScalarFn::Add, &[*k, w])?;
            *k = site.ew(ScalarFn::And, &[sum, low])?;
        }
    }
    site.cast([c0, c1, c2, c3][word], NumType::plain(DType::U32), None)
}
