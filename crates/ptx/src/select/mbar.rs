//! Pipelines and order barriers of warp-specialized kernels, as mbarriers in shared memory
//! (CUTLASS's `PipelineTmaAsync` and `OrderedSequenceBarrier`).
//!
//! Each stage has two mbarriers. The phase of `full` completes when all producers have arrived and
//! all bytes of the TMA copies have landed; that of `empty` when all consumers have arrived.
//! Counter `i` uses stage `i mod n`; its phase has the parity of `i div n`. `counters` computes
//! both.
//!
//! A producer that acquires a stage waits for the phase before the one that the consumers complete.
//! On a fresh barrier that phase counts as complete, so the first `n` iterations need no special
//! case.

use super::counters::Counters;
use super::pipeline::{Pipeline, Stage};
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

/// Bytes of an mbarrier.
pub const BYTES: u32 = 8;

#[derive(Default)]
pub struct Mbars {
    /// mbarriers to initialise: offset and number of arrivals.
    pending: Vec<(u32, u32)>,
    /// The offset of the barriers of each order barrier.
    order_barriers: BTreeMap<Value, u32>,
    /// Open loops; the register is 0 in the first iteration.
    not_first: Vec<Option<Reg>>,
    pub own: Own,
}

/// What one instance keeps in registers.
#[derive(Clone, Default)]
pub struct Own {
    /// The state of each pipeline.
    pub next: Counters,
    /// The barrier offset of each acquired stage, and of each stage that was waited for.
    acquired: BTreeMap<(Value, Value), Acquired>,
    waited: BTreeMap<(Value, Value), Reg>,
    /// The phase parity that the next wait of an order barrier uses.
    order_barriers: BTreeMap<Value, Reg>,
    /// What each arriving thread of a cluster knows.
    pub afar: BTreeMap<Speaker, super::cluster::Afar>,
}

#[derive(Copy, Clone)]
struct Acquired {
    bar: Reg,
    /// The expected bytes were already announced, and nothing else fills the stage.
    published: bool,
}

/// Which threads of an instance arrive at a barrier.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speaker {
    /// One thread, where only it did anything.
    RoleInstance,
    /// One thread of each warpgroup, where only WGMMA reads the stage: it reads for all four warps,
    /// and has completed for all when it has completed for one.
    Group,
    /// One thread of each warp.
    Warp,
}

impl Speaker {
    fn count(self, warps: u32) -> u32 {
        match self {
            Speaker::RoleInstance => 1,
            Speaker::Group => warps >> IN_GROUP,
            Speaker::Warp => warps,
        }
    }
}

