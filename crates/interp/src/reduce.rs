//! Reduction along an axis in the canonical order of LANGUAGE 14.

use crate::value::{Data, Elem, each_data};
use tessera_numerics::{CHUNK, LANES, ReduceOp, canonical_reduce};

/// `x` has the shape outer × len × inner; the middle axis is reduced. `None` when the operator does
/// not take the type.
pub(crate) fn reduce(x: &Data, op: ReduceOp, len: usize, inner: usize) -> Option<Data> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_gives_the_bits_of_the_canonical_reduction() {
        for len in [1, 2, 63, 64, 65, 1000, CHUNK, CHUNK + 1] {
            let xs: Vec<f32> =
                (0..len * 2).map(|i| ((i * 7919) % 1013) as f32 / 3.0 - 99.0).collect();
            for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
                let rows = reduce(&Data::F32(xs.clone()), op, len, 1).unwrap();
                let wanted =
                    xs.chunks(len).map(|r| canonical_reduce(op, r.iter().copied()).unwrap());
                assert_eq!(bits(&rows), wanted.map(f32::to_bits).collect::<Vec<_>>(), "{op} {len}");
                let columns = reduce(&Data::F32(xs.clone()), op, len, 2).unwrap();
                let wanted = [0, 1].map(|i| {
                    canonical_reduce(op, xs[i..].iter().step_by(2).copied()).unwrap().to_bits()
                });
                assert_eq!(bits(&columns), wanted, "{op} {len}");
            }
        }
    }

    fn bits(data: &Data) -> Vec<u32> {
        f32::of(data).unwrap().iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn operators_that_do_not_take_a_type_are_refused() {
        assert!(reduce(&Data::F32(vec![1.0]), ReduceOp::Xor, 1, 1).is_none());
        assert_eq!(
            reduce(&Data::Bool(vec![true, false]), ReduceOp::Or, 2, 1),
            Some(Data::Bool(vec![true]))
        );
    }
}
