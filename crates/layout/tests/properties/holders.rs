use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_layout::{In, LANES, Layout, LayoutError};

use crate::random::{config, coords, draws, elements, is_padding, layouts, places};

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn holders_are_the_inverse_of_coordinates(layout in layouts()) {
        let mut held = BTreeMap::new();
        for place in places(&layout).filter(|&place| !is_padding(&layout, place)) {
            held.entry(coords(&layout, place)).or_insert_with(Vec::new).push(place);
        }
        for element in elements(layout.shape()) {
            let mut expected = held.remove(&element).expect("every element is held");
            expected.sort_unstable();
            prop_assert_eq!(&layout.holds(&element), &expected);
            prop_assert!(expected.contains(&layout.owner(&element).unwrap()));
        }
        prop_assert!(held.is_empty());
        // Outside the shape, but for a tile of no dims, which has no outside.
        prop_assert!(layout.rank() == 0 || layout.holds(layout.shape()).is_empty());
    }

    #[test]
    fn an_element_has_one_owner_thread(layout in layouts()) {
        let (lane, warp, cta) = layout.replicas();
        let zero = |bits: &[bool], number: u32| {
            bits.iter().enumerate().all(|(bit, &copied)| !copied || number >> bit & 1 == 0)
        };
        let copied = layout.reg_replicas();
        for element in elements(layout.shape()) {
            let owners: Vec<_> = layout
                .holds(&element)
                .into_iter()
                .filter(|p| zero(&lane, p.lane) && zero(&warp, p.warp) && zero(&cta, p.cta))
                .filter(|p| zero(&copied, p.reg % layout.atom_regs()))
                .collect();
            prop_assert_eq!(owners, vec![layout.owner(&element).unwrap()]);
        }
    }

    #[test]
    fn register_parts_add_up(layout in layouts()) {
        let padded = places(&layout).any(|place| is_padding(&layout, place));
        prop_assert_eq!(padded, layout.has_padding());
        for place in places(&layout) {
            let offset = layout.reg_offset(place.reg);
            let thread = layout.coords(0, place.lane, place.warp, place.cta);
            for (dim, at) in coords(&layout, place).into_iter().enumerate() {
                prop_assert_eq!(at, offset.add[dim] + (offset.xor[dim] ^ thread[dim]));
                if layout.disjoint() {
                    prop_assert_eq!(at, offset.add[dim] + offset.xor[dim] + thread[dim]);
                }
            }
        }
    }

    #[test]
    fn runs_are_the_longest_of_their_kind(layout in layouts()) {
        for dim in 0..layout.rank() {
            let is_run = |run: u32| {
                layout.regs().is_multiple_of(run)
                    && layout.shape()[dim].is_multiple_of(run)
                    && places(&layout).all(|place| {
                        let mut expected = coords(&layout, place);
                        let place_in_run = place.reg % run;
                        let first = layout.coords(
                            place.reg - place_in_run, place.lane, place.warp, place.cta);
                        expected[dim] = first[dim] + place_in_run;
                        coords(&layout, place) == expected
                            && (first[dim].is_multiple_of(run))
                            && expected.iter().enumerate().all(|(d, &c)| d == dim || c == first[d])
                    })
            };
            let run = layout.run_along(dim);
            prop_assert!(is_run(run), "{run} along {dim}");
            prop_assert!(!is_run(2 * run), "more than {run} along {dim}");
        }
    }

    #[test]
    fn folding_keeps_every_place(layout in layouts()) {
        let folded = layout.folded();
        prop_assert_eq!(folded.regs(), layout.regs());
        for place in places(&layout) {
            prop_assert_eq!(coords(&folded, place), coords(&layout, place));
        }
    }

    #[test]
    fn an_order_of_repeats_only_renumbers(mut draw in draws()) {
        let layout = draw.layout(3);
        let other = layout.clone().with_order(&draw.permutation(3)).unwrap();
        let numbers = |layout: &Layout| {
            let mut all: Vec<_> = (0..layout.regs()).map(|reg| layout.reg_part(reg)).collect();
            all.sort();
            all
        };
        prop_assert_eq!(numbers(&layout), numbers(&other));
        let same = (0..layout.regs()).all(|reg| layout.reg_part(reg) == other.reg_part(reg));
        prop_assert_eq!(same, layout == other);
    }
}

#[test]
fn repeats_are_counted_row_major_unless_an_order_says_otherwise() {
    let lane = vec![vec![1, 0], vec![2, 0], vec![4, 0], vec![0, 1], vec![0, 2]];
    let layout = Layout::new(&[15, 9], vec![], lane, vec![], vec![], vec![2, 3]).unwrap();
    assert_eq!(layout.box_extents(), [8, 4]);
    assert_eq!((layout.regs(), layout.threads(), layout.ctas()), (6, LANES, 1));
    assert_eq!(layout.coords(1, 0, 0, 0), [0, 4]);
    assert_eq!(layout.coords(3, 31, 0, 0), [15, 3]);
    assert!(layout.is_padding(3, 31, 0, 0) && !layout.is_padding(3, 30, 0, 0));
    let turned = layout.clone().with_order(&[0, 1]).unwrap();
    assert_eq!(turned.coords(1, 0, 0, 0), [8, 0]);
    assert_eq!(turned.repeat_order(), [0, 1]);
    assert_eq!(layout.bases(In::Lane).len(), 5);
}

#[test]
fn what_is_no_layout_is_refused() {
    let lanes = |step: u32| (0..5).map(|bit| vec![step << bit]).collect::<Vec<_>>();
    let make = |shape: u32, lane, repeat| {
        Layout::new(&[shape], vec![], lane, vec![], vec![], vec![repeat]).unwrap_err()
    };
    assert_eq!(make(0, lanes(1), 1), LayoutError::EmptyDim { dim: 0 });
    assert_eq!(make(32, lanes(1)[..4].to_vec(), 1), LayoutError::Lanes { got: 4 });
    assert_eq!(make(64, lanes(2), 1), LayoutError::NotCovered { positions: 64, covered: 32 });
    assert_eq!(make(64, lanes(1), 3), LayoutError::Repeat { dim: 0, expected: 2, got: 3 });
    assert_eq!(make(64, vec![vec![1, 2]; 5], 1), LayoutError::Rank { expected: 1, got: 2 });
    assert_eq!(make(1 << 31, lanes(1), 1 << 27), LayoutError::TooLarge);
    let layout = Layout::new(&[32], vec![], lanes(1), vec![], vec![], vec![1]).unwrap();
    assert_eq!(layout.with_order(&[1]), Err(LayoutError::Order { rank: 1 }));
}
