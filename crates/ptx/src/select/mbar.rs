//! Rings and turns of roles: barriers in shared memory say when a slot is filled and when it is free,
//! and whose turn it is.
//!
//! Each slot has two barriers. `full` ends a phase when all who fill the slot have arrived and all
//! bytes that copy engines were to bring are there; `empty` when all who read it have. Counter `i` is
//! slot `i mod n`; a phase has the parity of `i div n`. See `counters` for how a crew finds them.
//!
//! Who acquires waits for the phase before the one that the readers end: on a fresh barrier that is
//! over, so that the first round needs no case of its own.

use super::counters::Counters;
use super::ring::{Ring, Slot};
use super::sync::Region;
use super::wgmma_plan::IN_GROUP;
use super::{Repr, Select};
use crate::inst::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, BlockId, OpId, Value};
use tessera_staged::StagedOp;
use tessera_staged::ops::roles::{role_info, role_of};
use tessera_tile::TileOp;

/// Bytes of a barrier.
pub const BYTES: u32 = 8;

#[derive(Default)]
pub struct Mbars {
    /// Barriers that are not made yet: where, and how many arrive.
    pending: Vec<(u32, u32)>,
    /// Which values are turns: where their barriers begin.
    turns: BTreeMap<Value, u32>,
    /// Loops that are open; the register is 0 in the first turn.
    turned: Vec<Option<Reg>>,
    pub own: Own,
}

/// What one crew keeps in registers.
#[derive(Clone, Default)]
pub struct Own {
    /// The next counters of rings.
    pub next: Counters,
    /// The place of the barriers of what was acquired, and of what was waited for.
    acquired: BTreeMap<(Value, Value), Acquired>,
    waited: BTreeMap<(Value, Value), Reg>,
    /// The parity of the phase that the next taking of a turn waits for.
    turns: BTreeMap<Value, Reg>,
    /// What each speaker of a cluster knows.
    pub afar: BTreeMap<Speaker, super::cluster::Afar>,
}

#[derive(Copy, Clone)]
struct Acquired {
    bar: Reg,
    /// It was said already which bytes come, and that nothing else does.
    published: bool,
}

/// Who says of a crew that it is done with a slot.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speaker {
    /// One thread, where only it did anything.
    Crew,
    /// One thread of each warpgroup, where only its matrix engine reads: it reads for all four warps
    /// at once, and has done so when it is done for one.
    Group,
    /// One thread of each warp.
    Warp,
}

impl Speaker {
    fn count(self, warps: u32) -> u32 {
        match self {
            Speaker::Crew => 1,
            Speaker::Group => warps >> IN_GROUP,
            Speaker::Warp => warps,
        }
    }
}

