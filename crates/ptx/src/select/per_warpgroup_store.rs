//! Per-warpgroup stores: warpgroups of a role store their parts of the output tile independently.
//!
//! An epilogue store goes through shared memory: threads wait until the previous TMA store has read
//! the buffer, synchronise, write, synchronise, and one thread issues the TMA store. Where the
//! layout gives every warpgroup a block of the buffer that no other warpgroup writes, only its own
//! four warps need to synchronise, by a named barrier, and one of its threads stores that block. So
//! one warpgroup may store while another issues MMAs: neither waits for the other, and the tensor
//! cores stay busy.
//!
//! The conditions are proven here from the function and the layout; where that fails, the role
//! synchronises as a whole.

use super::tma::{ALIGN, cut};
use super::warp_specialize::BARRIERS;
use super::wgmma_plan::IN_GROUP;
use super::{Repr, Select};
use crate::inst::*;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, OpId, Type};
use tessera_layout::{In, Layout, Shared};
use tessera_lower::stage::{Off, Step};
use tessera_staged::StagedOp;
use tessera_staged::ops::roles::RoleInfo;

/// Threads of a warpgroup.
const THREADS: u32 = 128;

/// The part of a tile that a warpgroup holds: along a dim, runs of `part` positions in turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Share {
    pub dim: usize,
    /// Positions in a run.
    pub part: u32,
    pub groups: u32,
}

impl Share {
    /// The warpgroup that holds a position of the dim.
    pub fn holder(self, at: u32) -> u32 {
        at / self.part % self.groups
    }
}

/// The stores that are per warpgroup.
#[derive(Clone, Debug, Default)]
pub struct PerWarpgroupStores {
    /// Barriers of a role that become one per warpgroup, and the first of their named barriers.
    barriers: BTreeMap<OpId, (u32, u32)>,
    stores: BTreeMap<OpId, Share>,
}

