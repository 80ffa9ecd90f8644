//! Parts of layouts.

use tessera_layout::{LANES, Layout};

#[test]
fn a_part_is_held_by_the_threads_that_hold_it_in_the_whole() {
    let wholes = [
        Layout::mma_acc(&[128, 256], [8, 1]),
        Layout::mma_acc(&[256, 96], [8, 1]),
        Layout::mma_acc(&[64, 64], [4, 1]),
    ];
    for whole in wholes {
        let columns = whole.shape()[1];
        let rows = whole.shape()[0];
        for at in (0..columns).step_by(32) {
            let (part, regs) = whole.part(&[0, at], &[rows, 32]).unwrap();
            assert_eq!(part.shape(), &[rows, 32]);
            assert_eq!(part.regs() * (columns / 32), whole.regs());
            for lane in 0..LANES {
                for warp in 0..part.warps() {
                    for reg in 0..part.regs() {
                        let mut here = part.coords(reg, lane, warp, 0);
                        here[1] += at;
                        assert_eq!(here, whole.coords(regs[reg as usize], lane, warp, 0));
                    }
                }
            }
        }
    }
}

#[test]
fn half_atoms_and_what_is_outside_are_no_parts() {
    let whole = Layout::mma_acc(&[128, 64], [8, 1]);
    assert!(whole.part(&[0, 4], &[128, 8]).is_none());
    assert!(whole.part(&[0, 0], &[128, 12]).is_none());
    assert!(whole.part(&[0, 56], &[128, 16]).is_none());
    assert!(whole.part(&[64, 0], &[64, 64]).is_none());
    assert_eq!(whole.part(&[0, 0], &[128, 64]).map(|p| p.0), Some(whole.clone()));
}
