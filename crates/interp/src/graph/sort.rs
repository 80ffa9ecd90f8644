//! Sorting along an axis.

use super::array::Array;
use super::reduce::around;
use crate::value::{Data, each_data};
use std::cmp::Ordering;

/// The first `keys` arrays decide; all follow. Equal elements keep their order.
pub fn sort(all: &[&Array], axis: usize, keys: usize, descending: bool) -> Option<Vec<Array>> {
    let first = all.first()?;
    let (outer, len, inner) = around(&first.dims, axis);
    let mut at: Vec<usize> = (0..first.len()).collect();
    let mut column = Vec::with_capacity(len);
    for start in (0..outer).flat_map(|o| (0..inner).map(move |i| o * len * inner + i)) {
        column.clear();
        column.extend((0..len).map(|k| start + k * inner));
        column.sort_by(|&a, &b| {
            let order = all[..keys]
                .iter()
                .map(|key| compare(&key.data, a, b))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        });
        for (k, &from) in column.iter().enumerate() {
            at[start + k * inner] = from;
        }
    }
    all.iter().map(|x| x.take(&x.dims, &at, None)).collect()
}

/// A NaN is greater than any number, and equal to a NaN.
fn compare(data: &Data, a: usize, b: usize) -> Ordering {
    each_data!(data, xs => {
        let (a, b) = (&xs[a], &xs[b]);
        let nan = |x: &_| PartialOrd::partial_cmp(x, x).is_none();
        a.partial_cmp(b).unwrap_or_else(|| nan(a).cmp(&nan(b)))
    })
}
