//! Reductions across threads: the exchanges after each thread has combined its own registers.

use crate::bits::{Span, ones};
use crate::layout::{In, Layout, Place};

impl Layout {
    /// The exchanges that finish a reduction along `axis` after each thread has combined its own
    /// registers, following [`Layout::reduce_regs`] and leaving out copies (registers with a bit
    /// of [`Layout::reg_replicas`]). In each step every thread combines its result register `r`
    /// with register `r ^ reg` of the thread whose lane, warp and cta are its own XOR the step's.
    /// Then all threads have their results, those with copies too. Steps inside a warp come first.
    pub fn reduce_steps(&self, axis: usize) -> Vec<Place> {
        let result = self.reduce(axis);
        let rest = |basis: &Vec<u32>| {
            let kept = [&basis[..axis], &basis[axis + 1..]].concat();
            result.pack(&kept)
        };
        let along =
            |input: In, mask: u64| ones(mask).fold(0, |at, bit| at ^ self.bases(input)[bit][axis]);
        // The extent of one thread's registers along the axis, for the same result.
        let regs = Span::of(self.bases(In::Reg).iter().map(rest));
        let mut reached = Span::of(regs.kernel().iter().map(|&regs| along(In::Reg, regs).into()));
        // Threads and registers with the same result: those count that reach further.
        let mut steps = Vec::new();
        for &same in result.span().kernel() {
            let step = result.place(same, 0);
            let here = result.reg_part(step.reg);
            let own = regs.solve(result.pack(&here)).expect("the result's registers are ours");
            let [lane, warp, cta] = [step.lane, step.warp, step.cta].map(u64::from);
            let threads = along(In::Lane, lane) ^ along(In::Warp, warp) ^ along(In::Cta, cta);
            if reached.insert((threads ^ along(In::Reg, own)).into()) {
                steps.push(step);
            }
        }
        steps
    }
}
