//! The choice of shared memory layout for a conversion.

use crate::banks::{Addresses, BANKS, Held, WORD};
use crate::layout::Layout;
use crate::shared::{Shared, Swizzle, WIDEST};

/// The shared memory for converting between two layouts of a tile. Of row-major and other orders,
/// padded rows and swizzles it is the one with the fewest wavefronts, written and read; of equals
/// the smallest, then the simplest.
pub fn best_shared_for(write: &Layout, read: &Layout, elem_bytes: u32) -> Shared {
    best_below(write, read, elem_bytes, u32::MAX).expect("some memory has fewer wavefronts").1
}

/// [`best_shared_for`], and its wavefronts, if these are fewer than `below`.
fn best_below(write: &Layout, read: &Layout, elem_bytes: u32, below: u32) -> Option<(u32, Shared)> {
    assert_eq!(write.shape(), read.shape(), "a conversion keeps the shape");
    let ends = [(write, Held::new(write, 0)), (read, Held::new(read, 0))];
    let least: u32 = ends.iter().map(|(_, held)| held.least_wavefronts(elem_bytes)).sum();
    if least >= below {
        return None;
    }
    let mut plain: Vec<(Vec<usize>, u32, [Addresses; 2])> = Vec::new();
    let mut best: Option<(u32, u32, Shared)> = None;
    for shared in candidates(write.shape(), elem_bytes) {
        let bytes = shared.bytes();
        if best.as_ref().is_some_and(|best| best.0 == least && best.1 <= bytes) {
            continue;
        }
        let found =
            plain.iter().position(|(order, pad, _)| (order, *pad) == (&shared.order, shared.pad));
        let found = found.unwrap_or_else(|| {
            let addresses = ends.each_ref().map(|(_, held)| held.addresses(&shared));
            plain.push((shared.order.clone(), shared.pad, addresses));
            plain.len() - 1
        });
        let limit = best.as_ref().map_or(u32::MAX, |best| best.0);
        let mut wavefronts = 0;
        for ((layout, held), addresses) in ends.iter().zip(&plain[found].2) {
            let vector = shared.vector(layout);
            wavefronts +=
                held.accesses(&shared, addresses, vector, limit - wavefronts.min(limit)).wavefronts;
        }
        if best.as_ref().is_none_or(|best| (wavefronts, bytes) < (best.0, best.1)) {
            best = Some((wavefronts, bytes, shared));
        }
    }
    let (wavefronts, _, shared) = best.expect("row-major is always there");
    (wavefronts < below).then_some((wavefronts, shared))
}

/// Shared memory for a conversion with registers in any order: the orders of both ends, and the
/// memory between them.
pub struct Between {
    pub write: Layout,
    pub read: Layout,
    pub shared: Shared,
}

/// The cheapest in wavefronts, over all dims to order registers along and the orders as they are.
/// Reordering registers is free, or nearly so.
pub fn best_between(write: &Layout, read: &Layout, elem_bytes: u32) -> Between {
    let all = best_below(write, read, elem_bytes, u32::MAX);
    let (mut least, shared) = all.expect("some memory has fewer wavefronts");
    let mut best = Between { write: write.clone(), read: read.clone(), shared };
    for dim in 0..write.rank() {
        let ends = [write, read].map(|layout| layout.regs_along(dim));
        if [write, read] == [&ends[0], &ends[1]] {
            continue;
        }
        if let Some((wavefronts, shared)) = best_below(&ends[0], &ends[1], elem_bytes, least) {
            let [write, read] = ends;
            (least, best) = (wavefronts, Between { write, read, shared });
        }
    }
    best
}

/// The candidates, simplest first.
fn candidates(shape: &[u32], elem_bytes: u32) -> Vec<Shared> {
    let rank = shape.len();
    let long = (0..rank).rev().filter(|&dim| shape[dim] > 1);
    let mut orders: Vec<Vec<usize>> = long
        .map(|fast| [fast].into_iter().chain((0..rank).rev().filter(|&d| d != fast)).collect())
        .collect();
    if orders.is_empty() {
        orders.push((0..rank).rev().collect());
    }
    let plain: Vec<Shared> =
        orders.iter().map(|order| Shared::ordered(shape, order, elem_bytes)).collect();
    let mut all = plain.clone();
    for plain in &plain {
        let size = plain.bytes().next_power_of_two().ilog2();
        // Swizzles permute pieces of an access within the width of all banks, by any higher address
        // bits.
        for base in (elem_bytes.max(WORD).ilog2()..=WIDEST.ilog2()).rev() {
            let width = (BANKS * WORD).ilog2() - base;
            for shift in width..size.saturating_sub(base) {
                let bits = width.min(size - base - shift);
                all.push(Shared { swizzle: Some(Swizzle { base, bits, shift }), ..plain.clone() });
            }
        }
    }
    for plain in plain.iter().filter(|_| rank > 1) {
        for bytes in [4, 8, 16].into_iter().filter(|&bytes| bytes >= elem_bytes) {
            all.push(Shared { pad: bytes / elem_bytes, ..plain.clone() });
        }
    }
    all
}
