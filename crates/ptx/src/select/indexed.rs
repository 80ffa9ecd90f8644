//! Gather, scatter and atomics: elements at positions that index tiles give.

use super::in_order::{Update, shows_order};
use super::{Repr, Select, View};
use crate::atomic::{Change, Fold, What};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_layout::Layout;
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_tile::ops::atomic::combine;

impl Select<'_> {
    /// Positions of a register along each axis, as 64-bit integers.
    fn positions(&mut self, at: &[Value], reg: usize) -> Vec<Reg> {
        at.iter()
            .map(|&v| match *self.func.ty(v) {
                Type::Scalar(_) => self.scalar(v),
                _ => {
                    let r = self.regs(v)[reg];
                    let dtype = self.dtype(v);
                    match r.class {
                        Class::B64 => r,
                        _ if dtype.is_unsigned_int() => self.asm.cvt(Ty::U64, Ty::U32, None, r),
                        _ => self.asm.cvt(Ty::S64, Ty::S32, None, r),
                    }
                }
            })
            .collect()
    }

    /// The address of an element and whether it may be accessed.
    fn indexed(
        &mut self,
        view: &View,
        at: &[Value],
        reg: usize,
        checked: bool,
    ) -> (Addr, Option<Reg>) {
        let at = self.positions(at, reg);
        self.element_address(view, &at, &vec![checked; view.rank])
    }

    /// The layout of the positions; none where all are scalars.
    fn index_layout(&self, at: &[Value]) -> Option<Arc<Layout>> {
        at.iter().find(|&&v| !matches!(self.func.ty(v), Type::Scalar(_))).map(|&v| self.layout(v))
    }

    pub fn gather(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        self.before_read(id);
        let view = self.view(op.operands[0]);
        let at = op.group("at").to_vec();
        let inbounds = op.attr("inbounds").and_then(Attr::as_bool) == Some(true);
        let other = op.group("other").first().map(|&v| self.scalar(v));
        let layout = self.layout(op.result());
        let mut out = Vec::new();
        for reg in 0..layout.regs() {
            let valid = match self.valid(&layout, reg) {
                Ok(false) => {
                    out.push(self.zero(view.dtype));
                    continue;
                }
                valid => valid.err(),
            };
            let (addr, inside) = self.indexed(&view, &at, reg as usize, !inbounds);
            let when = self.both(valid, inside);
            let x = self.load_codes(&view, addr, 1, when)[0];
            out.push(match when {
                None => x,
                Some(p) => {
                    let zero = match other {
                        Some(o) => o,
                        None => self.zero(view.dtype),
                    };
                    self.scalars().select(view.dtype, p, x, zero)
                }
            });
        }
        self.set(op.result(), Repr::Tile(out));
        Ok(())
    }

    pub fn scatter(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        // Which of several values for one element is kept is defined where results must be
        // reproducible.
        let unique = op.attr("unique").and_then(Attr::as_bool) == Some(true)
            || self.profile == Profile::Default;
        self.before_write(id);
        let view = self.view(op.operands[0]);
        let at = op.group("at").to_vec();
        let mask = op.group("mask").first().copied();
        let layout = self.index_layout(&at);
        let (xs, layout) = match layout {
            Some(l) => (self.value_regs(op.operands[1], &l), l),
            None => return self.unsupported(id, "expected a tile of positions"),
        };
        let masks = mask.map(|v| self.value_regs(v, &layout));
        let owner = self.owner(&layout);
        let mut shared = Vec::new();
        for reg in 0..layout.regs() {
            let valid = match self.valid(&layout, reg) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let (addr, inside) = self.indexed(&view, &at, reg as usize, true);
            let when = self.both(valid, inside);
            let when = self.both(when, owner);
            let when = self.both(when, masks.as_ref().map(|m| m[reg as usize]));
            if unique {
                self.store_run(view.space(), view.dtype, addr, &xs[reg as usize..][..1], when);
            } else {
                shared.push((reg, xs[reg as usize], addr, when));
            }
        }
        if unique {
            return Ok(());
        }
        self.scatter_last(id, &view, &layout, &shared)
    }

    /// A value's registers, one for each of the layout's: its own, or a scalar repeated.
    pub fn value_regs(&mut self, v: Value, layout: &Layout) -> Vec<Reg> {
        match self.func.ty(v) {
            Type::Scalar(_) => vec![self.scalar(v); layout.regs() as usize],
            _ => self.regs(v),
        }
    }

    pub fn atomic(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        self.before_write(id);
        let view = self.view(op.operands[0]);
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("add");
        let compute = self.dtype(op.operands[1]);
        let what = match (name, combine(name)) {
            (_, Some(f)) => What::Fold(Fold::new(func.ty(op.operands[0]), f, compute)),
            ("cas", None) => What::CompareExchange,
            (_, None) => What::Exchange,
        };
        let (sem, scope) = match view.buffer {
            // The threads of one block alone access it, and barriers order them.
            Some(_) => (Sem::Relaxed, Scope::Cta),
            None => ordering(op.attr("order"), op.attr("scope")),
        };
        let at = op.group("at").to_vec();
        let expected = op.group("expected").first().copied();
        let layout = self.index_layout(&at);
        let result = op.result();
        let used = self.func.walk().iter().any(|&o| self.func.ops[o].operands.contains(&result));
        let (space, dtype) = (view.space(), view.dtype);
        let change = Change { space, dtype, what, sem, scope, when: None, wants_old: used };
        let Some(layout) = layout else {
            // One thread acts for the group and broadcasts the result.
            let first = self.first_thread();
            let value = self.scalar(op.operands[1]);
            let expected = expected.map(|v| self.scalar(v));
            let (address, when) = self.updated(&view, &at, 0, Some(first));
            let update = Update { reg: 0, value, expected, address, when };
            let old = self.update(id, &change, &update)?;
            let r = match old {
                Some(old) if used => self.broadcast_first(old),
                _ => self.zero(dtype),
            };
            self.set(result, Repr::Scalar(r));
            return Ok(());
        };
        let xs = self.value_regs(op.operands[1], &layout);
        let es = expected.map(|v| self.value_regs(v, &layout));
        let owner = self.owner(&layout);
        let in_order = view.buffer.is_some()
            && self.profile != Profile::Default
            && (used || shows_order(what));
        let zero = self.zero(dtype);
        let mut out = vec![zero; layout.regs() as usize];
        let mut later = Vec::new();
        for reg in 0..layout.regs() {
            let valid = match self.valid(&layout, reg) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let when = self.both(valid, owner);
            let (address, when) = self.updated(&view, &at, reg as usize, when);
            let expected = es.as_ref().map(|e| e[reg as usize]);
            let update = Update { reg, value: xs[reg as usize], expected, address, when };
            if in_order {
                later.push(update);
            } else if let Some(old) = self.update(id, &change, &update)? {
                out[reg as usize] = old;
            }
        }
        if in_order {
            let old = self.update_in_order(id, &view, &layout, &change, &later)?;
            later.iter().zip(old).for_each(|(update, old)| out[update.reg as usize] = old);
        }
        if used && owner.is_some() {
            // The owners share the old values with the other threads.
            let m = self.spread(&layout, view.dtype, &out);
            out = self.read_shared(&m, &layout);
            self.reading(m.region);
        }
        self.set(result, Repr::Tile(out));
        Ok(())
    }

    /// The address of an element that is updated, and whether it is.
    fn updated(
        &mut self,
        view: &View,
        at: &[Value],
        reg: usize,
        when: Option<Reg>,
    ) -> (Reg, Option<Reg>) {
        let (addr, inside) = self.indexed(view, at, reg, true);
        let Base::Reg(base) = addr.base else { unreachable!("a register holds the address") };
        (base, self.both(when, inside))
    }

    /// Does one update; gives the old value, zero where there is none, if that is wanted.
    fn update(
        &mut self,
        id: OpId,
        change: &Change,
        update: &Update,
    ) -> Result<Option<Reg>, Diagnostics> {
        let change = Change { when: update.when, ..*change };
        let (at, x, e) = (update.address, update.value, update.expected);
        let old = change.emit(&mut self.scalars(), at, x, e);
        let old = old.or_else(|u| self.unsupported(id, u.to_string()))?;
        // A position outside is not accessed and gives zero.
        Ok(match (old, update.when) {
            (Some(old), Some(p)) => {
                let zero = self.zero(change.dtype);
                Some(self.scalars().select(change.dtype, p, old, zero))
            }
            (old, _) => old,
        })
    }

    /// Broadcasts the value of the first thread.
    pub fn broadcast_first(&mut self, x: Reg) -> Reg {
        let region = self.scratch(8);
        let base = self.region(region);
        let first = self.first_thread();
        self.put(Addr::reg(base, 0), x, Some(first));
        self.barrier();
        let (space, from) = match self.cluster {
            1 => (Space::Shared, base),
            _ => {
                let d = self.asm.reg(Class::B32);
                self.asm.emit(Inst::Mapa { d, a: base, rank: Opnd::Int(0) });
                self.remote_reads = true;
                (Space::SharedCluster, d)
            }
        };
        let out = self.take(space, Addr::reg(from, 0), x.class);
        self.reading(region);
        out
    }

    /// Folds one element into memory that several groups fold into.
    #[allow(clippy::too_many_arguments)] // What, where and when.
    pub fn fold_atomic(
        &mut self,
        id: OpId,
        name: &str,
        dtype: DType,
        compute: DType,
        addr: Addr,
        x: Reg,
        when: Option<Reg>,
    ) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let f = ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum).combine();
        let what = What::Fold(Fold::new(self.func.ty(op.operands[0]), f, compute));
        let Base::Reg(mut base) = addr.base else { return Ok(()) };
        if addr.offset != 0 {
            base = self.asm.int(Alu::Add, Ty::S64, &[base.into(), Opnd::Int(addr.offset)]);
        }
        let change = Change {
            space: Space::Global,
            dtype,
            what,
            sem: Sem::Relaxed,
            scope: Scope::Gpu,
            when,
            wants_old: false,
        };
        let r = change.emit(&mut self.scalars(), base, x, None);
        r.map(|_| ()).or_else(|u| self.unsupported(id, u.to_string()))
    }
}

/// The memory order and scope of an atomic op, as PTX names them.
pub fn ordering(order: Option<&Attr>, scope: Option<&Attr>) -> (Sem, Scope) {
    let sem = match order.and_then(Attr::as_word) {
        Some("acquire") => Sem::Acquire,
        Some("release") => Sem::Release,
        Some("acq_rel" | "seq_cst") => Sem::AcqRel,
        _ => Sem::Relaxed,
    };
    let scope = match scope.and_then(Attr::as_word) {
        Some("thread" | "warp" | "block") => Scope::Cta,
        Some("cluster") => Scope::Cluster,
        Some("mesh") => Scope::Sys,
        _ => Scope::Gpu,
    };
    (sem, scope)
}
