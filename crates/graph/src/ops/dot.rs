//! Sums of products: contraction and convolution.

use super::shape::spread;
use crate::dims::{compute, same, show};
use crate::rule::{Refusal, Rule, Ruled, Site, distinct, elem, tensor};
use tessera_ir::{Dim, DimOp, Type};
use tessera_numerics::{DType, NumType};

/// The accumulation classes of LANGUAGE 13.
pub const CLASSES: [&str; 4] = ["seq", "f32", "fast", "i32"];

/// What two operand dtypes are multiplied in and summed in, and what is stored where `out` does not
/// say. One dtype, or two floats or two integers of 8 bits.
pub fn dtypes(
    a: &Type,
    b: &Type,
    accum: Option<DType>,
    out: Option<DType>,
) -> Result<(DType, DType), Refusal> {
    let (x, y) = (a.dtype(), b.dtype());
    let bytes = x.bits() == 8 && y.bits() == 8;
    let pair = x == y || (bytes && ((x.is_int() && y.is_int()) || (x.is_float() && y.is_float())));
    if !pair || x == DType::Bool {
        return Err(Refusal::ty(format!(
            "expected two operands of one number dtype, got {x} and {y}"
        )));
    }
    let by_policy = elem(a).accumulator().dtype();
    let accum = accum.unwrap_or(by_policy);
    let wide = accum.bits() >= 32 || matches!(accum, DType::F16 | DType::BF16);
    if accum.is_float() != x.is_float() || !wide || accum == DType::Tf32 || accum.bits() < x.bits()
    {
        return Err(Refusal::ty(format!("expected an accumulator for {x}, got {accum}")));
    }
    let out = out.unwrap_or(if x == y { x } else { accum });
    if out == DType::Bool {
        return Err(Refusal::ty("expected a number dtype in `out`, got bool"));
    }
    Ok((accum, out))
}

fn result_elem(s: &Site<'_>, a: &Type, b: &Type) -> Result<NumType, Refusal> {
    let (_, out) = dtypes(a, b, s.dtype("accum")?, s.dtype("out")?)?;
    s.choice("class", &CLASSES, "seq")?;
    let (x, y) = (elem(a), elem(b));
    Ok(if x == y && x.storage == out { x } else { NumType::plain(out) })
}

pub struct Dot;

impl Rule for Dot {
    fn types(s: &Site<'_>) -> Ruled {
        let (a, b) = (s.operand(0)?, s.operand(1)?);
        let elem = result_elem(s, a, b)?;
        let list = |kind: &str, side: &str, ty| {
            let name = format!("{kind}_{side}");
            distinct(&name, &s.ints(&name), ty)
        };
        let (batch_a, batch_b) = (list("batch", "a", a)?, list("batch", "b", b)?);
        let (con_a, con_b) = (list("contract", "a", a)?, list("contract", "b", b)?);
        for (kind, x, y) in [("batch", &batch_a, &batch_b), ("contracted", &con_a, &con_b)] {
            let agree = x.len() == y.len()
                && x.iter().zip(y).all(|(&i, &j)| same(&a.shape()[i], &b.shape()[j]));
            if !agree {
                return Err(Refusal::shape(format!(
                    "expected the {kind} axes {x:?} and {y:?} to agree, got {} and {}",
                    show(a.shape()),
                    show(b.shape())
                )));
            }
        }
        for (one, other) in [(&batch_a, &con_a), (&batch_b, &con_b)] {
            if let Some(axis) = one.iter().find(|i| other.contains(i)) {
                return Err(Refusal::structure(format!(
                    "expected an axis to be either batch or contracted, got {axis} as both"
                )));
            }
        }
        let free = |ty: &Type, one: &[usize], other: &[usize]| -> Vec<Dim> {
            let kept = ty.shape().iter().enumerate();
            kept.filter(|(i, _)| !one.contains(i) && !other.contains(i))
                .map(|(_, d)| d.clone())
                .collect()
        };
        let mut dims: Vec<_> = batch_a.iter().map(|&i| a.shape()[i].clone()).collect();
        dims.extend(free(a, &batch_a, &con_a));
        dims.extend(free(b, &batch_b, &con_b));
        Ok(vec![tensor(dims, elem)])
    }
}

pub struct Conv;

impl Rule for Conv {
    /// `x` is [batch, channels, …], `w` is [out, channels / groups, …].
    fn types(s: &Site<'_>) -> Ruled {
        let (x, w) = (s.operand(0)?, s.operand(1)?);
        let elem = result_elem(s, x, w)?;
        let shapes = || format!("{} and {}", show(x.shape()), show(w.shape()));
        if x.rank() < 2 || x.rank() != w.rank() {
            return Err(Refusal::shape(format!(
                "expected [batch, channels, …] and [out, channels, …] of one rank, got {}",
                shapes()
            )));
        }
        let groups = s.int("groups", 1);
        let divides = |d: &Dim| d.as_static().is_none_or(|d| d % groups == 0);
        if groups < 1 || !divides(&w.shape()[0]) {
            return Err(Refusal::shape(format!(
                "expected {groups} groups to divide the channels, got {}",
                shapes()
            )));
        }
        let channels = compute(DimOp::Mul, &w.shape()[1], &Dim::Static(groups));
        if !same(&x.shape()[1], &channels) {
            return Err(Refusal::shape(format!(
                "expected {channels} channels in {groups} groups, got {}",
                shapes()
            )));
        }
        let n = x.rank() - 2;
        let steps = |name: &str| at_least_one(s, name, n);
        let (strides, dilate_x, dilate_w) =
            (steps("strides")?, steps("dilate_x")?, steps("dilate_w")?);
        let (lo, hi) = (s.exprs("lo", n)?, s.exprs("hi", n)?);
        let mut dims = vec![x.shape()[0].clone(), w.shape()[0].clone()];
        for i in 0..n {
            let have = spread(&x.shape()[i + 2], dilate_x[i]);
            let have = compute(DimOp::Add, &compute(DimOp::Add, &have, &lo[i]), &hi[i]);
            let window = spread(&w.shape()[i + 2], dilate_w[i]);
            dims.push(windows(&have, &window, strides[i]));
        }
        Ok(vec![tensor(dims, elem)])
    }
}

pub(super) fn at_least_one(s: &Site<'_>, name: &str, len: usize) -> Result<Vec<i64>, Refusal> {
    let list = s.ints_or(name, len, 1)?;
    if list.iter().all(|&v| v >= 1) {
        return Ok(list);
    }
    Err(Refusal::structure(format!("expected `{name}` to hold numbers of 1 or more, got {list:?}")))
}

/// How many windows there are along an axis: none where not even one fits.
pub(super) fn windows(have: &Dim, window: &Dim, stride: i64) -> Dim {
    let over = compute(DimOp::Sub, have, window);
    let count = compute(DimOp::FloorDiv, &over, &Dim::Static(stride));
    let count = compute(DimOp::Add, &count, &Dim::Static(1));
    // Where the extents are known the sign is; where they are not, the run says.
    match count.as_static() {
        Some(v) => Dim::Static(v.max(0)),
        None => compute(DimOp::Max, &count, &Dim::Static(0)),
    }
}
