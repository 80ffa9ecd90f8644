//! Reduction along an axis in the canonical order of LANGUAGE 14.

use crate::value::{Data, Elem, each_data};
use tessera_numerics::{CHUNK, LANES, ReduceOp, canonical_reduce};

/// `x` has the shape outer × len × inner; the middle axis is reduced. `None` when the operator does
/// not take the type.
pub fn reduce(x: &Data, op: ReduceOp, len: usize, inner: usize) -> Option<Data> {
    match (x, op) {
        // The sum inlined, so that it vectorises over the 64 partial results.
        (Data::F32(xs), ReduceOp::Sum) => {
            Some(Data::F32(along(xs, op, len, inner, -0.0, |a, b| a + b)?))
        }
        _ => each_data!(x, xs => general(xs, op, len, inner)),
    }
}

fn general<T: Elem>(xs: &[T], op: ReduceOp, len: usize, inner: usize) -> Option<Data> {
    let init = T::from_scalar(op.identity(T::DTYPE)?)?;
    let join = T::binary(op.combine().kernel(T::DTYPE)?)?;
    Some(T::wrap(along(xs, op, len, inner, init, join)?))
}

fn along<T: Elem>(
    xs: &[T],
    op: ReduceOp,
    len: usize,
    inner: usize,
    init: T,
    join: impl Fn(T, T) -> T + Copy,
) -> Option<Vec<T>> {
    let mut out = Vec::with_capacity(xs.len() / len);
    for slab in xs.chunks_exact(len * inner) {
        for i in 0..inner {
            let column = slab[i..].iter().step_by(inner).copied();
            out.push(match (len > CHUNK, inner) {
                (true, _) => canonical_reduce(op, column)?,
                (false, 1) => row(slab, init, join),
                (false, _) => one_chunk(column, init, join),
            });
        }
    }
    Some(out)
}

/// The canonical reduction of at most one chunk: element `i` into lane `i mod 64`, then halves.
fn one_chunk<T: Copy>(mut xs: impl Iterator<Item = T>, init: T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [init; LANES];
    'all: loop {
        for lane in &mut lanes {
            let Some(x) = xs.next() else { break 'all };
            *lane = join(*lane, x);
        }
    }
    fold(lanes, join)
}

/// The same over contiguous elements.
fn row<T: Copy>(xs: &[T], init: T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [init; LANES];
    for part in xs.chunks(LANES) {
        for (lane, &x) in lanes.iter_mut().zip(part) {
            *lane = join(*lane, x);
        }
    }
    fold(lanes, join)
}

fn fold<T: Copy>(mut lanes: [T; LANES], join: impl Fn(T, T) -> T) -> T {
    for h in [32, 16, 8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(h);
        low.iter_mut().zip(high).for_each(|(a, b)| *a = join(*a, *b));
    }
    lanes[0]
}
