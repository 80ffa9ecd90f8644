use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tessera_layout::{LANES, Layout, Shared, Swizzle, best_shared_for};

use crate::random::{Draw, config, coords, draws, elements, is_padding, places};

fn random_shared(draw: &mut Draw, shape: &[u32]) -> Shared {
    let order = draw.permutation(shape.len());
    let mut shared = Shared::ordered(shape, &order, 1 << draw.below(4));
    match draw.below(4) {
        0 => {}
        1 => shared.pad = 1 + draw.below(8) as u32,
        2 => {
            shared.swizzle = Some(Swizzle {
                base: (2 + draw.below(3) as u32).max(shared.elem_bytes.ilog2()),
                bits: 1 + draw.below(4) as u32,
                shift: 1 + draw.below(5) as u32,
            })
        }
        _ => {
            let span = 32 << draw.below(3);
            shared = Shared::swizzled(shape, &order, shared.elem_bytes, span);
        }
    }
    shared
}

/// Whether every run of `vector` registers is one aligned stretch of memory.
fn is_vector(shared: &Shared, layout: &Layout, vector: u32) -> bool {
    let bytes = vector * shared.elem_bytes;
    (0..layout.ctas()).all(|cta| {
        (0..layout.warps()).all(|warp| {
            (0..LANES).all(|lane| {
                (0..layout.regs() / vector).all(|at| {
                    let offset = |reg| {
                        let padding = layout.is_padding(reg, lane, warp, cta);
                        (!padding).then(|| shared.offset(&layout.coords(reg, lane, warp, cta)))
                    };
                    let first = offset(at * vector);
                    first.is_none_or(|first| first % bytes == 0)
                        && (0..vector).all(|next| {
                            offset(at * vector + next)
                                == first.map(|f| f + next * shared.elem_bytes)
                        })
                })
            })
        })
    }) && layout.regs().is_multiple_of(vector)
}

/// Extra wavefronts, counted for every access of every warp with sets of words for each bank.
fn conflicts(shared: &Shared, layout: &Layout, vector: u32) -> (u32, u32) {
    let bytes = vector * shared.elem_bytes;
    let served_together = if bytes == 16 {
        8
    } else if bytes == 8 {
        16
    } else {
        32
    };
    let (mut worst, mut all) = (0, 0);
    for cta in 0..layout.ctas() {
        for warp in 0..layout.warps() {
            for reg in (0..layout.regs()).step_by(vector as usize) {
                let mut extra = 0;
                for first in (0..LANES).step_by(served_together) {
                    let mut banks: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
                    for lane in first..first + served_together as u32 {
                        if layout.is_padding(reg, lane, warp, cta) {
                            continue;
                        }
                        let at = shared.offset(&layout.coords(reg, lane, warp, cta));
                        for byte in at..at + bytes {
                            banks.entry(byte / 4 % 32).or_default().insert(byte / 4);
                        }
                    }
                    let wavefronts = banks.values().map(BTreeSet::len).max().unwrap_or(0) as u32;
                    extra += wavefronts.saturating_sub(1);
                    all += if cta == 0 { wavefronts } else { 0 };
                }
                worst = worst.max(extra);
            }
        }
    }
    (worst, all)
}

/// Of the memories that a conversion chooses from.
fn random_candidate(draw: &mut Draw, shape: &[u32], elem_bytes: u32) -> Shared {
    let long: Vec<usize> = (0..shape.len()).filter(|&dim| shape[dim] > 1).collect();
    let fast = match long.len() {
        0 => shape.len() - 1,
        n => long[draw.below(n)],
    };
    let slower = (0..shape.len()).rev().filter(|&dim| dim != fast);
    let order: Vec<usize> = [fast].into_iter().chain(slower).collect();
    let mut shared = Shared::ordered(shape, &order, elem_bytes);
    let size = shared.bytes().next_power_of_two().ilog2();
    match draw.below(3) {
        0 => {}
        1 if shape.len() > 1 => shared.pad = ([4, 8, 16][draw.below(3)] / elem_bytes).max(1),
        _ => {
            let base = elem_bytes.max(4).ilog2().max(2 + draw.below(3) as u32);
            let shift = 7 - base + draw.below(4) as u32;
            if base + shift < size {
                let bits = (7 - base).min(size - base - shift);
                shared.swizzle = Some(Swizzle { base, bits, shift });
            }
        }
    }
    shared
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn no_candidate_beats_the_best_memory_of_a_conversion(mut draw in draws()) {
        let rank = 1 + draw.below(3);
        let from = draw.layout(rank);
        let to = draw.variant(&from);
        let bytes = 1 << draw.below(4);
        let cost = |shared: &Shared| {
            let of = |layout: &Layout| shared.wavefronts(layout, shared.vector(layout));
            (of(&from) + of(&to), shared.bytes())
        };
        let best = best_shared_for(&from, &to, bytes);
        for _ in 0..12 {
            let other = random_candidate(&mut draw, from.shape(), bytes);
            prop_assert!(cost(&best) <= cost(&other), "{} and {}", best, other);
        }
    }

    #[test]
    fn registers_reach_from_their_lowest_to_their_highest_element(mut draw in draws()) {
        let rank = draw.below(4);
        let layout = draw.layout(rank);
        let shared = random_shared(&mut draw, layout.shape());
        let mut expected = vec![(u32::MAX, 0); layout.regs() as usize];
        for place in places(&layout).filter(|&place| !is_padding(&layout, place)) {
            let at = shared.offset(&coords(&layout, place));
            let reach = &mut expected[place.reg as usize];
            *reach = (reach.0.min(at), reach.1.max(at));
        }
        prop_assert_eq!(shared.reach(&layout), expected);
    }

    #[test]
    fn elements_have_places_of_their_own(mut draw in draws()) {
        let rank = draw.below(4);
        let shape = draw.shape(rank, 12);
        let shared = random_shared(&mut draw, &shape);
        let mut offsets = BTreeSet::new();
        for element in elements(&shape) {
            let offset = shared.offset(&element);
            prop_assert!(offset.is_multiple_of(shared.elem_bytes));
            prop_assert!(offset + shared.elem_bytes <= shared.bytes());
            prop_assert!(offsets.insert(offset), "{:?} shares a place", element);
        }
    }

    #[test]
    fn vectors_are_contiguous_and_conflicts_are_counted(mut draw in draws()) {
        let rank = draw.below(3);
        let layout = if draw.below(2) == 0 {
            draw.layout(rank)
        } else {
            let shape = draw.shape(rank, 40);
            Layout::coalesced(&shape, (0..rank).last(), 4, 2, 1, None)
        };
        let shared = random_shared(&mut draw, layout.shape());
        let vector = shared.vector(&layout);
        prop_assert!(vector * shared.elem_bytes <= 16 && is_vector(&shared, &layout, vector));
        let (worst, all) = conflicts(&shared, &layout, vector);
        prop_assert_eq!(shared.conflicts(&layout, vector), worst);
        prop_assert_eq!(shared.wavefronts(&layout, vector), all);
        let (worst, _) = conflicts(&shared, &layout, 1);
        prop_assert_eq!(shared.conflicts(&layout, 1), worst);
    }
}

