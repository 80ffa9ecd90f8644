//! Domains of lane kernels.

use tessera_tile::lane_grid;

#[test]
fn the_last_groups_of_each_axis_may_be_partial() {
    assert_eq!(lane_grid(&[4, 8], &[5, 16]), ([2, 2, 1], [5, 16, 1]));
    assert_eq!(lane_grid(&[256], &[0]), ([0, 1, 1], [0, 1, 1]));
    assert_eq!(lane_grid(&[2, 2, 2], &[1, 3, i64::MAX]).0, [1, 2, i64::MAX / 2 + 1]);
}
