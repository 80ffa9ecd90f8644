//! Warpgroups of a role that begin their products in turn.
//!
//! A loop that computes on one product while another is under way keeps the matrix engine busy where its
//! warpgroups are half an iteration apart: one computes while the engine works for the other. Nothing keeps them
//! so. Whenever both wait for the same copy they go on at the same moment; the engine then serves both at
//! once, both compute at once while it has nothing to do, and they stay like that for the rest of the loop.
//! So each begins its products when the one before it has begun its own, in a pipeline: one that is late goes on
//! as it is, and two that are side by side are moved apart within an iteration.
//!
//! That costs an iteration some two parts in a hundred, and is done where tiles are dealt out beforehand: all wait for
//! the slowest. Where whoever is free takes the next, a slow tile costs no more than its own time.
//!
//! All warpgroups of a role take the same iterations of the same loops, so that none waits for ever.

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

/// Threads of two warpgroups, of which one waits for the other.
const PAIR: u32 = 256;

/// What is known of this.
#[derive(Clone, Debug, Default)]
pub struct Alternate {
    /// Of each role the first of its barriers, one for each warpgroup.
    roles: BTreeMap<OpId, Pipeline>,
    /// Products before which a warpgroup waits for its turn, and those after which it gives it on.
    takes: BTreeMap<OpId, Pipeline>,
    gives: BTreeMap<OpId, Pipeline>,
}

#[derive(Copy, Clone, Debug)]
struct Pipeline {
    barrier: u32,
    groups: u32,
}

impl Select<'_> {
    /// Finds the loops of a role whose products are begun in turn. `next` is a barrier that is free.
    pub fn survey_alternate(&mut self, role: OpId, info: &RoleInfo, next: &mut u32) {
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
        let pipeline = Pipeline { barrier: *next, groups };
        let mut found = Vec::new();
        func.walk_block(func.ops[role].regions[0], &mut |id| {
            if func.ops[id].code == StagedOp::Tile(TileOp::For) {
                found.extend(self.one_run_of_products(func.ops[id].regions[0]));
            }
        });
        if found.is_empty() {
            return;
        }
        for (first, last) in found {
            self.alternate.takes.insert(first, pipeline);
            self.alternate.gives.insert(last, pipeline);
        }
        self.alternate.roles.insert(role, pipeline);
        *next += groups;
    }

    /// The first and the last product of a loop that begins several together, and computes on one of them.
    fn one_run_of_products(&self, body: BlockId) -> Option<(OpId, OpId)> {
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

    /// The last warpgroup hands the first its turn, where a role begins; see `end_alternating`.
    pub fn begin_alternating(&mut self, role: OpId) {
        if let Some(&pipeline) = self.alternate.roles.get(&role) {
            let (group, last) = (self.warpgroup(), Opnd::Int(i64::from(pipeline.groups) - 1));
            let others = self.asm.setp(Cmp::Ne, Ty::U32, group, last);
            let id = Opnd::Int(pipeline.barrier.into());
            self.unless(others, Inst::BarArrive { id, count: PAIR });
        }
    }

    /// The first takes the last iteration, which nobody else does: no barrier is left half full.
    pub fn end_alternating(&mut self, role: OpId) {
        if let Some(&pipeline) = self.alternate.roles.get(&role) {
            let group = self.warpgroup();
            let others = self.asm.setp(Cmp::Ne, Ty::U32, group, Opnd::Int(0));
            let id = Opnd::Int(pipeline.barrier.into());
            self.unless(others, Inst::BarSync { id, count: Some(PAIR) });
        }
    }

    /// What whole warpgroups do, or leave.
    fn unless(&mut self, cond: Reg, inst: Inst) {
        let past = self.asm.label();
        self.asm.when(cond, true, |asm| asm.emit(Inst::Bra { to: past, uniform: true }));
        self.asm.emit(inst);
        self.asm.place(past);
    }

    pub fn maybe_wait_for_iteration(&mut self, product: OpId) {
        if let Some(&pipeline) = self.alternate.takes.get(&product) {
            let id = self.iteration_of(pipeline, 0);
            self.asm.emit(Inst::BarSync { id, count: Some(PAIR) });
        }
    }

    pub fn maybe_hand_on(&mut self, product: OpId) {
        if let Some(&pipeline) = self.alternate.gives.get(&product) {
            let id = self.iteration_of(pipeline, 1);
            self.asm.emit(Inst::BarArrive { id, count: PAIR });
        }
    }

    /// The barrier of this warpgroup, or of one so many after it.
    fn iteration_of(&mut self, pipeline: Pipeline, after: i64) -> Opnd {
        let group = self.warpgroup();
        let first = Opnd::Int(pipeline.barrier.into());
        let most = Opnd::Int(i64::from(pipeline.groups) - 1);
        let id = self.head(|me| {
            let next = me.asm.int(Alu::Add, Ty::U32, &[group.into(), Opnd::Int(after)]);
            let place = me.asm.int(Alu::And, Ty::B32, &[next.into(), most]);
            me.asm.int(Alu::Add, Ty::U32, &[place.into(), first])
        });
        id.into()
    }
}
