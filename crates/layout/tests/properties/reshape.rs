use proptest::prelude::*;
use tessera_layout::Layout;

use crate::random::{config, coords, draws, is_padding, places};

fn number(shape: &[u32], coords: &[u32]) -> u32 {
    coords.iter().zip(shape).fold(0, |number, (at, extent)| number * extent + at)
}

fn assert_same_elements(from: &Layout, to: &Layout) {
    assert_eq!(from.regs(), to.regs());
    for place in places(from) {
        assert_eq!(is_padding(from, place), is_padding(to, place), "{place:?}");
        if !is_padding(from, place) {
            let old = number(from.shape(), &coords(from, place));
            assert_eq!(number(to.shape(), &coords(to, place)), old, "{place:?}");
        }
    }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn reshaping_keeps_every_element_in_place(mut draw in draws()) {
        let rank = draw.below(4);
        let layout = draw.layout(rank);
        let mut shape = layout.shape().to_vec();
        for _ in 0..draw.below(4) {
            let at = draw.below(shape.len() + 1);
            match shape.get(at).copied() {
                Some(extent) if at + 1 < shape.len() && draw.below(2) == 0 => {
                    shape.remove(at);
                    shape[at] *= extent;
                }
                Some(extent) if extent.is_multiple_of(2) => {
                    shape[at] = 2;
                    shape.insert(at + draw.below(2), extent / 2);
                }
                _ => shape.insert(at, 1),
            }
        }
        if let Some(result) = layout.reshape(&shape) {
            assert_same_elements(&layout, &result);
        }
    }

    #[test]
    fn powers_of_two_without_padding_always_reshape(mut draw in draws()) {
        let bits = 1 + draw.below(10);
        let mut split = || -> Vec<u32> {
            let mut rest = bits;
            let mut shape: Vec<u32> = (0..draw.below(3)).map(|_| {
                let here = draw.below(rest + 1);
                rest -= here;
                1 << here
            }).collect();
            shape.insert(draw.below(shape.len() + 1), 1 << rest);
            shape
        };
        let (old, new) = (split(), split());
        let layout = Layout::coalesced(&old, None, 2, 4, 1, None);
        let result = layout.reshape(&new).expect("every position is bits");
        assert_same_elements(&layout, &result);
    }
}

#[test]
fn dims_of_any_extent_reshape_where_bits_allow() {
    let cases: [(&[u32], &[u32], bool); 8] = [
        (&[6, 64], &[3, 128], true),
        (&[6, 64], &[384], true),
        (&[384], &[6, 64], true),
        (&[5, 8], &[5, 2, 4], true),
        (&[5, 8], &[1, 5, 8, 1], true),
        (&[8, 5], &[2, 4, 5], true),
        (&[64, 3], &[192], false),
        (&[4, 4], &[15], false),
    ];
    for (old, new, possible) in cases {
        let layout = Layout::coalesced(old, None, 1, 1, 1, None);
        let result = layout.reshape(new);
        assert_eq!(result.is_some(), possible, "{old:?} to {new:?}: {layout}");
        if let Some(result) = result {
            assert_same_elements(&layout, &result);
        }
    }
}

#[test]
fn an_accumulator_splits_into_heads() {
    let acc = Layout::mma_acc(&[64, 176], [4, 1]);
    let heads = acc.reshape(&[4, 16, 22, 8]).unwrap();
    assert_same_elements(&acc, &heads);
    assert_eq!(heads.repeat(), [1, 1, 22, 1]);
    assert_eq!(heads.reshape(&[64, 176]), Some(acc));
}
