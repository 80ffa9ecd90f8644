//! One position of an axis of a tile: where a thread holds the whole axis, one of its registers; else
//! its holders share it through memory.

use super::sync::Smem;
use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId};
use tessera_layout::{In, Layout, Shared};

impl Select<'_> {
    pub fn slice(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let start = op.attr("start").and_then(Attr::as_ints).unwrap_or_default();
        let (from, to) = (self.layout(x), self.layout(result));
        let cut: Vec<usize> =
            (0..from.rank()).filter(|&d| from.shape()[d] != to.shape()[d]).collect();
        let repr = self.repr(x).clone();
        if let (Repr::Splat(_), _) | (_, []) = (&repr, &cut[..]) {
            // All elements are one number, or an axis has no other position.
            if from == to || matches!(repr, Repr::Splat(_)) {
                self.set(result, repr);
                return Ok(());
            }
        }
        let axis = cut.first().copied().unwrap_or(0);
        if cut.len() > 1 || to.shape()[axis] != 1 {
            return self.unsupported(id, "expected a single position of one axis");
        }
        let at = start.get(axis).copied().unwrap_or(0) as u32;
        let xs = self.regs(x);
        let regs = match Self::registers_at(&from, &to, axis, at) {
            Some(map) => map.iter().map(|&r| xs[r]).collect(),
            None => self.shared_position(&from, &to, axis, at, self.dtype(x), &xs),
        };
        self.set(result, Repr::Tile(regs));
        Ok(())
    }

    /// For each register of the result the one that holds it, where each thread has the whole axis.
    fn registers_at(from: &Layout, to: &Layout, axis: usize, at: u32) -> Option<Vec<usize>> {
        let moves = |i: In| from.bases(i).iter().any(|b| b[axis] != 0);
        let left = from.reduce(axis).expand(axis);
        if [In::Lane, In::Warp, In::Cta].into_iter().any(moves) || left != *to {
            return None;
        }
        let map = from.reduce_regs(axis);
        (0..to.regs())
            .map(|r| {
                let held = |&reg: &usize| map[reg] == r && from.reg_part(reg as u32)[axis] == at;
                (0..from.regs() as usize).find(held)
            })
            .collect()
    }

    fn shared_position(
        &mut self,
        from: &Arc<Layout>,
        to: &Arc<Layout>,
        axis: usize,
        at: u32,
        dtype: tessera_numerics::DType,
        xs: &[Reg],
    ) -> Vec<Reg> {
        let bytes = dtype.bytes() as u32;
        let shared = Shared::row_major(to.shape(), bytes);
        let region = self.scratch(shared.bytes());
        let m = Smem { region, offset: 0, moving: None, layout: Arc::new(shared), dtype };
        let base = self.smem_base(&m);
        let shape = to.shape().to_vec();
        let mut strides = vec![bytes; shape.len()];
        for d in (0..shape.len().saturating_sub(1)).rev() {
            strides[d] = strides[d + 1] * shape[d + 1];
        }
        let owner = self.block_owner(from);
        for (reg, &x) in xs.iter().enumerate() {
            let valid = match self.valid(from, reg as u32) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let coords = self.coords(from, reg as u32);
            let here = match coords[axis].thread {
                None if coords[axis].offset != at => continue,
                None => None,
                Some(_) if coords[axis].offset > at => continue,
                Some(t) => {
                    let wanted = Opnd::Int((at - coords[axis].offset).into());
                    Some(self.asm.setp(Cmp::Eq, Ty::U32, t, wanted))
                }
            };
            let when = self.both(valid, owner);
            let when = self.both(when, here);
            let mut addr = base;
            for (d, c) in coords.into_iter().enumerate().filter(|&(d, _)| d != axis) {
                let c = self.coord_value(c);
                let by = Opnd::Int(strides[d].into());
                addr = self.asm.int(Alu::MadLo, Ty::U32, &[c.into(), by, addr.into()]);
            }
            self.store_run(Space::Shared, dtype, Addr::reg(addr, 0), &[x], when);
        }
        self.block_barrier();
        let out = self.read_shared(&m, to);
        self.reading(m.region);
        out
    }
}
