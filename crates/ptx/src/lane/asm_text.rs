//! Assembly text in lane kernels: one run for each lane.

use super::{Lanes, Repr};
use crate::asm_text::Text;
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;

impl Lanes<'_> {
    /// A text without effects may run in lanes that do not take part.
    pub fn text(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let text = Text::new(func, op)?;
        let shared = |me: &Self, v: &tessera_ir::Value| match me.repr(*v) {
            Repr::One(r) => Some(*r),
            _ => None,
        };
        let all: Option<Vec<Reg>> = op.operands.iter().map(|v| shared(self, v)).collect();
        if let Some(all) = all {
            let elements: Vec<Vec<Reg>> = all.iter().map(|&r| vec![r; text.pack]).collect();
            let out = text.run(&mut self.scalars(), &elements, None);
            for (&result, regs) in op.results.iter().zip(out) {
                self.set(result, Repr::One(regs[0]));
            }
            return Ok(());
        }
        let operands: Vec<Vec<Reg>> = op.operands.iter().map(|&v| self.each(v)).collect();
        let width = self.width;
        let mut out: Vec<Vec<Reg>> = vec![Vec::new(); op.results.len()];
        for first in (0..width).step_by(text.pack) {
            // Where the last run has fewer, the last lane stands for those that are missing.
            let part = |regs: &Vec<Reg>| -> Vec<Reg> {
                (first..first + text.pack).map(|k| regs[k.min(width - 1)]).collect()
            };
            let elements: Vec<Vec<Reg>> = operands.iter().map(part).collect();
            let made = text.run(&mut self.scalars(), &elements, None);
            for (out, made) in out.iter_mut().zip(made) {
                out.extend(made.into_iter().take(width - first));
            }
        }
        self.set_lanes(id, out);
        Ok(())
    }

    pub fn text_with_effects(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let text = Text::new(func, op)?;
        let operands: Vec<Vec<Reg>> = op.operands.iter().map(|&v| self.each(v)).collect();
        let guard = self.guard.clone();
        let mut out: Vec<Vec<Reg>> = vec![Vec::new(); op.results.len()];
        for k in 0..self.width {
            let when = guard.as_ref().map(|g| g[k]);
            let elements: Vec<Vec<Reg>> = operands.iter().map(|regs| vec![regs[k]]).collect();
            let made = text.run(&mut self.scalars(), &elements, when);
            out.iter_mut().zip(made).for_each(|(out, made)| out.push(made[0]));
        }
        // Lanes that do not take part branched around it.
        self.converged &= guard.is_none();
        self.set_lanes(id, out);
        Ok(())
    }

    fn set_lanes(&mut self, id: OpId, out: Vec<Vec<Reg>>) {
        for (&result, regs) in self.func.ops[id].results.iter().zip(out) {
            let repr = if regs.len() == 1 { Repr::One(regs[0]) } else { Repr::Each(regs) };
            self.set(result, repr);
        }
    }
}