impl Select<'_> {
    /// Finds the stores of a role that its warpgroups can do independently. `next` is the first
    /// free named barrier.
    pub fn survey_per_warpgroup(&mut self, role: OpId, info: &RoleInfo, next: &mut u32) {
        let groups = info.warps as u32 >> IN_GROUP;
        let whole = (info.warps as u32).is_multiple_of(1 << IN_GROUP) && groups.is_power_of_two();
        let wanted = groups * info.replicas as u32;
        let off = Off::of(self.func).has(Step::PerWarpgroupStore);
        if off || !whole || groups < 2 || info.one_thread || *next + wanted > BARRIERS {
            return;
        }
        let Some(found) = self.per_warpgroup_stores(role, groups) else { return };
        if found.is_empty() {
            return;
        }
        for (store, barriers, share) in found {
            self.per_warpgroup.stores.insert(store, share);
            for barrier in barriers {
                self.per_warpgroup.barriers.insert(barrier, (*next, groups));
            }
        }
        *next += wanted;
    }

    /// The stores, each with its barriers and its share. None where other memory may need the
    /// barriers.
    fn per_warpgroup_stores(
        &self,
        role: OpId,
        groups: u32,
    ) -> Option<Vec<(OpId, [OpId; 2], Share)>> {
        let func = self.func;
        let mut out = Vec::new();
        let mut own = BTreeSet::new();
        func.walk_block(func.ops[role].regions[0], &mut |id| {
            if let Some((all, share)) = self.per_warpgroup_store(id, groups) {
                out.push((id, [all[1], all[4]], share));
                own.extend(all);
            }
        });
        // Other uses of memory that threads write or wait for are ordered by the same barriers.
        let mut others = false;
        func.walk_block(func.ops[role].regions[0], &mut |id| {
            let op = &func.ops[id];
            let touches = op.operands.iter().any(|&v| {
                matches!(func.ty(v), Type::Smem { .. }) && {
                    let mut root = func.def(v);
                    while let Some(view) = root.filter(|o| o.code == StagedOp::SmemView) {
                        root = func.def(view.operands[0]);
                    }
                    root.is_none_or(|o| o.code == StagedOp::SmemAlloc)
                }
            });
            let synchronises = matches!(op.code, StagedOp::RoleBarrier | StagedOp::FenceAsync);
            others |= (touches || synchronises) && !own.contains(&id);
        });
        (!others).then_some(out)
    }

    /// Whether a bulk store ends the sequence by which a tile leaves through its own buffer, and
    /// warpgroups write disjoint parts of that buffer.
    fn per_warpgroup_store(&self, id: OpId, groups: u32) -> Option<([OpId; 6], Share)> {
        use StagedOp::{BulkReduce, BulkStore, BulkWait, FenceAsync, FragStore, RoleBarrier};
        let func = self.func;
        let op = &func.ops[id];
        let leaves = |code: StagedOp| matches!(code, BulkStore | BulkReduce);
        if !leaves(op.code) {
            return None;
        }
        let ops = &func.blocks[op.block].ops;
        let at = ops.iter().position(|&o| o == id)?;
        let all: [OpId; 6] = ops.get(at.checked_sub(5)?..=at)?.try_into().ok()?;
        let codes = all.map(|o| func.ops[o].code);
        if codes[..5] != [BulkWait, RoleBarrier, FragStore, FenceAsync, RoleBarrier] {
            return None;
        }
        let write = &func.ops[all[2]];
        let (mem, tile) = (write.operands[0], write.operands[1]);
        // Other stores through the same buffer, or to the same array, have the same form: each
        // warpgroup always writes its own part. A thread counts the copies that it issued.
        let alike = |o: &OpId| match func.ops[*o].code {
            FragStore => self.layout(func.ops[*o].operands[1]) == self.layout(tile),
            code => leaves(code),
        };
        let users = |v| {
            let takes = move |o: &OpId| func.ops[*o].operands.contains(&v);
            func.walk().into_iter().filter(takes).collect::<Vec<_>>()
        };
        let alone = op.operands[0] == mem
            && func.def(mem).is_some_and(|o| o.code == StagedOp::SmemAlloc)
            && users(mem).iter().all(alike)
            && users(op.operands[1]).iter().all(|&o| leaves(func.ops[o].code));
        let together = [all[1], all[4]].iter().any(|&o| func.ops[o].attr("all").is_some());
        if !alone || together {
            return None;
        }
        let Type::Smem { layout: shared, .. } = func.ty(mem) else { return None };
        let share = share(&self.layout(tile), groups)?;
        let Repr::View(view) = self.repr(op.operands[1]) else { return None };
        if !view.class.tma_compatible || !moves_evenly(shared, share) {
            return None;
        }
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let contiguous = view.class.contiguous.trailing_zeros() as usize;
        cut(shared, &extent, contiguous, Some(share)).is_ok().then_some((all, share))
    }

    pub fn share_of(&self, store: OpId) -> Option<Share> {
        self.per_warpgroup.stores.get(&store).copied()
    }

    /// Emits the per-warpgroup barrier in place of `barrier`, if it is one.
    pub fn per_warpgroup_barrier(&mut self, barrier: OpId) -> bool {
        let Some(&(first, groups)) = self.per_warpgroup.barriers.get(&barrier) else {
            return false;
        };
        let group = self.warpgroup();
        let first = Opnd::Int((first + self.instance.replica * groups).into());
        let id = self.head(|me| me.asm.int(Alu::Add, Ty::U32, &[group.into(), first]));
        self.asm.emit(Inst::BarSync { id: id.into(), count: Some(THREADS) });
        true
    }

    /// The index of this thread's warpgroup in its instance, warp-uniform.
    pub fn warpgroup(&mut self) -> Reg {
        let mut bases = vec![0; 5 + IN_GROUP];
        bases.extend((0..self.warps.trailing_zeros() - IN_GROUP as u32).map(|bit| 1 << bit));
        match self.thread_sum(&bases) {
            Some(own) => self.uniform(own),
            None => self.head(|me| me.asm.mov(Ty::B32, Opnd::Int(0))),
        }
    }

    /// Whether this is the thread that acts for its warpgroup.
    pub fn speaks_for_warpgroup(&mut self) -> Reg {
        let bases: Vec<u32> = (0..5 + IN_GROUP as u32).map(|bit| 1 << bit).collect();
        match self.thread_sum(&bases) {
            Some(r) => self.below(r, 1),
            None => unreachable!("a warpgroup has more than one thread"),
        }
    }
}

/// How a tile is divided among the warpgroups: each position is held by exactly one of them, which
/// consecutive bits of one coordinate select.
pub fn share(layout: &Layout, groups: u32) -> Option<Share> {
    let (lanes, warps, ctas) = layout.replicas();
    let copies = lanes.into_iter().chain(warps).chain(ctas).any(|copy| copy);
    if copies || layout.warps() != groups << IN_GROUP {
        return None;
    }
    let (inside, outside) = layout.bases(In::Warp).split_at(IN_GROUP);
    let dim = outside.first()?.iter().position(|&x| x != 0)?;
    let part = outside[0][dim];
    let in_row = outside.iter().enumerate().all(|(bit, basis)| {
        basis.iter().enumerate().all(|(d, &x)| x == if d == dim { part << bit } else { 0 })
    });
    let mask = part * (groups - 1);
    let mut rest = layout.bases(In::Reg).iter().chain(layout.bases(In::Lane)).chain(inside);
    let clear = rest.all(|basis| basis[dim] & mask == 0);
    let whole = layout.shape()[dim].is_multiple_of(layout.box_extents()[dim]);
    (part.is_power_of_two() && in_row && clear && whole).then_some(Share { dim, part, groups })
}

/// Whether the parts of all warpgroups have the same layout, at equal distances.
pub fn moves_evenly(shared: &Shared, share: Share) -> bool {
    let at = |group: u32| {
        let mut coords = vec![0; shared.shape.len()];
        coords[share.dim] = group * share.part;
        shared.offset(&coords)
    };
    let step = at(1);
    step.is_multiple_of(shared.align().max(ALIGN))
        && (0..share.groups).all(|group| at(group) == group * step)
}
