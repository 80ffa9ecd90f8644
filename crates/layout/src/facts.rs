//! Properties of a layout that accesses and instructions use.

use crate::layout::{In, Layout};

impl Layout {
    /// Whether registers and threads never share a bit of a coordinate. Then XOR is addition, and
    /// the address of a register is that of the thread plus a constant.
    pub fn disjoint(&self) -> bool {
        let reach = |input: In, dim: usize| {
            self.bases(input).iter().fold(0, |reach, basis| reach | basis[dim])
        };
        (0..self.rank()).all(|dim| {
            let threads = reach(In::Lane, dim) | reach(In::Warp, dim) | reach(In::Cta, dim);
            reach(In::Reg, dim) & threads == 0
        })
    }

    /// How many consecutive registers, from any multiple of it, hold consecutive coordinates along
    /// `dim` in ascending order: the most elements that one access can take. It is a power of two
    /// and divides the extent, so each run is either wholly inside the shape or wholly padding.
    pub fn run_along(&self, dim: usize) -> u32 {
        let regs = self.bases(In::Reg);
        let counts = |bit: usize| {
            regs[bit].iter().enumerate().all(|(at, &part)| part == u32::from(at == dim) << bit)
        };
        let mut bits = (0..regs.len()).take_while(|&bit| counts(bit)).count();
        // A bit elsewhere that moves inside the run would put its elements out of order.
        let moves = |bits: usize| {
            let others = self.all_bases()[1..].iter().flatten().chain(&regs[bits..]);
            others.into_iter().any(|basis| basis[dim] & ((1 << bits) - 1) != 0)
        };
        while moves(bits) {
            bits -= 1;
        }
        let mut run = 1u32 << bits;
        // An atom of nothing but the run goes on in its repeats, where those are counted first.
        let first = self.repeat_order().iter().find(|&&dim| self.repeat()[dim] > 1);
        if bits == regs.len() && self.box_extents()[dim] == run && first == Some(&dim) {
            run <<= self.repeat()[dim].trailing_zeros();
        }
        run.min(1 << self.shape()[dim].trailing_zeros())
    }

    /// The redundant lane, warp and cta bits, given the registers and the bits before them: threads
    /// that differ in them hold copies. A thread is the owner of its elements when all these bits
    /// of it are zero; each element has exactly one owner.
    pub fn replicas(&self) -> (Vec<bool>, Vec<bool>, Vec<bool>) {
        let [_, lane, warp, cta] = self.dependent();
        (lane, warp, cta)
    }

    /// The redundant register bits of the atom: registers that differ in them hold copies.
    pub fn reg_replicas(&self) -> Vec<bool> {
        let [reg, ..] = self.dependent();
        reg
    }

    fn dependent(&self) -> [Vec<bool>; 4] {
        let mut span = crate::bits::Span::default();
        self.all_bases()
            .each_ref()
            .map(|bases| bases.iter().map(|basis| !span.insert(self.pack(basis))).collect())
    }
}
