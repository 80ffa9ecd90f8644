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
