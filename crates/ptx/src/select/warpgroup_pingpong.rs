//! Warpgroup ping-pong (FlashAttention-3 §3.1): warpgroups of a role issue their WGMMAs in turn,
//! ordered by named barriers.
//!
//! A loop that computes on one MMA while another is in flight keeps the tensor cores busy if its
//! warpgroups are half an iteration apart: one computes while the tensor cores work for the other.
//! Nothing else keeps them apart. Whenever both wait for the same TMA load they continue at the
//! same moment. The tensor cores then serve both together, both compute together while the tensor
//! cores idle, and they stay in phase for the rest of the loop. So each warpgroup issues its MMAs
//! when the one before it has issued its own, in a cycle. One that is late is not delayed, and two
//! that are in phase are moved apart within an iteration.
//!
//! The barriers cost about 2 % of an iteration. They are used with a static tile schedule, where
//! the slowest block decides the time. With a dynamic scheduler a slow tile costs only its own
//! time.
//!
//! All warpgroups of a role run the same iterations of the same loops, so none waits for ever.

use super::Select;
use super::warp_specialize::BARRIERS;
use super::wgmma_plan::IN_GROUP;
use crate::inst::*;
use std::collections::BTreeMap;
use tessera_ir::{BlockId, OpId};
use tessera_lower::stage::{Off, Step};
use tessera_staged::StagedOp;
use tessera_staged::ops::roles::RoleInfo;
use tessera_staged::ops::tiles::order_of;
use tessera_tile::TileOp;

/// Threads of two warpgroups: one waits for the other.
const PAIR: u32 = 256;

/// The roles and loops with ping-pong.
#[derive(Clone, Debug, Default)]
pub struct Pingpong {
    /// The first named barrier of each role; there is one per warpgroup.
    roles: BTreeMap<OpId, NamedBarriers>,
    /// MMAs before which a warpgroup waits for its predecessor, and those after which it signals
    /// its successor.
    takes: BTreeMap<OpId, NamedBarriers>,
    gives: BTreeMap<OpId, NamedBarriers>,
}

#[derive(Copy, Clone, Debug)]
struct NamedBarriers {
    barrier: u32,
    groups: u32,
}

impl Select<'_> {
    /// Finds the loops of a role whose MMAs are issued in turn. `next` is the first free named
    /// barrier.
    pub fn survey_pingpong(&mut self, role: OpId, info: &RoleInfo, next: &mut u32) {
        let groups = info.warps as u32 >> IN_GROUP;
        let whole = (info.warps as u32).is_multiple_of(1 << IN_GROUP) && groups.is_power_of_two();
        let off = Off::of(self.func).has(Step::WarpgroupPingpong);
        if off || !whole || groups < 2 || info.replicas > 1 || *next + groups > BARRIERS {
            return;
        }
        let func = self.func;
        let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles);
        if tiles.is_none_or(|id| order_of(func, id).is_ok_and(|order| order.dynamic)) {
            return;
        }
        let barriers = NamedBarriers { barrier: *next, groups };
        let mut found = Vec::new();
        func.walk_block(func.ops[role].regions[0], &mut |id| {
            if func.ops[id].code == StagedOp::Tile(TileOp::For) {
                found.extend(self.one_run_of_mmas(func.ops[id].regions[0]));
            }
        });
        if found.is_empty() {
            return;
        }
        for (first, last) in found {
            self.pingpong.takes.insert(first, barriers);
            self.pingpong.gives.insert(last, barriers);
        }
        self.pingpong.roles.insert(role, barriers);
        *next += groups;
    }

    /// The first and the last MMA of a loop that issues several together, and computes on the
    /// result of one.
    fn one_run_of_mmas(&self, body: BlockId) -> Option<(OpId, OpId)> {
        let func = self.func;
        let ops = &func.blocks[body].ops;
        let is = |id: &OpId, code: StagedOp| func.ops[*id].code == code;
        let first = ops.iter().position(|id| is(id, StagedOp::MmaIssue))?;
        let last = ops.iter().rposition(|id| is(id, StagedOp::MmaIssue))?;
        let together = !ops[first..last].iter().any(|id| is(id, StagedOp::MmaRetire));
        let computes = ops.iter().filter(|id| is(id, StagedOp::MmaRetire)).any(|&id| {
            let tile = func.ops[id].result();
            ops.iter().any(|&user| {
                let op = &func.ops[user];
                matches!(op.code, StagedOp::Tile(TileOp::Ew(_))) && op.operands.contains(&tile)
            })
        });
        (first != last && together && computes).then_some((ops[first], ops[last]))
    }

    /// Where a role begins, the last warpgroup signals the first; see `end_pingpong`.
    pub fn begin_pingpong(&mut self, role: OpId) {
        if let Some(&barriers) = self.pingpong.roles.get(&role) {
            let (group, last) = (self.warpgroup(), Opnd::Int(i64::from(barriers.groups) - 1));
            let others = self.asm.setp(Cmp::Ne, Ty::U32, group, last);
            let id = Opnd::Int(barriers.barrier.into());
            self.unless(others, Inst::BarArrive { id, count: PAIR });
        }
    }

    /// The first warpgroup consumes the last signal: no barrier is left half full.
    pub fn end_pingpong(&mut self, role: OpId) {
        if let Some(&barriers) = self.pingpong.roles.get(&role) {
            let group = self.warpgroup();
            let others = self.asm.setp(Cmp::Ne, Ty::U32, group, Opnd::Int(0));
            let id = Opnd::Int(barriers.barrier.into());
            self.unless(others, Inst::BarSync { id, count: Some(PAIR) });
        }
    }

    /// Emits `inst` for whole warpgroups where `cond` is false.
    fn unless(&mut self, cond: Reg, inst: Inst) {
        let past = self.asm.label();
        self.asm.when(cond, true, |asm| asm.emit(Inst::Bra { to: past, uniform: true }));
        self.asm.emit(inst);
        self.asm.place(past);
    }

    pub fn maybe_wait_for_predecessor(&mut self, mma: OpId) {
        if let Some(&barriers) = self.pingpong.takes.get(&mma) {
            let id = self.barrier_of(barriers, 0);
            self.asm.emit(Inst::BarSync { id, count: Some(PAIR) });
        }
    }

    pub fn maybe_hand_on(&mut self, mma: OpId) {
        if let Some(&barriers) = self.pingpong.gives.get(&mma) {
            let id = self.barrier_of(barriers, 1);
            self.asm.emit(Inst::BarArrive { id, count: PAIR });
        }
    }

    /// The named barrier of this warpgroup, or of the one `after` positions later.
    fn barrier_of(&mut self, barriers: NamedBarriers, after: i64) -> Opnd {
        let group = self.warpgroup();
        let first = Opnd::Int(barriers.barrier.into());
        let most = Opnd::Int(i64::from(barriers.groups) - 1);
        let id = self.head(|me| {
            let next = me.asm.int(Alu::Add, Ty::U32, &[group.into(), Opnd::Int(after)]);
            let place = me.asm.int(Alu::And, Ty::B32, &[next.into(), most]);
            me.asm.int(Alu::Add, Ty::U32, &[place.into(), first])
        });
        id.into()
    }
}