#[test]
fn swizzled_spans_are_those_of_tma() {
    // Rows of 128 bytes: 16-byte pieces are permuted by the row modulo 8.
    let shared = Shared::swizzled(&[16, 64], &[1, 0], 2, 128);
    for row in 0..16 {
        for col in 0..64 {
            let expected = row * 128 + (((col / 8) ^ (row % 8)) * 8 + col % 8) * 2;
            assert_eq!(shared.offset(&[row, col]), expected);
        }
    }
    assert_eq!((shared.bytes(), shared.align()), (2048, 1024));
    // Longer rows are cut into panels.
    let wide = Shared::swizzled(&[16, 128], &[1, 0], 2, 128);
    assert_eq!(wide.offset(&[3, 64 + 5]), 2048 + shared.offset(&[3, 5]));
    assert_eq!(wide.bytes(), 4096);
    let narrow = Shared::swizzled(&[16, 16], &[1, 0], 2, 32);
    assert_eq!(narrow.offset(&[4, 0]), 4 * 32 + 16);
}

/// Each CTA has its part at the offsets that a memory of that part alone would have.
#[test]
fn divided_memory_is_that_of_each_part() {
    for span in [None, Some(32), Some(128)] {
        let memory = |shape: &[u32]| match span {
            None => Shared::row_major(shape, 2),
            Some(span) => Shared::swizzled(shape, &[1, 0], 2, span),
        };
        let (part, whole) = (memory(&[8, 64]), memory(&[8, 256]).divided(4).unwrap());
        assert_eq!((whole.part(), whole.bytes()), (64, part.bytes()));
        for element in elements(&[8, 256]) {
            assert_eq!(whole.offset(&element), part.offset(&[element[0], element[1] % 64]));
        }
    }
    assert_eq!(Shared::row_major(&[8, 100], 2).divided(8), None);
}

#[test]
fn known_conflicts_are_counted() {
    let rows = Layout::coalesced(&[32, 32], Some(1), 1, 1, 1, None);
    let cols = Layout::coalesced(&[32, 32], Some(0), 1, 1, 1, None);
    let plain = Shared::row_major(&[32, 32], 4);
    assert_eq!((plain.conflicts(&rows, 1), plain.conflicts(&cols, 1)), (0, 31));
    let padded = Shared { pad: 1, ..plain.clone() };
    assert_eq!((padded.conflicts(&rows, 1), padded.conflicts(&cols, 1)), (0, 0));
    assert_eq!(padded.wavefronts(&cols, 1), 32);
    // Sixteen bytes for each lane are four quarter warps without conflict.
    let wide = Layout::coalesced(&[32, 32], Some(1), 4, 1, 1, None);
    assert_eq!((plain.vector(&wide), plain.conflicts(&wide, 4)), (4, 0));
    assert_eq!(padded.vector(&wide), 1);
}

#[test]
fn the_best_memory_of_a_transposition_has_no_conflicts_and_no_waste() {
    let sizes = [([32, 32], 4), ([64, 64], 2), ([128, 64], 4), ([64, 128], 1), ([64, 64], 8)];
    for (shape, bytes) in sizes {
        let rows = Layout::coalesced(&shape, Some(1), 16 / bytes, 4, 1, None);
        let cols = Layout::coalesced(&shape, Some(0), 1, 4, 1, None);
        let best = best_shared_for(&rows, &cols, bytes);
        assert_eq!(best.conflicts(&rows, best.vector(&rows)), 0, "{best} {shape:?}");
        assert_eq!(best.conflicts(&cols, best.vector(&cols)), 0, "{best} {shape:?}");
        assert_eq!(best.bytes(), shape[0] * shape[1] * bytes);
    }
}

#[test]
fn nothing_beats_row_major_where_it_is_free() {
    let rows = Layout::coalesced(&[64, 64], Some(1), 4, 4, 1, None);
    assert_eq!(best_shared_for(&rows, &rows, 4), Shared::row_major(&[64, 64], 4));
}
