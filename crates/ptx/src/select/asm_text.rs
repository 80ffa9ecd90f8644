//! Assembly text in group kernels: one run for each register of a tile, or for several neighbours
//! where the text takes packed elements. A text with effects runs in one of the threads that hold an
//! element, which tells the others what came out.

use super::{Repr, Select};
use crate::asm_text::Text;
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value};

impl Select<'_> {
    /// The one register of a value that has the same number everywhere.
    fn single(&self, v: Value) -> Option<Reg> {
        match self.repr(v) {
            Repr::Scalar(r) | Repr::Splat(r) => Some(*r),
            _ => None,
        }
    }

    pub fn text(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let text = Text::new(func, op)?;
        let singles: Option<Vec<Reg>> = op.operands.iter().map(|&v| self.single(v)).collect();
        if let Some(singles) = singles {
            let elements: Vec<Vec<Reg>> = singles.iter().map(|&r| vec![r; text.pack]).collect();
            let out = text.run(&mut self.scalars(), &elements, None);
            for (&result, regs) in op.results.iter().zip(out) {
                let is_tile = func.ty(result).is_tile();
                let repr = if is_tile { Repr::Splat(regs[0]) } else { Repr::Scalar(regs[0]) };
                self.set(result, repr);
            }
            return Ok(());
        }
        let count = self.layout(op.result()).regs() as usize;
        let operands = self.text_operands(&op.operands, count);
        let mut out: Vec<Vec<Reg>> = vec![Vec::new(); op.results.len()];
        for first in (0..count).step_by(text.pack) {
            // Where the last run has fewer, the last element stands for those that are missing.
            let part = |regs: &Vec<Reg>| -> Vec<Reg> {
                (first..first + text.pack).map(|i| regs[i.min(count - 1)]).collect()
            };
            let elements: Vec<Vec<Reg>> = operands.iter().map(part).collect();
            let made = text.run(&mut self.scalars(), &elements, None);
            for (out, made) in out.iter_mut().zip(made) {
                out.extend(made.into_iter().take(count - first));
            }
        }
        for (&result, regs) in op.results.iter().zip(out) {
            self.set(result, Repr::Tile(regs));
        }
        Ok(())
    }

    /// The registers of operands, `count` of each.
    fn text_operands(&mut self, operands: &[Value], count: usize) -> Vec<Vec<Reg>> {
        operands
            .iter()
            .map(|&v| match self.single(v) {
                Some(r) => vec![r; count],
                None => self.regs(v),
            })
            .collect()
    }

    pub fn text_with_effects(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let text = Text::new(func, op)?;
        let tile = op.operands.iter().chain(&op.results).find(|&&v| func.ty(v).is_tile());
        let used = |v: Value| func.walk().iter().any(|&o| func.ops[o].operands.contains(&v));
        let Some(&tile) = tile else {
            // One thread acts for the group and broadcasts the results.
            let first = self.first_thread();
            let elements: Vec<Vec<Reg>> =
                op.operands.iter().map(|&v| vec![self.scalar(v)]).collect();
            let out = text.run(&mut self.scalars(), &elements, Some(first));
            for (&result, regs) in op.results.iter().zip(out) {
                let r = if used(result) { self.broadcast_first(regs[0]) } else { regs[0] };
                self.set(result, Repr::Scalar(r));
            }
            return Ok(());
        };
        let layout = self.layout(tile);
        let operands = self.text_operands(&op.operands, layout.regs() as usize);
        let owner = self.owner(&layout);
        let mut out: Vec<Vec<Reg>> = vec![Vec::new(); op.results.len()];
        for reg in 0..layout.regs() {
            let valid = match self.valid(&layout, reg) {
                Ok(false) => {
                    for (out, &result) in out.iter_mut().zip(&op.results) {
                        out.push(self.zero(func.ty(result).dtype()));
                    }
                    continue;
                }
                valid => valid.err(),
            };
            let when = self.both(valid, owner);
            let elements: Vec<Vec<Reg>> =
                operands.iter().map(|regs| vec![regs[reg as usize]]).collect();
            let made = text.run(&mut self.scalars(), &elements, when);
            out.iter_mut().zip(made).for_each(|(out, made)| out.push(made[0]));
        }
        for (&result, mut regs) in op.results.iter().zip(out) {
            if used(result) && owner.is_some() {
                let m = self.spread(&layout, func.ty(result).dtype(), &regs);
                regs = self.read_shared(&m, &layout);
                self.reading(m.region);
            }
            self.set(result, Repr::Tile(regs));
        }
        Ok(())
    }
}
