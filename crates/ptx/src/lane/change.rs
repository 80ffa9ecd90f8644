//! Atomics, and folds into elements that many lanes access concurrently.

use super::access::Access;
use super::collective::Join;
use super::{Lanes, Repr};
use crate::atomic::{Change, Fold, What};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId};
use tessera_numerics::ReduceOp;
use tessera_tile::ops::atomic::{combine, is_used};

/// The memory order and scope of an atomic op, as PTX names them.
fn ordering(order: Option<&Attr>, scope: Option<&Attr>, space: Space) -> (Sem, Scope) {
    let sem = match order.and_then(Attr::as_word) {
        Some("acquire") => Sem::Acquire,
        Some("release") => Sem::Release,
        Some("acq_rel" | "seq_cst") => Sem::AcqRel,
        _ => Sem::Relaxed,
    };
    let scope = match scope.and_then(Attr::as_word) {
        _ if space == Space::Shared => Scope::Cta,
        Some("thread" | "warp" | "block") => Scope::Cta,
        Some("cluster") => Scope::Cluster,
        Some("mesh") => Scope::Sys,
        _ => Scope::Gpu,
    };
    (sem, scope)
}

impl Lanes<'_> {
    pub fn atomic(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let mut a = self.access(id);
        a.checked.fill(true);
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("add");
        let what = match (name, combine(name)) {
            (_, Some(f)) => {
                What::Fold(Fold::new(func.ty(op.operands[0]), f, self.dtype(op.operands[1])))
            }
            ("cas", None) => What::CompareExchange,
            (_, None) => What::Exchange,
        };
        let (sem, scope) = ordering(op.attr("order"), op.attr("scope"), a.mem.space);
        let (shared, apart) = self.conditions(&a, None);
        let xs = self.each(op.operands[1]);
        let expected = op.group("expected").first().map(|&v| self.each(v));
        let wants_old = is_used(func, id);
        let (space, dtype) = (a.mem.space, a.mem.dtype);
        let base = self.base(&a.mem, &a.at);
        let mut olds = Vec::with_capacity(self.width);
        for k in 0..self.width {
            let when = self.both(shared, apart.as_ref().map(|p| p[k]));
            let addr = self.lane_address(&a.mem, &a.at, base, k);
            let addr = self.plain_address(addr);
            let change = Change { space, dtype, what, sem, scope, when, wants_old };
            let expected = expected.as_ref().map(|e| e[k]);
            let made = change.emit(&mut self.scalars(), addr, xs[k], expected);
            let old = self.sure(id, made)?;
            // A position outside is not accessed and gives zero.
            olds.push(match (old, when) {
                (Some(old), Some(p)) if wants_old => {
                    let zero = self.zero(dtype);
                    self.scalars().select(dtype, p, old, zero)
                }
                (Some(old), _) => old,
                (None, _) => self.zero(dtype),
            });
        }
        let repr = if self.width == 1 { Repr::One(olds[0]) } else { Repr::Each(olds) };
        self.set(op.result(), repr);
        Ok(())
    }

    /// Folds the lanes' values into elements that others fold into too.
    pub fn fold_shared(
        &mut self,
        id: OpId,
        a: &Access,
        reduce: ReduceOp,
        fold: Fold,
        shared: Option<Reg>,
        mut apart: Option<Vec<Reg>>,
    ) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let mut xs = self.each(op.operands[1]);
        let mut shared = shared;
        if a.is_one() && xs.len() > 1 {
            let x = self.fold_thread(id, reduce, fold, xs, apart.take())?;
            xs = vec![x];
            // The whole warp is converged here, and folds into one element.
            if self.converged && op.group("at").iter().all(|&v| !self.uniform.varies(v)) {
                xs = vec![self.reduce_warp(Join { id, op: reduce, dtype: fold.compute }, x)?];
                let lane = self.in_warp();
                let first = self.asm.setp(Cmp::Eq, Ty::U32, lane, Opnd::Int(0));
                shared = self.both(shared, Some(first));
            }
        }
        let base = self.base(&a.mem, &a.at);
        for (k, &x) in xs.iter().enumerate() {
            let when = self.both(shared, apart.as_ref().map(|p| p[k]));
            let addr = self.lane_address(&a.mem, &a.at, base, k);
            let addr = self.plain_address(addr);
            let change = Change {
                space: a.mem.space,
                dtype: a.mem.dtype,
                what: What::Fold(fold),
                sem: Sem::Relaxed,
                scope: Scope::Gpu,
                when,
                wants_old: false,
            };
            let made = change.emit(&mut self.scalars(), addr, x, None);
            self.sure(id, made)?;
        }
        Ok(())
    }

    /// Combines the values of the thread's active lanes.
    fn fold_thread(
        &mut self,
        id: OpId,
        reduce: ReduceOp,
        fold: Fold,
        mut xs: Vec<Reg>,
        apart: Option<Vec<Reg>>,
    ) -> Result<Reg, Diagnostics> {
        if let Some(apart) = apart {
            let nothing = self.scalars().identity(reduce, fold.compute);
            for (x, p) in xs.iter_mut().zip(apart) {
                *x = self.scalars().select(fold.compute, p, *x, nothing);
            }
        }
        while xs.len() > 1 {
            let high = xs.split_off(xs.len() / 2);
            for (x, y) in xs.iter_mut().zip(high) {
                let made = self.scalars().combine(reduce, fold.compute, *x, y);
                *x = self.sure(id, made)?;
            }
        }
        Ok(xs[0])
    }
}
