//! Sorting along an axis, and counting.

use crate::value::{Data, Elem, each_data};
use std::cmp::Ordering;

/// `x` has the shape outer × len × inner; the middle axis is sorted, and the second result says
/// where each element was. Equal elements keep their order; a NaN is above every number.
pub(crate) fn sort(x: &Data, len: usize, inner: usize, descending: bool) -> (Data, Data) {
    each_data!(x, xs => sorted(xs, len, inner, descending))
}

fn sorted<T: Elem + PartialOrd>(
    xs: &[T],
    len: usize,
    inner: usize,
    descending: bool,
) -> (Data, Data) {
    let order = |a: &T, b: &T| {
        let nan = |x: &T| x.partial_cmp(x).is_none();
        a.partial_cmp(b).unwrap_or_else(|| nan(a).cmp(&nan(b)))
    };
    let (mut out, mut places) = (xs.to_vec(), vec![0i32; xs.len()]);
    for slab in 0..xs.len() / (len * inner) {
        for column in 0..inner {
            let at = |i: usize| (slab * len + i) * inner + column;
            let mut by: Vec<usize> = (0..len).collect();
            by.sort_by(|&a, &b| {
                let found: Ordering = order(&xs[at(a)], &xs[at(b)]);
                if descending { found.reverse() } else { found }
            });
            for (i, &from) in by.iter().enumerate() {
                out[at(i)] = xs[at(from)];
                places[at(i)] = from as i32;
            }
        }
    }
    (T::wrap(out), Data::I32(places))
}

/// How often each number below `bins` is there.
pub(crate) fn histogram(values: &[i64], bins: usize) -> Data {
    let mut counts = vec![0i32; bins];
    for value in values {
        if let Some(count) = usize::try_from(*value).ok().and_then(|b| counts.get_mut(b)) {
            *count = count.wrapping_add(1);
        }
    }
    Data::I32(counts)
}
