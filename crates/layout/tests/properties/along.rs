//! Layouts along one axis.

use tessera_layout::{Along, Layout, Prefer};

#[test]
fn divided_layouts_number_positions_by_register_lane_and_warp() {
    for shape in [vec![1024], vec![32, 128], vec![3, 100], vec![64, 64], vec![5], vec![2, 3, 40]] {
        for axis in 0..shape.len() {
            for warps in [1, 4, 8] {
                let beside = shape.len() - 1;
                for prefer in [Prefer::Axis, Prefer::Beside(beside), Prefer::Whole] {
                    let Some(l) = Layout::divided(&shape, axis, warps, prefer) else {
                        panic!("{shape:?} {axis} {warps} {prefer:?}")
                    };
                    let along = l.along(axis).unwrap_or_else(|| panic!("{l}"));
                    let whole = prefer == Prefer::Whole;
                    assert!(!whole || along.lanes.1 + along.warps.1 == 0, "{l}");
                    assert_eq!(l.ascending(axis).as_ref(), Some(&l.folded()), "{l}");
                }
            }
        }
    }
}

#[test]
fn a_coalesced_row_is_held_by_the_same_threads_in_ascending_order() {
    let row = Layout::coalesced(&[1024], Some(0), 4, 1, 1, None);
    assert_eq!(row.along(0), None);
    let up = row.ascending(0).unwrap();
    assert_eq!(up.along(0), Some(Along { regs: 5, lanes: (0, 5), warps: (0, 0) }));
    assert_eq!(up.regs(), row.regs());
    // Bits that move along two dims together are not one axis.
    let mma = Layout::mma_acc(&[16, 24], [1, 1]);
    assert_eq!(mma.ascending(1), None);
}
