//! Which slot of a ring comes next: a crew takes the counters of a ring one after another from 0 on, so that the next one is
//! kept in registers and nothing is divided. Crews that take tiles in turn skip counters, and find slot and phase from the
//! counter.
//!
//! Who waits for a slot wants to go on at once: where it and its barriers are was found when the one before it was taken, beside
//! the work that followed. What follows it is found as late as that allows, behind the products that read it.

use super::mbar::BYTES;
use super::ring::{Ring, Slot};
use super::sync::Region;
use super::{Repr, Select};
use crate::inst::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_ir::{OpId, Value};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// What one crew knows of the rings that it uses.
#[derive(Clone, Default)]
pub struct Counters {
    filled: BTreeMap<Value, Next>,
    read: BTreeMap<Value, (Next, Ready)>,
    /// Rings of which a slot was taken, and what follows it is not yet found.
    late: Vec<(Value, Arc<Ring>)>,
}

#[derive(Copy, Clone)]
enum Next {
    /// The counter, where slots are a power of two.
    Counter(Reg),
    Slot {
        slot: Reg,
        parity: Reg,
    },
}

/// A slot that can be waited for.
#[derive(Copy, Clone)]
pub struct Ready {
    pub parity: Reg,
    /// What to add the place of the ring's barriers to.
    pub bar: Reg,
    /// The slot's bytes from the first, and its address.
    pub moving: Reg,
    pub address: Reg,
}

/// A counter's slot.
pub struct Found {
    pub slot: Reg,
    pub parity: Reg,
}

