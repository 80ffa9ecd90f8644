//! Reductions and scans along axes.

use super::array::{Array, convert, store};
use super::fold::{accumulator, in_accumulator, is_narrow, join};
use super::shape::{reverse, transpose};
use crate::value::{Data, Elem, each_data};
use std::sync::Arc;
use tessera_numerics::{Canonical, Carrier, DType, ReduceOp, Scalar};

/// The reduced axes are brought to the end, where they are one axis in row-major order.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn reduce(x: &Array, op: ReduceOp, axes: &[usize]) -> Option<Array> {
    let kept: Vec<_> = (0..x.dims.len()).filter(|axis| !axes.contains(axis)).collect();
    let dims: Vec<_> = kept.iter().map(|&axis| x.dims[axis]).collect();
    let len: usize = axes.iter().map(|&axis| x.dims[axis]).product();
    let perm: Vec<_> = kept.iter().chain(axes).copied().collect();
    let accum = accumulator(x, op);
    let data = in_accumulator(&transpose(x, &perm)?, accum)?;
    let rows: usize = dims.iter().product();
    let done = if len == 0 || rows == 0 {
        // As in Python: a sum begins with −0.0, but the sum of nothing is +0.0.
        let nothing = match op {
            ReduceOp::Sum => Scalar::zero(accum.carrier()),
            ReduceOp::Max
            | ReduceOp::Min
            | ReduceOp::Prod
            | ReduceOp::And
            | ReduceOp::Or
            | ReduceOp::Xor => op.identity(accum.carrier())?,
        };
        Data::fill(nothing, rows)
    } else if is_narrow(accum) {
        narrow(&data, op, accum, len)?
    } else {
        crate::reduce::reduce(&data, op, len, 1)?
    };
    let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min);
    let data = store(Arc::new(done), accum, x.elem, clamp)?;
    Some(Array { dims, elem: x.elem, data })
}

/// The canonical reduction with every step rounded to the accumulator.
fn narrow(data: &Data, op: ReduceOp, accum: DType, len: usize) -> Option<Data> {
    let identity = op.identity(accum.carrier())?;
    let step = |a: Option<Scalar>, b: Option<Scalar>| join(op, accum, a?, b?);
    let mut out = Vec::with_capacity(data.len() / len);
    for row in 0..data.len() / len {
        let mut acc = Canonical::new(Some(identity), step);
        (row * len..(row + 1) * len).for_each(|i| acc.push(data.at(i)));
        out.push(acc.finish()?);
    }
    collect(&out, accum.carrier())
}

/// Scalars of one carrier as an array's elements.
pub fn collect(all: &[Scalar], carrier: DType) -> Option<Data> {
    let mut out = Data::fill(Scalar::zero(carrier), all.len());
    each_data!(&mut out, xs => {
        for (x, &s) in xs.iter_mut().zip(all) {
            *x = Carrier::from_scalar(s)?;
        }
    });
    Some(out)
}

/// The extents before, along and after an axis.
pub fn around(dims: &[usize], axis: usize) -> (usize, usize, usize) {
    (dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product())
}

pub fn arg_reduce(x: &Array, max: bool, axis: usize) -> Option<Array> {
    let (outer, len, inner) = around(&x.dims, axis);
    let mut dims = x.dims.clone();
    dims.remove(axis);
    let places = match outer * inner {
        0 => Data::I32(Vec::new()),
        _ => crate::scan::arg_reduce(&x.data, max, len, inner),
    };
    let data = convert(&Arc::new(places), DType::I32, DType::I64)?;
    Some(Array { dims, elem: DType::I64.into(), data })
}

pub fn scan(x: &Array, op: ReduceOp, axis: usize, exclusive: bool, back: bool) -> Option<Array> {
    if x.len() == 0 {
        return Some(x.clone());
    }
    if back {
        let turned = scan(&reverse(x, &[axis])?, op, axis, exclusive, false)?;
        return reverse(&turned, &[axis]);
    }
    let (_, len, inner) = around(&x.dims, axis);
    let accum = accumulator(x, op);
    let data = in_accumulator(x, accum)?;
    let done = if is_narrow(accum) {
        narrow_scan(&data, op, accum, (len, inner), exclusive)?
    } else {
        crate::scan::scan(&data, op, len, inner, exclusive)?
    };
    let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min);
    Some(Array { data: store(Arc::new(done), accum, x.elem, clamp)?, ..x.clone() })
}

fn narrow_scan(
    data: &Data,
    op: ReduceOp,
    accum: DType,
    (len, inner): (usize, usize),
    exclusive: bool,
) -> Option<Data> {
    let identity = op.identity(accum.carrier())?;
    let mut out = vec![identity; data.len()];
    for start in (0..data.len()).filter(|i| i / inner % len == 0) {
        let mut before: Option<Scalar> = None;
        for k in 0..len {
            let i = start + k * inner;
            let x = data.at(i)?;
            let with = match before {
                Some(b) => join(op, accum, b, x)?,
                None => x,
            };
            out[i] = if exclusive { before.unwrap_or(identity) } else { with };
            before = Some(with);
        }
    }
    collect(&out, accum.carrier())
}

/// Which of two elements of one array a `max` or `min` selects: the later only where it is better,
/// or the first NaN.
pub fn better(data: &Data, best: usize, next: usize, max: bool) -> bool {
    each_data!(data, xs => is_better(xs, best, next, max))
}

fn is_better<T: Elem + PartialOrd>(xs: &[T], best: usize, next: usize, max: bool) -> bool {
    let (a, b) = (xs[best], xs[next]);
    let nan = |x: &T| x.partial_cmp(x).is_none();
    let wins = if max { b > a } else { b < a };
    !nan(&a) && (nan(&b) || wins)
}