impl Select<'_> {
    // Barriers.

    /// The mbarriers of a pipeline; they are initialised before the roles begin.
    pub fn pipeline_barriers(&mut self, pipeline: Value, stages: u32) -> Result<u32, Diagnostics> {
        let at = self.allocate(2 * stages * BYTES, BYTES);
        let [full, empty] = [true, false].map(|fills| self.arrivals(pipeline, fills));
        // A producer of several blocks' stages waits for the consumers of all of them.
        let peers = self.team.peers(self.func, pipeline, 0).len() as u32;
        for stage in 0..stages {
            self.mbars.pending.push((at + stage * BYTES, full.max(1)));
            self.mbars.pending.push((at + (stages + stage) * BYTES, empty.max(1) * peers));
        }
        // The block itself may use a pipeline, before roles begin.
        let func = self.func;
        let by_block = func.walk().iter().any(|&o| {
            let op = &func.ops[o];
            matches!(op.code, StagedOp::Acquire | StagedOp::Wait)
                && op.operands[0] == pipeline
                && role_of(func, o).is_none()
        });
        if by_block {
            self.ready(|_| Ok(()))?;
        }
        Ok(at)
    }

    /// Requests an mbarrier with this number of arrivals.
    pub fn pending_barrier(&mut self, at: u32, arrivals: u32) {
        self.mbars.pending.push((at, arrivals));
    }

    /// Initialises the requested mbarriers and synchronises all threads; see `all_sync`.
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
        self.all_sync(meanwhile)
    }

    /// Arrivals at an mbarrier of a pipeline in each phase: of its producers, or of its consumers.
    fn arrivals(&self, pipeline: Value, fills: bool) -> u32 {
        let func = self.func;
        let code = if fills { StagedOp::Acquire } else { StagedOp::Wait };
        let mut sides = BTreeSet::new();
        for id in func.walk() {
            if func.ops[id].code == code && func.ops[id].operands[0] == pipeline {
                sides.insert(role_of(func, id));
            }
        }
        let of = |role: &Option<OpId>| {
            let info = role.map(|r| role_info(func, r));
            let replicas = info.as_ref().map_or(1, |r| if r.by_tiles { 1 } else { r.replicas });
            let block = self.asm.kernel.threads / 32;
            let warps = info.as_ref().map_or(block, |r| r.warps as u32);
            self.speaker(pipeline, *role, fills).count(warps) * replicas as u32
        };
        sides.iter().map(of).sum()
    }

    /// Which threads of one instance arrive.
    fn speaker(&self, pipeline: Value, role: Option<OpId>, fills: bool) -> Speaker {
        match role.map(|r| role_info(self.func, r)) {
            Some(info) if info.one_thread => Speaker::RoleInstance,
            // TMA counts its own bytes, and one thread arrives for it.
            _ if fills && !self.is_written(pipeline, role) => Speaker::RoleInstance,
            Some(_) if !fills && self.is_read_by_async_mma_alone(pipeline, role) => Speaker::Group,
            _ => Speaker::Warp,
        }
    }

    /// Whether WGMMA is the only reader of the stages that a role waits for.
    fn is_read_by_async_mma_alone(&self, pipeline: Value, role: Option<OpId>) -> bool {
        let func = self.func;
        let all = func.walk();
        let users =
            |v: Value| all.iter().copied().filter(move |&o| func.ops[o].operands.contains(&v));
        let mut list: Vec<Value> = all
            .iter()
            .filter(|&&o| {
                let op = &func.ops[o];
                op.code == StagedOp::Wait && op.operands[0] == pipeline && role_of(func, o) == role
            })
            .map(|&o| func.ops[o].result())
            .collect();
        while let Some(v) = list.pop() {
            for o in users(v) {
                match func.ops[o].code {
                    StagedOp::Field | StagedOp::SmemView => list.push(func.ops[o].result()),
                    StagedOp::MmaIssue if self.is_async_mma(o) => {}
                    _ => return false,
                }
            }
        }
        true
    }

    /// Whether threads of a role write fields of a pipeline.
    fn is_written(&self, pipeline: Value, role: Option<OpId>) -> bool {
        let func = self.func;
        func.walk().iter().any(|&id| {
            let op = &func.ops[id];
            op.code == StagedOp::Field
                && role_of(func, id) == role
                && func.def(op.operands[0]).is_some_and(|stage| {
                    stage.code == StagedOp::Acquire && stage.operands[0] == pipeline
                })
        })
    }

    /// Waits until the phase of this parity has completed.
    pub fn phase(&mut self, addr: Addr, parity: Reg) {
        let again = self.asm.label();
        self.asm.place(again);
        let p = self.asm.reg(Class::Pred);
        self.asm.emit(Inst::MbarWait { d: p, addr, parity: parity.into(), block: true });
        self.asm.bra_if(p, false, again);
    }

    /// The arriving threads arrive, once all threads that they arrive for have come here.
    pub fn arrive(&mut self, addr: Addr, speaker: Speaker, when: Option<Reg>) {
        let who = match speaker {
            Speaker::RoleInstance => self.leader(),
            Speaker::Group | Speaker::Warp if self.instance.one_thread => None,
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

    fn counter(&self, id: OpId) -> (Value, Value, Arc<Pipeline>, Reg) {
        let op = &self.func.ops[id];
        let [pipeline, i] = [op.operands[0], op.operands[1]];
        (pipeline, i, self.pipeline(pipeline), self.scalar(i))
    }

    // Ops.

    pub fn mbar_acquire(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let (value, i, pipeline, counter) = self.counter(id);
        let found = self.next_filled(value, &pipeline, Some(counter));
        let bar = self.barriers_of(found.stage);
        self.phase(pipeline.empty(bar), found.parity);
        let bytes = self.tma_only_bytes(id);
        if let Some(bytes) = bytes {
            let (space, addr) = (Space::Shared, pipeline.full(bar));
            let bytes = Opnd::Int(bytes.into());
            let who = self.leader();
            self.asm.maybe(who, |asm| asm.emit(Inst::MbarArriveExpect { space, addr, bytes }));
        }
        self.mbars.own.acquired.insert((value, i), Acquired { bar, published: bytes.is_some() });
        self.know(id, &pipeline, found.stage);
        Ok(())
    }

    /// The bytes that TMA brings to a stage, if all fills of the stage are between its acquire and
    /// its publish in one block, and threads write nothing.
    fn tma_only_bytes(&self, acquire: OpId) -> Option<u32> {
        let func = self.func;
        let op = &func.ops[acquire];
        let stage = op.result();
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
                StagedOp::Fill if other.operands[0] == stage => {
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
        let uses = func.walk().iter().filter(|&&o| func.ops[o].operands.contains(&stage)).count();
        (published && uses == fills && fills > 0).then_some(bytes)
    }

    /// The `full` mbarrier, which counts the bytes of a stage.
    pub fn full_barrier(&mut self, stage: Value) -> Option<(Addr, bool)> {
        let op = self.func.def(stage)?;
        let (value, i) = (op.operands[0], op.operands[1]);
        let known = *self.mbars.own.acquired.get(&(value, i))?;
        Some((self.pipeline(value).full(known.bar), known.published))
    }

    pub fn mbar_publish(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let (value, i, pipeline, counter) = self.counter(id);
        let known = self.mbars.own.acquired.get(&(value, i)).copied();
        if known.is_some_and(|k| k.published) {
            return Ok(());
        }
        let bar = match known {
            Some(k) => k.bar,
            None => {
                let found = self.counter_stage(pipeline.stages, counter, 0);
                self.barriers_of(found.stage)
            }
        };
        let speaker = self.speaker(value, self.instance.role, true);
        self.arrive(pipeline.full(bar), speaker, None);
        Ok(())
    }

    pub fn mbar_wait(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let (value, i, pipeline, counter) = self.counter(id);
        if self.instance.by_tiles {
            let found = self.counter_stage(pipeline.stages, counter, 0);
            let bar = self.barriers_of(found.stage);
            self.phase(pipeline.full(bar), found.parity);
            self.mbars.own.waited.insert((value, i), bar);
            self.know(id, &pipeline, found.stage);
            return Ok(());
        }
        let ready = self.ready_stage(value, &pipeline);
        self.phase(pipeline.full(ready.bar), ready.parity);
        self.mbars.own.waited.insert((value, i), ready.bar);
        self.know_stage([ready.moving, ready.address]);
        self.set(
            self.func.ops[id].result(),
            Repr::Stage(Stage { pipeline: pipeline.clone(), moving: ready.moving }),
        );
        Ok(())
    }

    pub fn mbar_release(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let (value, i, pipeline, counter) = self.counter(id);
        let waits = func.walk().into_iter().filter(|&o| {
            let op = &func.ops[o];
            op.code == StagedOp::Wait && op.operands[..2] == [value, i]
        });
        let bar = match self.mbars.own.waited.get(&(value, i)) {
            Some(&bar) if waits.count() == 1 => bar,
            _ => {
                let found = self.counter_stage(pipeline.stages, counter, 0);
                self.barriers_of(found.stage)
            }
        };
        let unless_first = func.ops[id].attr("unless_first").and_then(Attr::as_bool);
        let when = match (unless_first, self.mbars.not_first.last()) {
            (Some(true), Some(&Some(not_first))) => {
                Some(self.asm.setp(Cmp::Ne, Ty::U32, not_first, Opnd::Int(0)))
            }
            _ => None,
        };
        let speaker = self.speaker(value, self.instance.role, false);
        if self.team.peers(func, value, 0).len() > 1 {
            return self.arrive_in_cluster(id, pipeline.empty(bar), speaker, when);
        }
        self.arrive(pipeline.empty(bar), speaker, when);
        Ok(())
    }

    /// Waits for every stage as if to fill it once more. Where there are no other readers, waits
    /// only until the issued copies have landed.
    pub fn mbar_drain(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let value = func.ops[id].operands[0];
        let own = self.instance.role;
        let reads =
            |o: &OpId| func.ops[*o].code == StagedOp::Wait && func.ops[*o].operands[0] == value;
        let readers: BTreeSet<_> =
            func.walk().iter().filter(|o| reads(o)).map(|&o| role_of(func, o)).collect();
        let alone = readers.iter().all(|r| *r == own);
        if self.instance.by_tiles || !alone && readers.contains(&own) {
            return self.unsupported(
                id,
                "expected a pipeline that other roles read, or this one alone, and that it fills without \
                 taking turns, got another",
            );
        }
        let pipeline = self.pipeline(value);
        for _ in 0..pipeline.stages {
            let found = self.next_filled(value, &pipeline, None);
            let bar = self.barriers_of(found.stage);
            let addr = if alone { pipeline.full(bar) } else { pipeline.empty(bar) };
            self.phase(addr, found.parity);
        }
        Ok(())
    }

    // First iterations of loops.

    /// Before a loop: a register that is 0 in its first iteration, where an op inside needs it.
    pub fn begin_iterations(&mut self, bodies: &[BlockId]) {
        let func = self.func;
        let mut asks = false;
        for &body in bodies {
            func.walk_block(body, &mut |id| {
                let op = &func.ops[id];
                let unless = op.attr("unless_first").and_then(Attr::as_bool) == Some(true);
                asks |= op.code == StagedOp::Release && unless && self.loop_of(id) == Some(body);
            });
        }
        let not_first = asks.then(|| self.asm.mov(Ty::B32, Opnd::Int(0)));
        self.mbars.not_first.push(not_first);
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

    /// At the end of an iteration.
    pub fn end_iteration(&mut self) {
        if let Some(&Some(not_first)) = self.mbars.not_first.last() {
            self.asm.mov_to(Ty::B32, not_first, Opnd::Int(1));
        }
    }

    pub fn end_iterations(&mut self) {
        self.mbars.not_first.pop();
    }

    // Order barriers of replicas. Each replica has an mbarrier, at which the replica before it
    // arrives.

    pub fn order_barrier_create(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let order_barrier = func.ops[id].result();
        let takes = |o: &OpId| func.ops[*o].operands.first() == Some(&order_barrier);
        let role = func.walk().into_iter().find(takes).and_then(|o| role_of(func, o));
        let Some(info) = role.map(|r| role_info(func, r)) else { return Ok(()) };
        let at = self.allocate(info.replicas as u32 * BYTES, BYTES);
        let arrivals = if info.one_thread { 1 } else { info.warps as u32 };
        for replica in 0..info.replicas as u32 {
            self.mbars.pending.push((at + replica * BYTES, arrivals));
        }
        self.mbars.order_barriers.insert(order_barrier, at);
        Ok(())
    }

    fn order_barrier_address(&mut self, order_barrier: Value, replica: u32) -> Addr {
        let at = self.mbars.order_barriers.get(&order_barrier).copied().unwrap_or_default();
        let base = self.region(Region::Fixed);
        Addr::reg(base, (at + replica * BYTES).into())
    }

    pub fn order_wait(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let order_barrier = self.func.ops[id].operands[0];
        let replica = self.instance.replica;
        let parity = match self.mbars.own.order_barriers.get(&order_barrier) {
            Some(&r) => r,
            None => {
                // The first replica may go first.
                let first = Opnd::Int(i64::from(replica == 0));
                let r = self.head(|me| me.asm.mov(Ty::B32, first));
                self.mbars.own.order_barriers.insert(order_barrier, r);
                r
            }
        };
        let addr = self.order_barrier_address(order_barrier, replica);
        self.phase(addr, parity);
        let other = self.asm.int(Alu::Xor, Ty::B32, &[parity.into(), Opnd::Int(1)]);
        self.asm.mov_to(Ty::B32, parity, other);
        Ok(())
    }

    pub fn order_arrive(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let order_barrier = self.func.ops[id].operands[0];
        let next = (self.instance.replica + 1) % self.instance.replicas.max(1);
        let addr = self.order_barrier_address(order_barrier, next);
        self.arrive(addr, Speaker::Warp, None);
        Ok(())
    }
}

impl Pipeline {
    fn full(&self, bar: Reg) -> Addr {
        Addr::reg(bar, self.bars.into())
    }

    fn empty(&self, bar: Reg) -> Addr {
        Addr::reg(bar, (self.bars + self.stages * BYTES).into())
    }
}
