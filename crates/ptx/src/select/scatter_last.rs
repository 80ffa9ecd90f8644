//! Deterministic scatter: of several values for one element, the last in row-major order is stored.
//!
//! Elements are hashed by their address into a table in shared memory. In each iteration the last
//! element of each entry is stored. Elements with the same address are done with it, as they come
//! before it; the others, which only collide in the hash, try again. So an iteration settles one
//! address per entry in use.

use super::{Select, View};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_layout::Layout;

/// The most entries; more elements take more iterations.
const MOST: u32 = 2048;
/// Bytes of an entry: the number of its last element, plus one, and its address.
const BYTES: u32 = 12;

/// An element that a thread holds.
struct Element {
    value: Reg,
    /// Where it is stored, and the same in 64 bits.
    place: Reg,
    address: Reg,
    /// Its row-major index, plus one.
    number: Reg,
    /// Whether it is still to be stored.
    left: Reg,
    slot: Reg,
}

impl Select<'_> {
    /// Stores `xs` at their addresses, each where its condition holds.
    pub fn scatter_last(
        &mut self,
        id: OpId,
        view: &View,
        layout: &Arc<Layout>,
        xs: &[(u32, Reg, Addr, Option<Reg>)],
    ) -> Result<(), Diagnostics> {
        if self.cluster > 1 {
            return self.unsupported(
                id,
                "which of several values stays is not settled across the blocks of a cluster: say \
                 `unique=True`, or scatter smaller tiles",
            );
        }
        let threads = self.warps * 32;
        let slots = layout.shape().iter().product::<u32>().next_power_of_two().clamp(32, MOST);
        let region = self.scratch(slots * BYTES);
        let numbers = self.region(region);
        let first = self.asm.int(Alu::Add, Ty::U32, &[numbers.into(), Opnd::Int(0)]);
        let addresses =
            self.asm.int(Alu::Add, Ty::U32, &[first.into(), Opnd::Int((4 * slots).into())]);
        let mut all = Vec::new();
        for &(reg, value, ref addr, when) in xs {
            let number = self.row_major_number(layout, reg);
            let element = self.element(view, value, addr.clone(), number, when, slots);
            all.push(element);
        }
        let tid = self.tid();
        let mine = self.asm.int(Alu::MadLo, Ty::U32, &[tid.into(), Opnd::Int(4), first.into()]);
        let again = self.asm.label();
        self.asm.place(again);
        // No entry has an element yet.
        let none = self.asm.mov(Ty::B32, Opnd::Int(0));
        for at in (0..slots).step_by(threads as usize) {
            let inside = (slots < threads)
                .then(|| self.asm.setp(Cmp::Lt, Ty::U32, tid, Opnd::Int(slots.into())));
            self.asm.maybe(inside, |asm| {
                let addr = Addr::reg(mine, i64::from(4 * at));
                asm.st(Space::Shared, Ty::B32, &[none.into()], addr, Cache::Usual);
            });
        }
        self.asm.barrier();
        for e in &all {
            let by = Opnd::Int(4);
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[e.slot.into(), by, first.into()]);
            self.asm.when(e.left, true, |asm| {
                asm.emit(Inst::Red {
                    space: Space::Shared,
                    sem: Sem::Relaxed,
                    scope: Scope::Cta,
                    op: AtomOp::Max,
                    ty: Ty::U32,
                    addr: Addr::reg(at, 0),
                    a: vec![e.number.into()],
                });
            });
        }
        self.asm.barrier();
        let mut last = Vec::new();
        for e in &all {
            let by = Opnd::Int(4);
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[e.slot.into(), by, first.into()]);
            let found = self.asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(at, 0), Cache::Usual)[0];
            let is_last = self.asm.setp(Cmp::Eq, Ty::U32, found, e.number);
            let is_last = self.and(is_last, e.left);
            let by = Opnd::Int(8);
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[e.slot.into(), by, addresses.into()]);
            self.asm.when(is_last, true, |asm| {
                let addr = Addr::reg(at, 0);
                asm.st(Space::Shared, Ty::B64, &[e.address.into()], addr, Cache::Usual);
            });
            last.push((is_last, at));
        }
        self.asm.barrier();
        let mut any: Option<Reg> = None;
        for (e, (is_last, at)) in all.iter().zip(last) {
            let addr = Addr::reg(e.place, 0);
            self.store_run(view.space(), view.dtype, addr, &[e.value], Some(is_last));
            // An entry without remaining elements may have no address yet.
            let found = self.asm.mov(Ty::B64, Opnd::Int(0));
            self.asm.when(e.left, true, |asm| {
                asm.emit(Inst::Ld {
                    space: Space::Shared,
                    ty: Ty::B64,
                    d: vec![found],
                    addr: Addr::reg(at, 0),
                    cache: Cache::Usual,
                    sem: Sem::Weak,
                    scope: Scope::Gpu,
                });
            });
            let other = self.asm.setp(Cmp::Ne, Ty::U64, found, e.address);
            let left = self.asm.int(Alu::And, Ty::Pred, &[e.left.into(), other.into()]);
            self.move_all(&[e.left], &[left]);
            any = Some(match any {
                None => left,
                Some(any) => self.asm.int(Alu::Or, Ty::Pred, &[any.into(), left.into()]),
            });
        }
        if let Some(p) = any {
            let d = self.asm.reg(Class::Pred);
            self.asm.emit(Inst::BarRedOr { id: 0, d, p });
            self.asm.when(d, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        }
        self.reading(region);
        Ok(())
    }

    fn element(
        &mut self,
        view: &View,
        value: Reg,
        addr: Addr,
        number: Reg,
        when: Option<Reg>,
        slots: u32,
    ) -> Element {
        let Base::Reg(base) = addr.base else { unreachable!("a register holds the address") };
        let place = match addr.offset {
            0 => base,
            n => {
                let ty = if base.class == Class::B64 { Ty::S64 } else { Ty::U32 };
                self.asm.int(Alu::Add, ty, &[base.into(), Opnd::Int(n)])
            }
        };
        let address = self.widen(place);
        let slot = self.hashed(address, view.dtype.bytes() as u32, slots);
        let left = self.asm.reg(Class::Pred);
        let all = match when {
            Some(p) => p,
            None => self.asm.setp(Cmp::Eq, Ty::U32, slot, slot),
        };
        self.move_all(&[left], &[all]);
        Element { value, place, address, number, left, slot }
    }

    /// A register's row-major index, plus one.
    pub fn row_major_number(&mut self, layout: &Arc<Layout>, reg: u32) -> Reg {
        let coords = self.coords(layout, reg);
        let mut at = self.asm.mov(Ty::B32, Opnd::Int(1));
        let mut stride = 1i64;
        for (dim, c) in coords.into_iter().enumerate().rev() {
            let c = self.coord_value(c);
            at = self.asm.int(Alu::MadLo, Ty::U32, &[c.into(), Opnd::Int(stride), at.into()]);
            stride *= i64::from(layout.shape()[dim]);
        }
        at
    }
}