impl Select<'_> {
    // Barriers.

    /// The barriers of a ring; they are made before the roles begin.
    pub fn ring_barriers(&mut self, ring: Value, slots: u32) -> Result<u32, Diagnostics> {
        let at = self.allocate(2 * slots * BYTES, BYTES);
        let [full, empty] = [true, false].map(|fills| self.arrivals(ring, fills));
        // Who fills the slots of others waits for all of them.
        let peers = self.team.peers(self.func, ring, 0).len() as u32;
        for slot in 0..slots {
            self.mbars.pending.push((at + slot * BYTES, full.max(1)));
            self.mbars.pending.push((at + (slots + slot) * BYTES, empty.max(1) * peers));
        }
        // The block uses some itself, before roles begin.
        let func = self.func;
        let by_block = func.walk().iter().any(|&o| {
            let op = &func.ops[o];
            matches!(op.code, StagedOp::Acquire | StagedOp::Wait)
                && op.operands[0] == ring
                && role_of(func, o).is_none()
        });
        if by_block {
            self.ready(|_| Ok(()))?;
        }
        Ok(at)
    }

    /// Asks for a barrier at which so many arrive.
    pub fn pending_barrier(&mut self, at: u32, arrivals: u32) {
        self.mbars.pending.push((at, arrivals));
    }

    /// Makes the barriers that were asked for, and all threads meet; see `all_meet`.
    pub fn ready(
        &mut self,
        meanwhile: impl FnOnce(&mut Self) -> Result<(), Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let list = std::mem::take(&mut self.mbars.pending);
        let base = self.region(Region::Fixed);
        let tid = self.tid();
        let first = self.below(tid, 1);
        self.by_leader(Some(first), |asm| {
            for &(at, count) in &list {
                let addr = Addr::reg(base, at.into());
                asm.emit(Inst::MbarInit { addr, count: Opnd::Int(count.into()) });
            }
            if !list.is_empty() {
                asm.emit(Inst::FenceMbarInit);
            }
        });
        self.all_meet(meanwhile)
    }

    /// How many arrive at a barrier of a ring in each phase: of those who fill it, or who read it.
    fn arrivals(&self, ring: Value, fills: bool) -> u32 {
        let func = self.func;
        let code = if fills { StagedOp::Acquire } else { StagedOp::Wait };
        let mut sides = BTreeSet::new();
        for id in func.walk() {
            if func.ops[id].code == code && func.ops[id].operands[0] == ring {
                sides.insert(role_of(func, id));
            }
        }
        let of = |role: &Option<OpId>| {
            let info = role.map(|r| role_info(func, r));
            let replicas = info.as_ref().map_or(1, |r| if r.by_tiles { 1 } else { r.replicas });
            let block = self.asm.kernel.threads / 32;
            let warps = info.as_ref().map_or(block, |r| r.warps as u32);
            self.speaker(ring, *role, fills).count(warps) * replicas as u32
        };
        sides.iter().map(of).sum()
    }

    /// Who arrives there, of one crew.
    fn speaker(&self, ring: Value, role: Option<OpId>, fills: bool) -> Speaker {
        match role.map(|r| role_info(self.func, r)) {
            Some(info) if info.one_thread => Speaker::Crew,
            // What engines bring counts itself, and one thread speaks for it.
            _ if fills && !self.is_written(ring, role) => Speaker::Crew,
            Some(_) if !fills && self.is_engines_alone(ring, role) => Speaker::Group,
            _ => Speaker::Warp,
        }
    }

    /// Whether of what a role waits for in a ring only products of the matrix engine read anything.
    fn is_engines_alone(&self, ring: Value, role: Option<OpId>) -> bool {
        let func = self.func;
        let all = func.walk();
        let users =
            |v: Value| all.iter().copied().filter(move |&o| func.ops[o].operands.contains(&v));
        let mut list: Vec<Value> = all
            .iter()
            .filter(|&&o| {
                let op = &func.ops[o];
                op.code == StagedOp::Wait && op.operands[0] == ring && role_of(func, o) == role
            })
            .map(|&o| func.ops[o].result())
            .collect();
        while let Some(v) = list.pop() {
            for o in users(v) {
                match func.ops[o].code {
                    StagedOp::Field | StagedOp::SmemView => list.push(func.ops[o].result()),
                    StagedOp::MmaIssue if self.is_engine_product(o) => {}
                    _ => return false,
                }
            }
        }
        true
    }

    /// Whether threads of a role write fields of a ring.
    fn is_written(&self, ring: Value, role: Option<OpId>) -> bool {
        let func = self.func;
        func.walk().iter().any(|&id| {
            let op = &func.ops[id];
            op.code == StagedOp::Field
                && role_of(func, id) == role
                && func
                    .def(op.operands[0])
                    .is_some_and(|slot| slot.code == StagedOp::Acquire && slot.operands[0] == ring)
        })
    }

    /// Waits until the phase of this parity is over.
    pub fn phase(&mut self, addr: Addr, parity: Reg) {
        let again = self.asm.label();
        self.asm.place(again);
        let p = self.asm.reg(Class::Pred);
        self.asm.emit(Inst::MbarWait { d: p, addr, parity: parity.into(), block: true });
        self.asm.bra_if(p, false, again);
    }

    /// Those who speak for others arrive, when the others have come here.
    pub fn arrive(&mut self, addr: Addr, speaker: Speaker, when: Option<Reg>) {
        let who = match speaker {
            Speaker::Crew => self.leader(),
            Speaker::Group | Speaker::Warp if self.crew.one_thread => None,
            Speaker::Group => Some(self.speaks_for_warpgroup()),
            Speaker::Warp => {
                self.asm.emit(Inst::WarpSync { mask: Opnd::Int(0xffff_ffff) });
                let lane = self.lane();
                Some(self.below(lane, 1))
            }
        };
        let p = self.both(who, when);
        let space = Space::Shared;
        self.asm.maybe(p, |asm| asm.emit(Inst::MbarArrive { space, addr, count: None }));
    }

    fn counter(&self, id: OpId) -> (Value, Value, Arc<Ring>, Reg) {
        let op = &self.func.ops[id];
        let [ring, i] = [op.operands[0], op.operands[1]];
        (ring, i, self.ring(ring), self.scalar(i))
    }

    // Ops.

    pub fn mbar_acquire(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let (value, i, ring, counter) = self.counter(id);
        let found = self.next_filled(value, &ring, Some(counter));
        let bar = self.barriers_of(found.slot);
        self.phase(ring.empty(bar), found.parity);
        let bytes = self.filled_at_once(id);
        if let Some(bytes) = bytes {
            let (space, addr) = (Space::Shared, ring.full(bar));
            let bytes = Opnd::Int(bytes.into());
            let who = self.leader();
            self.asm.maybe(who, |asm| asm.emit(Inst::MbarArriveExpect { space, addr, bytes }));
        }
        self.mbars.own.acquired.insert((value, i), Acquired { bar, published: bytes.is_some() });
        self.know(id, &ring, found.slot);
        Ok(())
    }

    /// The bytes that copies bring to a slot, where all that is done to it stands between its
    /// acquisition and its publication in one block, and threads write nothing.
    fn filled_at_once(&self, acquire: OpId) -> Option<u32> {
        let func = self.func;
        let op = &func.ops[acquire];
        let slot = op.result();
        if self.is_written(op.operands[0], role_of(func, acquire)) {
            return None;
        }
        let after = func.blocks[op.block].ops.iter().skip_while(|&&o| o != acquire).skip(1);
        let mut bytes = 0;
        let mut fills = 0;
        let mut published = false;
        for &o in after {
            let other = &func.ops[o];
            match other.code {
                StagedOp::Fill if other.operands[0] == slot => {
                    fills += 1;
                    bytes += self.fill_bytes(o);
                }
                StagedOp::Publish if other.operands[..2] == op.operands[..2] => {
                    published = true;
                    break;
                }
                _ => {}
            }
        }
        let uses = func.walk().iter().filter(|&&o| func.ops[o].operands.contains(&slot)).count();
        (published && uses == fills && fills > 0).then_some(bytes)
    }

    /// The barrier that counts the bytes of a slot.
    pub fn full_barrier(&mut self, slot: Value) -> Option<(Addr, bool)> {
        let op = self.func.def(slot)?;
        let (value, i) = (op.operands[0], op.operands[1]);
        let known = *self.mbars.own.acquired.get(&(value, i))?;
        Some((self.ring(value).full(known.bar), known.published))
    }

    pub fn mbar_publish(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let (value, i, ring, counter) = self.counter(id);
        let known = self.mbars.own.acquired.get(&(value, i)).copied();
        if known.is_some_and(|k| k.published) {
            return Ok(());
        }
        let bar = match known {
            Some(k) => k.bar,
            None => {
                let found = self.counter_slot(ring.slots, counter, 0);
                self.barriers_of(found.slot)
            }
        };
        let speaker = self.speaker(value, self.crew.role, true);
        self.arrive(ring.full(bar), speaker, None);
        Ok(())
    }

    pub fn mbar_wait(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let (value, i, ring, counter) = self.counter(id);
        if self.crew.by_tiles {
            let found = self.counter_slot(ring.slots, counter, 0);
            let bar = self.barriers_of(found.slot);
            self.phase(ring.full(bar), found.parity);
            self.mbars.own.waited.insert((value, i), bar);
            self.know(id, &ring, found.slot);
            return Ok(());
        }
        let ready = self.ready_slot(value, &ring);
        self.phase(ring.full(ready.bar), ready.parity);
        self.mbars.own.waited.insert((value, i), ready.bar);
        self.know_slot([ready.moving, ready.address]);
        self.set(
            self.func.ops[id].result(),
            Repr::Slot(Slot { ring: ring.clone(), moving: ready.moving }),
        );
        Ok(())
    }

    pub fn mbar_release(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let (value, i, ring, counter) = self.counter(id);
        let waits = func.walk().into_iter().filter(|&o| {
            let op = &func.ops[o];
            op.code == StagedOp::Wait && op.operands[..2] == [value, i]
        });
        let bar = match self.mbars.own.waited.get(&(value, i)) {
            Some(&bar) if waits.count() == 1 => bar,
            _ => {
                let found = self.counter_slot(ring.slots, counter, 0);
                self.barriers_of(found.slot)
            }
        };
        let unless_first = func.ops[id].attr("unless_first").and_then(Attr::as_bool);
        let when = match (unless_first, self.mbars.turned.last()) {
            (Some(true), Some(&Some(turned))) => {
                Some(self.asm.setp(Cmp::Ne, Ty::U32, turned, Opnd::Int(0)))
            }
            _ => None,
        };
        let speaker = self.speaker(value, self.crew.role, false);
        if self.team.peers(func, value, 0).len() > 1 {
            return self.arrive_in_cluster(id, ring.empty(bar), speaker, when);
        }
        self.arrive(ring.empty(bar), speaker, when);
        Ok(())
    }

    /// Waits for every slot as if to fill it once more; where nobody else reads them, only until what
    /// was begun has come.
    pub fn mbar_drain(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let value = func.ops[id].operands[0];
        let own = self.crew.role;
        let reads =
            |o: &OpId| func.ops[*o].code == StagedOp::Wait && func.ops[*o].operands[0] == value;
        let readers: BTreeSet<_> =
            func.walk().iter().filter(|o| reads(o)).map(|&o| role_of(func, o)).collect();
        let alone = readers.iter().all(|r| *r == own);
        if self.crew.by_tiles || !alone && readers.contains(&own) {
            return self.unsupported(
                id,
                "expected a ring that other roles read, or this one alone, and that it fills without \
                 taking turns, got another",
            );
        }
        let ring = self.ring(value);
        for _ in 0..ring.slots {
            let found = self.next_filled(value, &ring, None);
            let bar = self.barriers_of(found.slot);
            let addr = if alone { ring.full(bar) } else { ring.empty(bar) };
            self.phase(addr, found.parity);
        }
        Ok(())
    }

    // First turns of loops.

    /// Before a loop: a register that tells its first turn, where an op inside asks.
    pub fn begin_turns(&mut self, bodies: &[BlockId]) {
        let func = self.func;
        let mut asks = false;
        for &body in bodies {
            func.walk_block(body, &mut |id| {
                let op = &func.ops[id];
                let unless = op.attr("unless_first").and_then(Attr::as_bool) == Some(true);
                asks |= op.code == StagedOp::Release && unless && self.loop_of(id) == Some(body);
            });
        }
        let turned = asks.then(|| self.asm.mov(Ty::B32, Opnd::Int(0)));
        self.mbars.turned.push(turned);
    }

    /// The body of the innermost loop around an op.
    fn loop_of(&self, id: OpId) -> Option<BlockId> {
        let func = self.func;
        let mut block = func.ops[id].block;
        loop {
            let around = func.blocks[block].parent?;
            let op = &func.ops[around];
            match op.code {
                StagedOp::Tile(TileOp::For | TileOp::While) | StagedOp::Tiles => {
                    return Some(block);
                }
                _ => block = op.block,
            }
        }
    }

    /// At the end of a turn.
    pub fn end_turn(&mut self) {
        if let Some(&Some(turned)) = self.mbars.turned.last() {
            self.asm.mov_to(Ty::B32, turned, Opnd::Int(1));
        }
    }

    pub fn end_turns(&mut self) {
        self.mbars.turned.pop();
    }

    // Turns of replicas. Each has a barrier, at which the replica before it arrives.

    pub fn turn_create(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let turn = func.ops[id].result();
        let takes = |o: &OpId| func.ops[*o].operands.first() == Some(&turn);
        let role = func.walk().into_iter().find(takes).and_then(|o| role_of(func, o));
        let Some(info) = role.map(|r| role_info(func, r)) else { return Ok(()) };
        let at = self.allocate(info.replicas as u32 * BYTES, BYTES);
        let arrivals = if info.one_thread { 1 } else { info.warps as u32 };
        for replica in 0..info.replicas as u32 {
            self.mbars.pending.push((at + replica * BYTES, arrivals));
        }
        self.mbars.turns.insert(turn, at);
        Ok(())
    }

    fn turn_barrier(&mut self, turn: Value, replica: u32) -> Addr {
        let at = self.mbars.turns.get(&turn).copied().unwrap_or_default();
        let base = self.region(Region::Fixed);
        Addr::reg(base, (at + replica * BYTES).into())
    }

    pub fn turn_take(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let turn = self.func.ops[id].operands[0];
        let replica = self.crew.replica;
        let parity = match self.mbars.own.turns.get(&turn) {
            Some(&r) => r,
            None => {
                // The first replica has the turn from the beginning.
                let first = Opnd::Int(i64::from(replica == 0));
                let r = self.head(|me| me.asm.mov(Ty::B32, first));
                self.mbars.own.turns.insert(turn, r);
                r
            }
        };
        let addr = self.turn_barrier(turn, replica);
        self.phase(addr, parity);
        let other = self.asm.int(Alu::Xor, Ty::B32, &[parity.into(), Opnd::Int(1)]);
        self.asm.mov_to(Ty::B32, parity, other);
        Ok(())
    }

    pub fn turn_give(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let turn = self.func.ops[id].operands[0];
        let next = (self.crew.replica + 1) % self.crew.replicas.max(1);
        let addr = self.turn_barrier(turn, next);
        self.arrive(addr, Speaker::Warp, None);
        Ok(())
    }
}

impl Ring {
    fn full(&self, bar: Reg) -> Addr {
        Addr::reg(bar, self.bars.into())
    }

    fn empty(&self, bar: Reg) -> Addr {
        Addr::reg(bar, (self.bars + self.slots * BYTES).into())
    }
}
