//! Stores by warpgroups.

use tessera_layout::{Layout, Shared};
use tessera_ptx::inner::{Share, moves_evenly, share};

#[test]
fn rows_of_accumulators_are_shared_out() {
    let rows = |m: u32| Layout::mma_acc(&[m, 64], [8, 1]);
    let two = |part| Some(Share { dim: 0, part, groups: 2 });
    assert_eq!(share(&rows(128), 2), two(64));
    // Further rows repeat: every other 64 of them.
    assert_eq!(share(&rows(256), 2), two(64));
    assert_eq!(share(&Layout::mma_acc(&[256, 64], [16, 1]), 4).map(|s| s.groups), Some(4));
    // Both hold all of it.
    assert_eq!(share(&rows(64), 2), None);
    let columns = share(&Layout::mma_acc_blocks(&[64, 256], [4, 2]), 2);
    assert_eq!(columns, Some(Share { dim: 1, part: 128, groups: 2 }));
}

#[test]
fn parts_of_warpgroups_have_equal_layouts() {
    let memory = Shared::swizzled(&[128, 256], &[1, 0], 2, 128);
    assert!(moves_evenly(&memory, Share { dim: 0, part: 64, groups: 2 }));
    assert!(moves_evenly(&memory, Share { dim: 1, part: 64, groups: 4 }));
    // Half a swizzle away.
    assert!(!moves_evenly(&memory, Share { dim: 0, part: 4, groups: 2 }));
}
