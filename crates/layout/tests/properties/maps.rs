use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_layout::{Layout, Place};

use crate::random::{config, coords, draws, elements, is_padding, layouts, places};

fn covers(layout: &Layout) -> bool {
    elements(layout.shape()).iter().all(|element| !layout.holds(element).is_empty())
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn transposing_permutes_coordinates_and_its_inverse_undoes_it(mut draw in draws()) {
        let layout = draw.layout(3);
        let perm = draw.permutation(3);
        let result = layout.transpose(&perm);
        for place in places(&layout) {
            let old = coords(&layout, place);
            let expected: Vec<u32> = perm.iter().map(|&dim| old[dim]).collect();
            prop_assert_eq!(coords(&result, place), expected);
        }
        let mut inverse = vec![0; 3];
        perm.iter().enumerate().for_each(|(new, &old)| inverse[old] = new);
        prop_assert_eq!(result.transpose(&inverse), layout);
    }

    #[test]
    fn squeezing_undoes_expanding(layout in layouts(), pick in 0usize..4) {
        let axis = pick % (layout.rank() + 1);
        let expanded = layout.expand(axis);
        for place in places(&layout) {
            let mut expected = coords(&layout, place);
            expected.insert(axis, 0);
            prop_assert_eq!(coords(&expanded, place), expected);
        }
        prop_assert_eq!(expanded.squeeze(axis), Some(layout));
    }

    #[test]
    fn reducing_projects_every_place(mut draw in draws()) {
        let rank = 1 + draw.below(3);
        let layout = draw.layout(rank);
        let axis = draw.below(rank);
        let (result, regs) = (layout.reduce(axis), layout.reduce_regs(axis));
        for place in places(&layout) {
            let mut expected = coords(&layout, place);
            expected.remove(axis);
            let reg = regs[place.reg as usize];
            prop_assert_eq!(coords(&result, Place { reg, ..place }), expected);
        }
        prop_assert!(covers(&result));
        // No register is left that holds what another one does.
        let mut parts: Vec<_> = (0..result.regs()).map(|reg| result.reg_part(reg)).collect();
        parts.sort();
        parts.dedup();
        prop_assert_eq!(parts.len(), result.regs() as usize);
    }

    #[test]
    fn reduction_steps_count_every_element_once(mut draw in draws()) {
        let rank = 1 + draw.below(3);
        let layout = draw.layout(rank);
        let axis = draw.below(rank);
        let (result, regs) = (layout.reduce(axis), layout.reduce_regs(axis));
        let copied = layout.reg_replicas();
        let mut sums: BTreeMap<Place, Vec<Vec<u32>>> =
            places(&result).map(|place| (place, Vec::new())).collect();
        for place in places(&layout).filter(|&place| !is_padding(&layout, place)) {
            let bits = place.reg % layout.atom_regs();
            if (0..copied.len()).all(|bit| !copied[bit] || bits >> bit & 1 == 0) {
                let reg = regs[place.reg as usize];
                sums.get_mut(&Place { reg, ..place }).unwrap().push(coords(&layout, place));
            }
        }
        let steps = layout.reduce_steps(axis);
        prop_assert!(steps.is_sorted_by_key(|step| (step.cta > 0, step.warp > 0)));
        for step in steps {
            let old = sums.clone();
            for (place, sum) in &mut sums {
                let other = Place {
                    cta: place.cta ^ step.cta,
                    warp: place.warp ^ step.warp,
                    lane: place.lane ^ step.lane,
                    reg: place.reg ^ step.reg,
                };
                sum.extend(old[&other].iter().cloned());
            }
        }
        for (place, mut sum) in sums.into_iter().filter(|&(place, _)| !is_padding(&result, place)) {
            sum.sort();
            let mut element = coords(&result, place);
            element.insert(axis, 0);
            let expected: Vec<_> = (0..layout.shape()[axis])
                .map(|at| {
                    element[axis] = at;
                    element.clone()
                })
                .collect();
            prop_assert_eq!(sum, expected);
        }
    }

    #[test]
    fn broadcasting_moves_nothing(mut draw in draws()) {
        let layout = draw.layout(3);
        let stretched: Vec<bool> = (0..3).map(|_| draw.below(2) == 0).collect();
        let shape: Vec<u32> = (layout.shape().iter().zip(&stretched))
            .map(|(&extent, &stretched)| if stretched { 1 } else { extent })
            .collect();
        let (operand, regs) = (layout.broadcast_from(&shape), layout.broadcast_regs(&shape));
        prop_assert_eq!(operand.shape(), &shape[..]);
        for place in places(&layout) {
            let mut expected = coords(&layout, place);
            for dim in 0..3 {
                if shape[dim] != layout.shape()[dim] {
                    expected[dim] = 0;
                }
            }
            let reg = regs[place.reg as usize];
            prop_assert_eq!(coords(&operand, Place { reg, ..place }), expected);
        }
        prop_assert!(covers(&operand));
    }

    #[test]
    fn register_maps_are_right_and_found_when_there_is_one(mut draw in draws()) {
        let rank = draw.below(3);
        let from = draw.layout(rank);
        let to = if draw.below(3) == 0 {
            from.clone().with_order(&draw.permutation(rank)).unwrap()
        } else {
            draw.variant(&from)
        };
        // A register of `to` has a source when some register of `from` agrees in all threads.
        let sources: Vec<Vec<u32>> = (0..to.regs())
            .map(|reg| {
                let wanted: Vec<Place> = places(&to)
                    .filter(|&place| place.reg == reg && !is_padding(&to, place))
                    .collect();
                let agrees = |source: &u32| wanted.iter().all(|&place| {
                    coords(&from, Place { reg: *source, ..place }) == coords(&to, place)
                });
                (0..from.regs()).filter(agrees).collect()
            })
            .collect();
        match Layout::reg_map(&from, &to) {
            Some(map) => {
                prop_assert_eq!(map.len(), sources.len());
                prop_assert!(map.iter().zip(&sources).all(|(reg, all)| all.contains(reg)));
            }
            None => prop_assert!(sources.iter().any(Vec::is_empty)),
        }
    }
}

#[test]
fn a_dim_wider_than_its_one_element_is_not_squeezed() {
    let layout = Layout::mma_acc(&[1, 8], [1, 1]);
    assert_eq!(layout.squeeze(0), None);
    assert_eq!(layout.reduce(0).shape(), [8]);
}

#[test]
fn layouts_of_other_threads_have_no_register_map() {
    let [one, two] = [1, 2].map(|warps| Layout::mma_acc(&[32, 8], [warps, 1]));
    assert_eq!(Layout::reg_map(&one, &two), None);
}

#[test]
fn rows_of_an_accumulator_are_summed_by_butterflies() {
    let steps = |layout: Layout, axis: usize| -> Vec<[u32; 3]> {
        let steps = layout.reduce_steps(axis).into_iter();
        steps.map(|step| [step.reg, step.lane, step.warp]).collect()
    };
    let acc = || Layout::mma_acc(&[64, 32], [2, 2]);
    assert_eq!(steps(acc(), 1), [[0, 1, 0], [0, 2, 0], [0, 0, 2]]);
    assert_eq!(steps(acc(), 0), [[0, 4, 0], [0, 8, 0], [0, 16, 0], [0, 0, 1]]);
}
