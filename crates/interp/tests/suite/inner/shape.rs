//! Rearrangements.

use tessera_interp::inner::strided;

#[test]
fn transpose_and_broadcast_are_strides() {
    let x: Vec<i32> = (0..24).collect();
    // (2, 3, 4) permuted by [2, 0, 1].
    let t = strided(&x, &[4, 2, 3], &[1, 12, 4]);
    assert_eq!(t[..7], [0, 4, 8, 12, 16, 20, 1]);
    assert_eq!(strided(&[1, 2], &[2, 3], &[1, 0]), [1, 1, 1, 2, 2, 2]);
    assert_eq!(strided(&[1, 2], &[2, 2], &[0, 1]), [1, 2, 1, 2]);
}
