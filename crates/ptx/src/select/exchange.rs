//! Reductions across the blocks of a cluster, through distributed shared memory.
//!
//! Each block sends its partial results into the shared memory of all others with `st.async`; an
//! mbarrier there counts the bytes. A block waits for those bytes only. A cluster barrier would
//! also wait until all earlier stores of its threads are in memory.
//!
//! Every exchange has two buffers of its own, used in turn. A block sends for iteration `i + 2`
//! only when it has received everything for iteration `i + 1`. Others send that after all their
//! threads have synchronised, and so have read what arrived in iteration `i`. A block may exit when
//! it has received everything: no block sends it more.

use super::Select;
use super::sync::Region;
use crate::inst::*;
use crate::module::Stmt;
use tessera_layout::{In, Layout};

/// Bytes of a buffer before the results: the mbarrier, and padding for alignment.
const BARRIER: u32 = 16;
/// Bytes of one result.
const RESULT: u32 = 8;

impl Select<'_> {
    /// The results of all blocks that differ in the rank's `bits`, one list per sender. `out` is
    /// the same in all threads that hold the same part of `result`. All threads of this block have
    /// synchronised since the last exchange.
    pub fn exchanged(&mut self, result: &Layout, bits: &[usize], out: &[Reg]) -> Vec<Vec<Reg>> {
        let moving = |i: In| -> Vec<usize> {
            let bases = result.bases(i).iter().enumerate();
            bases.filter(|(_, b)| b.iter().any(|&c| c != 0)).map(|(bit, _)| bit).collect()
        };
        // A place for every thread that holds distinct results.
        let holders: Vec<usize> =
            moving(In::Lane).into_iter().chain(moving(In::Warp).iter().map(|b| b + 5)).collect();
        let slots = 1u32 << holders.len();
        let senders = 1u32 << bits.len();
        let row = out.len() as u32 * slots * RESULT;
        let size = BARRIER + senders * row;
        let at = self.allocate(2 * size, BARRIER);
        let fixed = self.region(Region::Fixed);
        let tid = self.tid();
        let iteration = self.head(|me| {
            let first = me.asm.setp(Cmp::Eq, Ty::U32, tid, Opnd::Int(0));
            for half in 0..2 {
                let addr = Addr::reg(fixed, i64::from(at + half * size));
                let count = Opnd::Int(1);
                me.asm.when(first, true, |asm| asm.emit(Inst::MbarInit { addr, count }));
            }
            me.asm.mov(Ty::B32, Opnd::Int(0))
        });
        self.exchanges = true;

        let half = self.asm.int(Alu::And, Ty::B32, &[iteration.into(), Opnd::Int(1)]);
        let by = Opnd::Int(size.into());
        let buffer = self.asm.int(Alu::MadLo, Ty::U32, &[half.into(), by, fixed.into()]);
        let parity =
            self.asm.int(Alu::Bfe, Ty::U32, &[iteration.into(), Opnd::Int(1), Opnd::Int(1)]);
        let next = self.asm.int(Alu::Add, Ty::U32, &[iteration.into(), Opnd::Int(1)]);
        self.asm.mov_to(Ty::B32, iteration, next);
        let barrier = Addr::reg(buffer, at.into());

        let bytes: u32 = out.iter().map(|r| word(*r).bits() / 8).sum();
        let expected = Opnd::Int(i64::from(senders * slots * bytes));
        let all = (1u32 << (5 + self.warps.trailing_zeros())) - 1;
        let first = self.none_of(tid, all);
        let (space, addr) = (Space::Shared, barrier.clone());
        self.asm.when(first, true, |asm| {
            asm.emit(Inst::MbarArriveExpect { space, addr, bytes: expected });
        });

        let mut slot = buffer;
        for (to, &bit) in holders.iter().enumerate() {
            let one = &[tid.into(), Opnd::Int(bit as i64), Opnd::Int(1)];
            let one = self.asm.int(Alu::Bfe, Ty::U32, one);
            let bytes = Opnd::Int(i64::from(RESULT) << to);
            slot = self.asm.int(Alu::MadLo, Ty::U32, &[one.into(), bytes, slot.into()]);
        }
        let rank = self.cta_rank();
        let mut own = slot;
        for (to, &bit) in bits.iter().enumerate() {
            let one = &[rank.into(), Opnd::Int(bit as i64), Opnd::Int(1)];
            let one = self.asm.int(Alu::Bfe, Ty::U32, one);
            let bytes = Opnd::Int(i64::from(row) << to);
            own = self.asm.int(Alu::MadLo, Ty::U32, &[one.into(), bytes, own.into()]);
        }
        let values: Vec<Reg> = out.iter().map(|&x| self.as_word(x)).collect();
        // Of threads that hold the same result, one sends it.
        let copies = holders.iter().fold(all, |m, bit| m & !(1 << bit));
        let sends = (copies != 0).then(|| self.none_of(tid, copies));
        let others = bits.iter().fold(self.cluster - 1, |m, bit| m & !(1 << bit));
        let base = self.asm.int(Alu::And, Ty::B32, &[rank.into(), Opnd::Int(others.into())]);
        for k in 0..senders {
            let cta: u32 = bits.iter().enumerate().map(|(i, &b)| (k >> i & 1) << b).sum();
            let to = self.asm.int(Alu::Or, Ty::B32, &[base.into(), Opnd::Int(cta.into())]);
            let [there, bar] = [own, buffer].map(|a| {
                let d = self.asm.reg(Class::B32);
                self.asm.emit(Inst::Mapa { d, a, rank: to.into() });
                d
            });
            for (i, &x) in values.iter().enumerate() {
                let addr = Addr::reg(there, i64::from(at + BARRIER + i as u32 * slots * RESULT));
                let bar = Addr::reg(bar, at.into());
                let (ty, a) = (word(x), vec![x.into()]);
                self.asm.maybe(sends, |asm| asm.emit(Inst::StAsync { ty, addr, a, bar }));
            }
        }

        let again = self.asm.label();
        self.asm.place(again);
        let done = self.asm.reg(Class::Pred);
        let parity = parity.into();
        self.asm.emit(Inst::MbarWait { d: done, addr: barrier, parity, block: true });
        self.asm.bra_if(done, false, again);
        (0..senders)
            .map(|k| {
                let mut part = Vec::new();
                for (i, &x) in out.iter().enumerate() {
                    let place = BARRIER + k * row + i as u32 * slots * RESULT;
                    let addr = Addr::reg(slot, i64::from(at + place));
                    part.push(self.take(Space::Shared, addr, x.class));
                }
                part
            })
            .collect()
    }

    /// Code at the head of a kernel that exchanges results: no block sends before the others have
    /// started.
    pub fn begin_exchanges(&mut self) -> Vec<Stmt> {
        if !self.exchanges {
            return Vec::new();
        }
        let all = [
            Inst::FenceMbarInit,
            Inst::ClusterArrive { release: true },
            Inst::ClusterWait { acquire: true },
        ];
        all.into_iter().map(|inst| Stmt::Inst { guard: None, inst }).collect()
    }

    /// A register in a class that a store can send.
    fn as_word(&mut self, x: Reg) -> Reg {
        match x.class {
            Class::Pred => self.asm.selp(Ty::B32, x, Opnd::Int(1), Opnd::Int(0)),
            Class::B16 => self.asm.cvt(Ty::U32, Ty::U16, None, x),
            Class::B32 | Class::B64 => x,
        }
    }
}

/// The type by which a register is sent.
fn word(x: Reg) -> Ty {
    match x.class {
        Class::B64 => Ty::B64,
        Class::B32 | Class::B16 | Class::Pred => Ty::B32,
    }
}