impl Select<'_> {
    /// Slot and parity of a counter, from its number: `later` phases are asked for.
    pub fn counter_slot(&mut self, slots: u32, i: Reg, later: u32) -> Found {
        let i = if i.class == Class::B64 { self.asm.cvt(Ty::U32, Ty::U64, None, i) } else { i };
        let n = Opnd::Int(slots.into());
        let (slot, round) = if slots.is_power_of_two() {
            let slot = self.asm.int(Alu::And, Ty::B32, &[i.into(), Opnd::Int((slots - 1).into())]);
            let by = Opnd::Int(slots.trailing_zeros().into());
            (slot, self.asm.int(Alu::Shr, Ty::U32, &[i.into(), by]))
        } else {
            // Exact below 2^31: the factor is off by less than one in 2^31 of it.
            let bits = 32 - (slots - 1).leading_zeros();
            let factor = (1u64 << (31 + bits)).div_ceil(slots.into());
            let q = self.asm.int(Alu::MulHi, Ty::U32, &[i.into(), Opnd::Int(factor as i64)]);
            let q = match bits {
                1 => q,
                _ => self.asm.int(Alu::Shr, Ty::U32, &[q.into(), Opnd::Int((bits - 1).into())]),
            };
            let whole = self.asm.int(Alu::MulLo, Ty::U32, &[q.into(), n]);
            (self.asm.int(Alu::Sub, Ty::U32, &[i.into(), whole.into()]), q)
        };
        let round = match later {
            0 => round,
            n => self.asm.int(Alu::Add, Ty::U32, &[round.into(), Opnd::Int(n.into())]),
        };
        let parity = self.asm.int(Alu::And, Ty::B32, &[round.into(), Opnd::Int(1)]);
        Found { slot, parity }
    }

    /// The next counter of a ring that is filled, which is also what an op says it is.
    pub fn next_filled(&mut self, value: Value, ring: &Ring, i: Option<Reg>) -> Found {
        let n = ring.slots;
        if let Some(i) = i.filter(|_| self.crew.by_tiles) {
            return self.counter_slot(n, i, 1);
        }
        let next = match self.mbars.own.next.filled.get(&value) {
            Some(&next) => next,
            None => {
                let next = self.head(|me| me.first_counter(n, 1));
                self.mbars.own.next.filled.insert(value, next);
                next
            }
        };
        let found = match next {
            Next::Counter(c) => self.counter_slot(n, c, 0),
            Next::Slot { slot, parity } => {
                let [slot, parity] = [slot, parity].map(|r| self.asm.mov(Ty::B32, r));
                Found { slot, parity }
            }
        };
        self.count_on(next, n);
        found
    }

    /// Counter 0, `later` rounds on.
    fn first_counter(&mut self, slots: u32, later: u32) -> Next {
        let mut number = |x: u32| self.asm.mov(Ty::B32, Opnd::Int(x.into()));
        match slots.is_power_of_two() {
            true => Next::Counter(number(later * slots)),
            false => Next::Slot { slot: number(0), parity: number(later) },
        }
    }

    fn count_on(&mut self, next: Next, slots: u32) {
        match next {
            Next::Counter(c) => {
                let more = self.asm.int(Alu::Add, Ty::U32, &[c.into(), Opnd::Int(1)]);
                self.asm.mov_to(Ty::B32, c, more);
            }
            Next::Slot { slot, parity } => {
                let more = self.asm.int(Alu::Add, Ty::U32, &[slot.into(), Opnd::Int(1)]);
                let around = self.asm.setp(Cmp::Eq, Ty::U32, more, Opnd::Int(slots.into()));
                let more = self.asm.selp(Ty::B32, around, Opnd::Int(0), more);
                self.asm.mov_to(Ty::B32, slot, more);
                let other = self.asm.int(Alu::Xor, Ty::B32, &[parity.into(), Opnd::Int(1)]);
                let other = self.asm.selp(Ty::B32, around, other, parity);
                self.asm.mov_to(Ty::B32, parity, other);
            }
        }
    }

    /// The slot of a ring that is read next, in registers that keep it.
    pub fn ready_slot(&mut self, value: Value, ring: &Arc<Ring>) -> Ready {
        if self.mbars.own.next.late.iter().any(|(other, _)| *other == value) {
            self.find_next_slots();
        }
        let (_, ready) = match self.mbars.own.next.read.get(&value) {
            Some(&known) => known,
            None => {
                let base = self.region(Region::Fixed);
                let known = self.head(|me| {
                    let next = me.first_counter(ring.slots, 0);
                    let [parity, moving] = [0, 0].map(|x| me.asm.mov(Ty::B32, Opnd::Int(x)));
                    let [bar, address] = [base, base].map(|r| me.asm.mov(Ty::B32, r));
                    (next, Ready { parity, bar, moving, address })
                });
                self.mbars.own.next.read.insert(value, known);
                known
            }
        };
        self.mbars.own.next.late.push((value, ring.clone()));
        let Ready { parity, bar, moving, address } = ready;
        let [parity, bar, moving, address] =
            [parity, bar, moving, address].map(|r| self.asm.mov(Ty::B32, r));
        Ready { parity, bar, moving, address }
    }

    /// Finds what follows the slots that were taken, before an op that it cannot come behind, or that waits for products anyway.
    pub fn find_next_slots_before(&mut self, id: OpId) {
        let code = self.func.ops[id].code;
        let passes = matches!(
            code,
            StagedOp::Wait
                | StagedOp::Field
                | StagedOp::SmemView
                | StagedOp::MmaOpen
                | StagedOp::MmaIssue
                | StagedOp::ConvertLayout
                | StagedOp::Tile(TileOp::Const)
        );
        if !passes {
            self.find_next_slots();
        }
    }

    pub fn find_next_slots(&mut self) {
        for (value, ring) in std::mem::take(&mut self.mbars.own.next.late) {
            let Some(&(next, ready)) = self.mbars.own.next.read.get(&value) else { continue };
            self.count_on(next, ring.slots);
            let found = match next {
                Next::Counter(c) => self.counter_slot(ring.slots, c, 0),
                Next::Slot { slot, parity } => Found { slot, parity },
            };
            let bar = self.barriers_of(found.slot);
            let [moving, address] = self.slot_place(&ring, found.slot);
            let to = [ready.parity, ready.bar, ready.moving, ready.address];
            self.move_all(&to, &[found.parity, bar, moving, address]);
        }
    }

    /// What to add the place of a ring's barriers to, for a slot.
    pub fn barriers_of(&mut self, slot: Reg) -> Reg {
        let base = self.region(Region::Fixed);
        let bytes = Opnd::Int(BYTES.into());
        self.asm.int(Alu::MadLo, Ty::U32, &[slot.into(), bytes, base.into()])
    }

    fn slot_place(&mut self, ring: &Ring, slot: Reg) -> [Reg; 2] {
        let stride = Opnd::Int(ring.stride.into());
        let moving = self.asm.int(Alu::MulLo, Ty::U32, &[slot.into(), stride]);
        let base = self.region(Region::Fixed);
        [moving, self.asm.int(Alu::Add, Ty::U32, &[base.into(), moving.into()])]
    }

    pub fn know(&mut self, id: OpId, ring: &Arc<Ring>, slot: Reg) {
        let place = self.slot_place(ring, slot);
        self.know_slot(place);
        let result = self.func.ops[id].result();
        self.set(result, Repr::Slot(Slot { ring: ring.clone(), moving: place[0] }));
    }
}
