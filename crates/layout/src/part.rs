//! Blocks of a tile that each thread holds its share of: whole repeats of the atom. Taking one
//! moves no data.

use crate::Layout;

impl Layout {
    /// The layout of the block of `extent` at `at`, and for each of its registers the one that
    /// holds the same element in the whole tile. None where the block does not consist of whole
    /// atoms, or is not inside.
    pub fn part(&self, at: &[u32], extent: &[u32]) -> Option<(Layout, Vec<u32>)> {
        let rank = self.rank();
        if at.len() != rank || extent.len() != rank {
            return None;
        }
        for dim in 0..rank {
            let (atom, all) = (self.box_extents()[dim], self.shape()[dim]);
            let inside = at[dim].checked_add(extent[dim]).is_some_and(|end| end <= all);
            // A dim that is taken whole may have padding.
            let whole = at[dim] == 0 && extent[dim] == all;
            let cut = at[dim].is_multiple_of(atom) && extent[dim].is_multiple_of(atom);
            if extent[dim] == 0 || !inside || !(whole || cut) {
                return None;
            }
        }
        let repeat = (0..rank).map(|d| extent[d].div_ceil(self.box_extents()[d])).collect();
        let order = Some(self.repeat_order());
        let part = Layout::assemble(extent.to_vec(), self.all_bases().clone(), repeat, order);
        let part = part.ok()?;
        let regs: Option<Vec<u32>> = (0..part.regs())
            .map(|reg| {
                let here: Vec<u32> =
                    part.reg_part(reg).iter().zip(at).map(|(c, at)| c + at).collect();
                let atom = reg % self.atom_regs();
                (0..self.regs() / self.atom_regs())
                    .map(|n| n * self.atom_regs() + atom)
                    .find(|&r| self.reg_part(r) == here)
            })
            .collect();
        Some((part, regs?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LANES;

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
}
