//! Scans along an axis, and the position of the largest or smallest element.

use crate::value::{Data, Elem, each_data};
use tessera_numerics::ReduceOp;

/// `x` has the shape outer × len × inner; every step along the middle axis is kept. `None` when the
/// operator does not take the type.
pub(crate) fn scan(
    x: &Data,
    op: ReduceOp,
    len: usize,
    inner: usize,
    exclusive: bool,
) -> Option<Data> {
    each_data!(x, xs => typed_scan(xs, op, len, inner, exclusive))
}

fn typed_scan<T: Elem>(
    xs: &[T],
    op: ReduceOp,
    len: usize,
    inner: usize,
    exclusive: bool,
) -> Option<Data> {
    let identity = T::from_scalar(op.identity(T::DTYPE)?)?;
    let join = T::binary(op.combine().kernel(T::DTYPE)?)?;
    let mut out = xs.to_vec();
    for slab in out.chunks_exact_mut(len * inner) {
        for i in 0..inner {
            let mut before = None;
            for x in slab[i..].iter_mut().step_by(inner) {
                // The first element is unchanged: nothing is combined with the identity.
                let with = before.map_or(*x, |b| join(b, *x));
                *x = if exclusive { before.unwrap_or(identity) } else { with };
                before = Some(with);
            }
        }
    }
    Some(T::wrap(out))
}

/// The middle axis is reduced; of equal elements the first counts, and a NaN before any number.
pub(crate) fn arg_reduce(x: &Data, max: bool, len: usize, inner: usize) -> Data {
    each_data!(x, xs => Data::I32(typed_arg(xs, max, len, inner)))
}

fn typed_arg<T: PartialOrd + Copy>(xs: &[T], max: bool, len: usize, inner: usize) -> Vec<i32> {
    let mut out = Vec::with_capacity(xs.len() / len);
    for slab in xs.chunks_exact(len * inner) {
        for i in 0..inner {
            let column = slab[i..].iter().step_by(inner).enumerate();
            let best = column.reduce(|best, next| {
                let (a, b) = (best.1, next.1);
                let nan = |x: &T| x.partial_cmp(x).is_none();
                let better = if max { b > a } else { b < a };
                if !nan(a) && (nan(b) || better) { next } else { best }
            });
            out.push(best.map_or(0, |(place, _)| place as i32));
        }
    }
    out
}
