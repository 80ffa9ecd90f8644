//! Shape ops that only rename elements: a register of the result is a register of the operand.

use super::{Repr, Select};
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Type};
use tessera_layout::Layout;

impl Select<'_> {
    /// Gives the result the operand's registers, `map[result register]`.
    fn rename(
        &mut self,
        id: OpId,
        map: impl Fn(&Layout, &Layout) -> Option<Vec<u32>>,
    ) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        match self.repr(x).clone() {
            Repr::Scalar(r) | Repr::Splat(r) => {
                let is_tile = !matches!(self.func.ty(result), Type::Scalar(_));
                self.set(result, if is_tile { Repr::Splat(r) } else { Repr::Scalar(r) });
            }
            repr => {
                if let (Repr::Packed(_), Type::Frag { .. }) = (&repr, self.func.ty(result)) {
                    let (from, to) = (self.layout(x), self.layout(result));
                    let same = map(&from, &to).filter(|m| m.iter().copied().eq(0..from.regs()));
                    if same.is_some() {
                        self.set(result, repr);
                        return Ok(());
                    }
                }
                let regs = self.regs(x);
                if let Type::Scalar(_) = self.func.ty(result) {
                    self.set(result, Repr::Scalar(regs[0]));
                    return Ok(());
                }
                let (from, to) = (self.layout(x), self.layout(result));
                let Some(map) = map(&from, &to) else {
                    return self.unsupported(id, format!("{from} does not become {to} in place"));
                };
                let out = map.iter().map(|&r| regs[r as usize]).collect();
                self.set(result, Repr::Tile(out));
            }
        }
        Ok(())
    }

    pub fn expand(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let axis = self.axis(id);
        self.rename(id, |from, to| Layout::reg_map(&from.expand(axis), to))
    }

    pub fn transpose(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let perm = self.func.ops[id].attr("perm").and_then(|a| a.as_ints()).unwrap_or_default();
        let perm: Vec<usize> = perm.iter().map(|&p| p as usize).collect();
        self.rename(id, |from, to| Layout::reg_map(&from.transpose(&perm), to))
    }

    pub fn broadcast(&mut self, id: OpId) -> Result<(), Diagnostics> {
        self.rename(id, |from, to| {
            let wanted = to.broadcast_from(from.shape());
            let first = Layout::reg_map(from, &wanted)?;
            let map = to.broadcast_regs(from.shape());
            Some(map.iter().map(|&r| first[r as usize]).collect())
        })
    }

    pub fn reshape(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let tiles = [x, result].iter().all(|&v| self.func.ty(v).layout().is_some());
        if tiles && let Repr::Tile(_) | Repr::Packed(_) | Repr::Lazy(_) = self.repr(x) {
            let (from, to) = (self.layout(x), self.layout(result));
            if from.reshape(to.shape()).is_none() {
                if self.cluster > 1 {
                    return self
                        .unsupported(id, "a tile does not move between the blocks of a cluster");
                }
                let xs = self.regs(x);
                let out = self.reshaped((&from, &xs), &to, self.dtype(x));
                self.set(result, Repr::Tile(out));
                return Ok(());
            }
        }
        self.rename(id, |from, to| Layout::reg_map(&from.reshape(to.shape())?, to))
    }

    pub fn axis(&self, id: OpId) -> usize {
        let axis = self.func.ops[id].attr("axis").and_then(|a| a.as_int());
        axis.unwrap_or(0) as usize
    }
}
