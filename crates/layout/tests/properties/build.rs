use proptest::prelude::*;
use tessera_layout::{Blocked, In, Layout};

use crate::random::{Draw, config, draws, elements};

fn assert_covers(layout: &Layout) {
    for element in elements(layout.shape()) {
        assert!(!layout.holds(&element).is_empty(), "{element:?} in {layout}");
    }
}

/// Powers of two with the product 2^bits.
fn split(draw: &mut Draw, rank: usize, bits: u32) -> Vec<u32> {
    let mut counts = vec![1; rank];
    (0..bits).for_each(|_| counts[draw.below(rank)] *= 2);
    counts
}

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn blocked_layouts_cover_and_stay_in_the_padded_box(mut draw in draws()) {
        let rank = 1 + draw.below(3);
        let shape = draw.shape(rank, 40);
        let ctas = split(&mut draw, rank, 1);
        let [vector, lanes, warps] = [2, 5, 2].map(|bits| split(&mut draw, rank, bits));
        let order = draw.permutation(rank);
        let layout = Layout::blocked(&shape, &Blocked { vector, lanes, warps, ctas, order });
        assert_covers(&layout);
        prop_assert_eq!((layout.threads(), layout.ctas()), (128, 2));
        for (&reach, extent) in layout.box_extents().iter().zip(shape) {
            prop_assert!(reach <= extent.next_power_of_two());
        }
        prop_assert!(layout.disjoint());
    }

    #[test]
    fn coalesced_layouts_cover_and_use_their_threads(mut draw in draws()) {
        let rank = draw.below(4);
        let shape = draw.shape(rank, 40);
        let contiguous = (0..rank).nth(draw.below(rank + 1));
        let cta_dim = (0..rank).nth(draw.below(rank + 1));
        let (vector, warps, ctas) = (1 << draw.below(4), 1 << draw.below(4), 1 << draw.below(2));
        let layout = Layout::coalesced(&shape, contiguous, vector, warps, ctas, cta_dim);
        assert_covers(&layout);
        prop_assert_eq!((layout.warps(), layout.ctas()), (warps, ctas));
        // A thread holds copies only where the threads outnumber the padded tile.
        let padded: u32 = shape.iter().map(|extent| extent.next_power_of_two()).product();
        if padded >= 32 * warps * ctas * 2 && ctas == 1 {
            let (lane, warp, _) = layout.replicas();
            prop_assert!(!lane.contains(&true) && !warp.contains(&true), "{}", layout);
        }
    }
}

#[test]
fn bits_are_given_out_vector_lanes_warps_ctas() {
    let spec = Blocked {
        vector: vec![1, 4],
        lanes: vec![4, 8],
        warps: vec![2, 1],
        ctas: vec![2, 1],
        order: vec![1, 0],
    };
    let text = "[reg 0,1 0,2 8,0 16,0; lane 0,4 0,8 0,16 1,0 2,0; warp 4,0; cta 32,0; repeat 1,2]";
    assert_eq!(Layout::blocked(&[64, 64], &spec).to_string(), text);
    // Along 40 rows the ctas take blocks in turn; 8 columns have no place for all lanes.
    let text = "[reg 0,1 0,2; lane 0,4 0,0 0,0 1,0 2,0; warp 4,0; cta 8,0; repeat 3,1]";
    assert_eq!(Layout::blocked(&[40, 8], &spec).to_string(), text);
}

#[test]
fn coalesced_layouts_follow_memory() {
    let text = |shape: &[u32], contiguous, vector, warps| {
        Layout::coalesced(shape, contiguous, vector, warps, 1, None).to_string()
    };
    assert_eq!(
        text(&[64, 64], Some(1), 4, 4),
        "[reg 0,1 0,2; lane 0,4 0,8 0,16 0,32 1,0; warp 2,0 4,0; repeat 8,1]"
    );
    assert_eq!(
        text(&[64, 64], Some(0), 4, 4),
        "[reg 1,0 2,0; lane 4,0 8,0 16,0 32,0 0,1; warp 0,2 0,4; repeat 1,8; order 1,0]"
            .replace("; order 1,0", "")
    );
    // One row: warps go along it. Its tail is padding, since the waste is small.
    assert_eq!(text(&[1000], Some(0), 4, 2), "[reg 1 2; lane 4 8 16 32 64; warp 128; repeat 4]");
    // 48 columns are 3 x 16 rather than 64.
    assert_eq!(
        text(&[32, 48], Some(1), 4, 1),
        "[reg 0,1 0,2; lane 0,4 0,8 1,0 2,0 4,0; repeat 4,3]"
    );
    // Too few elements for vectors of four, then for all threads.
    assert_eq!(text(&[64], Some(0), 4, 1), "[reg 1; lane 2 4 8 16 32]");
    assert_eq!(text(&[5], Some(0), 4, 2), "[lane 1 2 4 0 0; warp 0]");
    assert_eq!(text(&[], None, 1, 2), "[lane . . . . .; warp .]");
}

#[test]
fn ctas_divide_a_dim_or_hold_copies() {
    let layout = Layout::coalesced(&[64, 64], Some(1), 4, 1, 2, Some(1));
    assert_eq!(layout.bases(In::Cta), [[0, 32]]);
    let layout = Layout::coalesced(&[64, 64], Some(1), 4, 1, 2, None);
    assert_eq!(layout.bases(In::Cta), [[0, 0]]);
}
