//! Atomics of one tile in row-major order, where the order shows in the result: in the profiles with
//! reproducible bits, on buffers, which no other group accesses.
//!
//! Elements are hashed by their address into a table in shared memory. In each iteration the first
//! element of each entry is done; so elements with one address are done in order, one in each
//! iteration, and those with different addresses together, unless they collide in the hash.

use super::{Select, View};
use crate::atomic::{Change, Fold, What};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId};
use tessera_layout::Layout;
use tessera_numerics::{Basic, DType, Profile, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;
use tessera_tile::ops::atomic::combine;

/// The most entries; more elements take more iterations.
const MOST: u32 = 2048;

/// An element that a thread holds.
pub struct Update {
    pub reg: u32,
    pub value: Reg,
    pub expected: Option<Reg>,
    pub address: Reg,
    /// Whether it is to be done at all.
    pub when: Option<Reg>,
}

/// Whether the order of several updates of one element shows in what is stored.
pub fn shows_order(what: What) -> bool {
    let What::Fold(Fold { f, compute, stored, saturate, .. }) = what else { return true };
    let Some(f) = f.basic() else { return true };
    let is_extreme = matches!(f, Basic::Maximum | Basic::Minimum);
    if stored.is_float() || saturate || stored == DType::Bool {
        return !(stored.is_float() && is_extreme);
    }
    // Sums and bits are the same modulo the range of the stored dtype; a comparison is not.
    let wraps = matches!(f, Basic::Add | Basic::Sub | Basic::And | Basic::Or | Basic::Xor);
    !(wraps || is_extreme && compute == stored)
}

impl Select<'_> {
    /// The operator of an atomic op whose elements, and those of others with it, may be combined in
    /// any order.
    pub fn unordered_fold(&self, id: OpId) -> Option<ScalarFn> {
        let op = &self.func.ops[id];
        let name = op.attr("op").and_then(Attr::as_word)?;
        let f = combine(name).filter(|_| op.code == StagedOp::Tile(TileOp::Atomic))?;
        let what =
            What::Fold(Fold::new(self.func.ty(op.operands[0]), f, self.dtype(op.operands[1])));
        let result = op.result();
        let used = self.func.walk().iter().any(|&o| self.func.ops[o].operands.contains(&result));
        let any_order = self.profile == Profile::Default || !shows_order(what);
        (any_order && !used).then_some(f)
    }

    /// Does the updates in row-major order, and gives the old value of each.
    pub fn update_in_order(
        &mut self,
        id: OpId,
        view: &View,
        layout: &Arc<Layout>,
        change: &Change,
        updates: &[Update],
    ) -> Result<Vec<Reg>, Diagnostics> {
        let threads = self.warps * 32;
        let slots = layout.shape().iter().product::<u32>().next_power_of_two().clamp(32, MOST);
        let region = self.scratch(slots * 4);
        let table = self.region(region);
        let mut left = Vec::new();
        let mut entries = Vec::new();
        let mut old = Vec::new();
        for update in updates {
            let slot = self.hashed(update.address, view.dtype.bytes() as u32, slots);
            let entry =
                self.asm.int(Alu::MadLo, Ty::U32, &[slot.into(), Opnd::Int(4), table.into()]);
            let number = self.row_major_number(layout, update.reg);
            let p = self.asm.reg(Class::Pred);
            let all = match update.when {
                Some(when) => when,
                None => self.asm.setp(Cmp::Eq, Ty::U32, slot, slot),
            };
            self.move_all(&[p], &[all]);
            left.push(p);
            entries.push((entry, number));
            let zero = self.zero(view.dtype);
            let d = self.asm.reg(zero.class);
            self.move_all(&[d], &[zero]);
            old.push(d);
        }
        let tid = self.tid();
        let mine = self.asm.int(Alu::MadLo, Ty::U32, &[tid.into(), Opnd::Int(4), table.into()]);
        let again = self.asm.label();
        self.asm.place(again);
        let none = self.asm.mov(Ty::B32, Opnd::Int(-1));
        let inside = (slots < threads)
            .then(|| self.asm.setp(Cmp::Lt, Ty::U32, tid, Opnd::Int(slots.into())));
        for at in (0..slots).step_by(threads as usize) {
            self.asm.maybe(inside, |asm| {
                let addr = Addr::reg(mine, i64::from(4 * at));
                asm.st(Space::Shared, Ty::B32, &[none.into()], addr, Cache::Usual);
            });
        }
        self.asm.barrier();
        for (&left, &(entry, number)) in left.iter().zip(&entries) {
            self.asm.when(left, true, |asm| {
                asm.emit(Inst::Red {
                    space: Space::Shared,
                    sem: Sem::Relaxed,
                    scope: Scope::Cta,
                    op: AtomOp::Min,
                    ty: Ty::U32,
                    addr: Addr::reg(entry, 0),
                    a: vec![number.into()],
                });
            });
        }
        self.asm.barrier();
        let mut any: Option<Reg> = None;
        for (i, update) in updates.iter().enumerate() {
            let (left, (entry, number)) = (left[i], entries[i]);
            let addr = Addr::reg(entry, 0);
            let found = self.asm.ld(Space::Shared, Ty::B32, 1, addr, Cache::Usual)[0];
            let is_first = self.asm.setp(Cmp::Eq, Ty::U32, found, number);
            let now = self.and(is_first, left);
            let change = Change { when: Some(now), ..*change };
            let (at, x, e) = (update.address, update.value, update.expected);
            let was = change.emit(&mut self.scalars(), at, x, e);
            if let Some(was) = was.or_else(|u| self.unsupported(id, u.to_string()))? {
                let chosen = self.scalars().select(view.dtype, now, was, old[i]);
                self.move_all(&[old[i]], &[chosen]);
            }
            let other = self.asm.setp(Cmp::Ne, Ty::U32, found, number);
            let rest = self.and(other, left);
            self.move_all(&[left], &[rest]);
            any = Some(match any {
                None => rest,
                Some(any) => self.asm.int(Alu::Or, Ty::Pred, &[any.into(), rest.into()]),
            });
        }
        if let Some(p) = any {
            let d = self.asm.reg(Class::Pred);
            self.asm.emit(Inst::BarRedOr { id: 0, d, p });
            self.asm.when(d, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        }
        self.reading(region);
        Ok(old)
    }

    /// An entry of a table of `slots` for an address; adjacent elements have different ones.
    pub fn hashed(&mut self, address: Reg, bytes: u32, slots: u32) -> Reg {
        let ty = if address.class == Class::B64 { Ty::U64 } else { Ty::U32 };
        let by = Opnd::Int(bytes.trailing_zeros().into());
        let low = self.asm.int(Alu::Shr, ty, &[address.into(), by]);
        let low = self.narrow(low);
        let mixed = self.asm.int(Alu::MulLo, Ty::U32, &[low.into(), Opnd::Int(0x9E37_79B1)]);
        let by = Opnd::Int((32 - slots.trailing_zeros()).into());
        self.asm.int(Alu::Shr, Ty::U32, &[mixed.into(), by])
    }
}
