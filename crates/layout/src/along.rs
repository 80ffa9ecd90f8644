//! Layouts for combining and sorting along an axis: a thread holds adjacent positions, lanes hold
//! adjacent runs of those, warps adjacent runs of lanes.

use crate::layout::{In, LANE_BITS, Layout};

/// How the threads of a block divide an axis. Positions are numbered by register, then lane, then
/// warp: the lowest bits are those of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Along {
    /// Bits of a position inside a thread.
    pub regs: u32,
    /// The first bit of the lane index that counts along the axis, and how many do.
    pub lanes: (u32, u32),
    /// The same of the warp index.
    pub warps: (u32, u32),
}

/// What decides which threads go along the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefer {
    /// Lanes go along the axis, as far as they reach: few exchanges between warps.
    Axis,
    /// Lanes go along another dim, which is contiguous in memory: no exchange where a thread holds
    /// the whole axis.
    Beside(usize),
    /// A thread holds the whole axis, whatever the other dims leave for other threads.
    Whole,
}

impl Layout {
    /// A layout of `warps` warps that [`Layout::along`] accepts for this axis.
    pub fn divided(shape: &[u32], axis: usize, warps: u32, prefer: Prefer) -> Option<Layout> {
        let bits = |n: u32| n.next_power_of_two().trailing_zeros();
        let mut left: Vec<u32> = shape.iter().map(|&n| bits(n)).collect();
        let warp_bits = warps.trailing_zeros();
        let total: u32 = left.iter().sum();
        let held = total.saturating_sub(LANE_BITS as u32 + warp_bits);
        let held = if prefer == Prefer::Whole { held.max(left[axis]) } else { held };
        let mut others: Vec<usize> = (0..shape.len()).rev().filter(|&d| d != axis).collect();
        if let Prefer::Beside(dim) = prefer {
            others.sort_by_key(|&d| d != dim);
        }
        let along = held.min(left[axis]);
        let mut taken = vec![0; shape.len()];
        let mut take = |dims: &[usize]| {
            let dim = *dims.iter().find(|&&dim| left[dim] > 0)?;
            left[dim] -= 1;
            let mut basis = vec![0; shape.len()];
            basis[dim] = 1 << taken[dim];
            taken[dim] += 1;
            Some(basis)
        };
        let nothing = || vec![0; shape.len()];
        // Elements beside each other first: they are one access.
        let mut regs: Vec<Vec<u32>> = (along..held).map_while(|_| take(&others)).collect();
        regs.extend((0..along).map_while(|_| take(&[axis])));
        let axis_first: Vec<usize> = [axis].into_iter().chain(others.iter().copied()).collect();
        let axis_last: Vec<usize> = others.iter().copied().chain([axis]).collect();
        let order = if prefer == Prefer::Axis { &axis_first } else { &axis_last };
        // Threads for which nothing is left hold copies.
        let lanes = (0..LANE_BITS).map(|_| take(order).unwrap_or_else(nothing)).collect();
        let warps = (0..warp_bits).map(|_| take(&axis_last).unwrap_or_else(nothing)).collect();
        Layout::tiled(shape, regs, lanes, warps, Vec::new()).ok()
    }

    /// How threads divide an axis, where positions are numbered by register, lane and warp in this
    /// order, and other dims do not move with them.
    pub fn along(&self, axis: usize) -> Option<Along> {
        if self.repeat()[axis] != 1 || self.moving(In::Cta, axis).next().is_some() {
            return None;
        }
        let mut next = 1;
        let mut run = |input: In, sorted: bool| {
            let mut bases: Vec<(usize, u32)> = Vec::new();
            for (bit, basis) in self.moving(input, axis) {
                let alone = (0..basis.len()).all(|d| d == axis || basis[d] == 0);
                bases.push((bit, alone.then_some(basis[axis])?));
            }
            if sorted {
                bases.sort_by_key(|&(_, step)| step);
            }
            let first = bases.first().map_or(0, |&(bit, _)| bit);
            for (i, &(bit, step)) in bases.iter().enumerate() {
                if step != next || !(sorted || bit == first + i) {
                    return None;
                }
                next *= 2;
            }
            Some((first as u32, bases.len() as u32))
        };
        let regs = run(In::Reg, true)?.1;
        let lanes = run(In::Lane, false)?;
        let warps = run(In::Warp, false)?;
        (next == self.box_extents()[axis]).then_some(Along { regs, lanes, warps })
    }

    /// The layout in which the same registers and threads hold the positions of an axis in the
    /// order register, lane, warp. For what sorts an axis the order of its operand does not matter,
    /// so it moves no data from this layout to that. `None` where other dims move with the axis, or
    /// the axis is not of whole powers of two.
    pub fn ascending(&self, axis: usize) -> Option<Layout> {
        let folded = self.folded();
        if folded.repeat()[axis] != 1 || folded.moving(In::Cta, axis).next().is_some() {
            return None;
        }
        let mut next = 1;
        let mut bases = folded.all_bases().clone();
        for bases in &mut bases[..3] {
            for basis in bases.iter_mut().filter(|b| b[axis] != 0) {
                if (0..basis.len()).any(|d| d != axis && basis[d] != 0) {
                    return None;
                }
                basis[axis] = next;
                next *= 2;
            }
        }
        // Fewer or more bits than the axis has: some held copies.
        if next != folded.box_extents()[axis] {
            return None;
        }
        let order = Some(folded.repeat_order());
        Layout::assemble(folded.shape().to_vec(), bases, folded.repeat().to_vec(), order).ok()
    }

    /// The bits of an input that move along an axis.
    fn moving(&self, input: In, axis: usize) -> impl Iterator<Item = (usize, &Vec<u32>)> {
        self.bases(input).iter().enumerate().filter(move |(_, basis)| basis[axis] != 0)
    }
}
