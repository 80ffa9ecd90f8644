//! Copies that transpose.

use tessera_layout::{LANES, Shared};
use tessera_ptx::inner::transposing_layout;

/// Transposing copies read whole sectors of the array, and write all banks.
#[test]
fn transposing_copies_are_whole_on_both_sides() {
    for (lines, k, bytes) in [(128, 16, 4), (256, 32, 4), (128, 8, 4), (64, 16, 8)] {
        let pad = 16 / bytes;
        let memory = Shared { pad, ..Shared::ordered(&[lines, k], &[0, 1], bytes) };
        let layout = transposing_layout(&memory, 1, 8);
        assert_eq!(memory.conflicts(&layout, 1), 0, "{lines}x{k} of {bytes} bytes");
        let mut sectors = std::collections::BTreeSet::new();
        for lane in 0..LANES {
            let at = layout.coords(0, lane, 0, 0);
            sectors.insert((at[0], at[1] * bytes / 32));
        }
        assert_eq!(sectors.len() as u32, LANES * bytes / 32, "{lines}x{k} of {bytes} bytes");
    }
}
