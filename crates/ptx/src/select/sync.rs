//! Shared memory allocation, and the barriers between its uses.
//!
//! Ops that move data between threads write scratch memory, synchronise, and read it. There are two
//! scratch regions, used in turn: while some threads still read one, others may write the other,
//! and the barrier in between frees the first. So one barrier per op is enough in straight-line
//! code. At the start of a loop nothing is known, and the first use in it synchronises before it
//! writes.
//!
//! Statements of a group take effect in program order: before threads access elements of global
//! memory or of a buffer that other threads of the group wrote or read before, they synchronise.

use super::{Greatest, Repr, Select};
use crate::inst::*;
use crate::module::{DYNAMIC_SHARED, Stmt};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_layout::{Layout, Shared};
use tessera_numerics::{DType, ScalarFn};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// An allocation of shared memory.
#[derive(Clone, Debug)]
pub struct Smem {
    pub region: Region,
    /// Bytes from the region's start.
    pub offset: u32,
    /// A run-time offset in bytes.
    pub moving: Option<Reg>,
    pub layout: Arc<Shared>,
    pub dtype: DType,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Region {
    /// Memory that ops allocate, for the whole kernel.
    Fixed,
    /// Four for each instance; see `warp_specialize`.
    Scratch(usize),
}

/// How elements of a parameter are accessed: equal keys mean the same elements by the same threads,
/// where each element is held by one.
#[derive(Clone, PartialEq, Debug)]
enum Access {
    Block {
        at: Vec<Value>,
        extent: Option<Attr>,
        step: Option<Attr>,
        layout: Arc<Layout>,
    },
    /// Atomics that combine elements of a buffer by this operator: their order does not show.
    Fold(ScalarFn),
    Unknown,
}

impl Access {
    /// Whether several threads read each element, and one alone writes it.
    fn has_copies(&self) -> bool {
        match self {
            Access::Block { layout, .. } => {
                let (lanes, warps, ctas) = layout.replicas();
                lanes.into_iter().chain(warps).chain(ctas).any(|copy| copy)
            }
            Access::Fold(_) | Access::Unknown => true,
        }
    }
}

impl Select<'_> {
    /// Whether an access conflicts with an earlier one: with any, or with one of other elements or
    /// threads.
    fn clashes(
        &self,
        seen: &BTreeMap<usize, Vec<Access>>,
        memory: usize,
        access: &Access,
        any: bool,
    ) -> bool {
        let unknown = *access == Access::Unknown;
        let is_buffer = memory >= self.func.params().len();
        let clashes = |other: &Access| {
            (any || unknown || other != access)
                && !(is_buffer && are_apart(self.func, access, other))
        };
        seen.get(&memory).is_some_and(|seen| seen.iter().any(clashes))
    }
}

/// Whether two blocks certainly have no element in common: along some axis, one ends before the
/// other begins.
fn are_apart(func: &StagedFunc, a: &Access, b: &Access) -> bool {
    let range = |access: &Access, axis: usize| -> Option<(Option<Value>, i64, i64)> {
        let Access::Block { at, extent, step, .. } = access else { return None };
        let along = |list: &Option<Attr>| list.as_ref()?.as_ints()?.get(axis).copied();
        let (root, first) = offset(func, *at.get(axis)?, 8);
        let last = (along(extent)?.max(1) - 1) * along(step).unwrap_or(1);
        Some((root, first, first.checked_add(last)?))
    };
    let axes = match a {
        Access::Block { at, .. } => at.len(),
        Access::Fold(_) | Access::Unknown => 0,
    };
    (0..axes).any(|axis| match (range(a, axis), range(b, axis)) {
        (Some(a), Some(b)) => a.0 == b.0 && (a.2 < b.1 || b.2 < a.1),
        _ => false,
    })
}

/// A scalar as another one plus a constant; none where it is a constant.
fn offset(func: &StagedFunc, v: Value, fuel: u32) -> (Option<Value>, i64) {
    let (Some(op), Some(fuel)) = (func.def(v), fuel.checked_sub(1)) else { return (Some(v), 0) };
    let known = match op.code {
        StagedOp::Tile(TileOp::Const) => op.attr("value").and_then(Attr::as_int).map(|n| (None, n)),
        StagedOp::Tile(TileOp::Ew(ScalarFn::Add)) => {
            let [a, b] = [0, 1].map(|i| offset(func, op.operands[i], fuel));
            let root = if a.0.is_some() && b.0.is_some() { None } else { Some(a.0.or(b.0)) };
            root.zip(a.1.checked_add(b.1))
        }
        _ => None,
    };
    // So far from the ends of the range that sums do not wrap.
    known.filter(|k| k.1.unsigned_abs() < 1 << 40).unwrap_or((Some(v), 0))
}

#[derive(Clone, Default, Debug)]
pub struct SyncState {
    /// Whether other threads may still read a scratch region.
    dirty: [bool; 4],
    /// Whether a pipeline stage was released that other threads may still read.
    released: bool,
    reads: BTreeMap<usize, Vec<Access>>,
    writes: BTreeMap<usize, Vec<Access>>,
}

#[derive(Default, Debug)]
pub struct Sync {
    state: SyncState,
    next: usize,
    fixed: u32,
    /// By instance: concurrent instances share none.
    scratch: Vec<[u32; 4]>,
    instance: usize,
    /// Fixed memory that its owner no longer needs, and its size: scratch regions 2 and 3 are its
    /// halves.
    reused: Option<(u32, u32)>,
    bases: BTreeMap<Region, Reg>,
    /// Alignment gaps in the kernel's memory.
    gaps: Vec<(u32, u32)>,
    /// Instances whose code several replicas run: the first warp, and the warps of each.
    shared: BTreeMap<usize, (u32, u32)>,
}

pub const ALIGN: u32 = 128;

impl Sync {
    /// All of the dynamic shared memory.
    pub fn bytes(&self) -> u32 {
        let up = |n: u32| n.next_multiple_of(ALIGN);
        let scratch: Vec<u32> = self.scratch.iter().flat_map(|s| [s[0], s[1]]).collect();
        scratch.iter().fold(self.fixed, |at, &n| up(at) + n).max(up(self.fixed))
    }

    fn start(&self, region: Region) -> u32 {
        let up = |n: u32| n.next_multiple_of(ALIGN);
        match region {
            Region::Fixed => 0,
            Region::Scratch(i) if i % 4 < 2 => {
                let own = |s: &[u32; 4]| up(s[0]) + up(s[1]);
                let instances = self.scratch.iter().take(i / 4).map(own).sum::<u32>();
                let first = match (i % 4, self.scratch.get(i / 4)) {
                    (1, Some(s)) => up(s[0]),
                    _ => 0,
                };
                up(self.fixed) + instances + first
            }
            Region::Scratch(i) => {
                let half = |(at, bytes): (u32, u32)| at + (i as u32 % 4 - 2) * (bytes / 2);
                self.reused.map_or(0, half)
            }
        }
    }
}

impl Select<'_> {
    /// The address of a region; its offset is known when all code is emitted.
    pub fn region(&mut self, region: Region) -> Reg {
        match self.sync.bases.get(&region) {
            Some(&r) => r,
            None => {
                let r = self.asm.reg(Class::B32);
                self.sync.bases.insert(region, r);
                r
            }
        }
    }

    /// The instructions that compute the regions' addresses; they come first.
    pub fn region_bases(&mut self) -> Vec<Stmt> {
        let bases = std::mem::take(&mut self.sync.bases);
        let mut out = Vec::new();
        for (region, d) in bases {
            let mut emit = |inst| out.push(Stmt::Inst { guard: None, inst });
            let first = self.asm.reg(Class::B32);
            emit(Inst::AddressOf { d: first, name: DYNAMIC_SHARED.into() });
            let start = Opnd::Int(self.sync.start(region).into());
            emit(Inst::Alu {
                op: Alu::Add,
                ty: Ty::U32,
                round: None,
                ftz: false,
                sat: false,
                d,
                a: vec![first.into(), start],
            });
            let Region::Scratch(i) = region else { continue };
            let Some(&(warp, warps)) = self.sync.shared.get(&(i / 4)) else { continue };
            if i % 4 >= 2 {
                continue;
            }
            // Each replica has its own memory, at equal distances.
            let each = self.sync.start(Region::Scratch(4 * (i / 4) + 4))
                - self.sync.start(Region::Scratch(4 * (i / 4)));
            let [tid, own, number] = [0; 3].map(|_| self.asm.reg(Class::B32));
            let alu = |op, d, a: Vec<Opnd>| Inst::Alu {
                op,
                ty: Ty::U32,
                round: None,
                ftz: false,
                sat: false,
                d,
                a,
            };
            let bits = Opnd::Int((5 + warps.ilog2()).into());
            emit(Inst::Mov { ty: Ty::U32, d: tid, a: Opnd::Special(Special::TidX) });
            emit(alu(Alu::Sub, own, vec![tid.into(), Opnd::Int((32 * warp).into())]));
            emit(alu(Alu::Shr, number, vec![own.into(), bits]));
            emit(alu(Alu::MadLo, d, vec![number.into(), Opnd::Int(each.into()), d.into()]));
        }
        out
    }

    /// Gives each replica that runs shared code its own scratch memory.
    pub fn share_scratch(&mut self, instance: usize, first_warp: u32, warps: u32, replicas: u32) {
        let all = instance + replicas as usize;
        if self.sync.scratch.len() < all {
            self.sync.scratch.resize(all, [0; 4]);
        }
        let own = self.sync.scratch[instance];
        self.sync.scratch[instance..all].fill(own);
        self.sync.shared.insert(instance, (first_warp, warps));
    }

    /// Records which op takes the most shared memory: errors name it.
    pub(super) fn takes(&mut self, bytes: u32) {
        if self.greatest.as_ref().is_some_and(|g| g.bytes >= bytes) {
            return;
        }
        let Some(op) = self.current.map(|id| &self.func.ops[id]) else { return };
        let Some(&of) = op
            .results
            .iter()
            .chain(&op.operands)
            .find(|&&v| !matches!(self.func.ty(v), Type::Scalar(_) | Type::View { .. }))
        else {
            return;
        };
        // For memory, the tile of its user is named.
        let ty = match self.func.ty(of) {
            Type::Smem { shape, dtype, .. } => Type::Tile { shape: shape.clone(), dtype: *dtype },
            ty => ty.without_layout(),
        };
        let elements = ty.static_shape().unwrap_or_default().iter().product::<i64>() as u32;
        let (tile, loc) = (ty.to_string(), op.loc.clone());
        self.greatest = Some(Greatest { bytes, tile, elements, loc });
    }

    /// Memory for the whole kernel.
    pub fn allocate(&mut self, bytes: u32, align: u32) -> u32 {
        self.takes(bytes);
        self.reserve(bytes, align)
    }

    /// The same for what is already recorded.
    pub(super) fn reserve(&mut self, bytes: u32, align: u32) -> u32 {
        let at = self.sync.fixed.next_multiple_of(align);
        if at > self.sync.fixed {
            self.sync.gaps.push((self.sync.fixed, at));
        }
        self.sync.fixed = at + bytes;
        at
    }

    /// A small allocation for the whole kernel, in an alignment gap if it fits there: pipelines may
    /// have taken all the rest.
    pub fn allocate_between(&mut self, bytes: u32, align: u32) -> u32 {
        let fits = |&(from, end): &(u32, u32)| from.next_multiple_of(align) + bytes <= end;
        let Some(gap) = self.sync.gaps.iter().position(fits) else {
            return self.allocate(bytes, align);
        };
        let at = self.sync.gaps[gap].0.next_multiple_of(align);
        self.sync.gaps[gap].0 = at + bytes;
        at
    }

    /// A scratch region that this thread may write without waiting.
    pub fn scratch(&mut self, bytes: u32) -> Region {
        self.takes(bytes);
        let pair = match self.sync.reused {
            Some((_, room)) if bytes <= room / 2 && self.instance.role.is_none() => 2,
            _ => 0,
        };
        let mut i = pair + self.sync.next;
        if self.sync.state.dirty[i] && !self.sync.state.dirty[i ^ 1] {
            i ^= 1;
        }
        if self.sync.state.dirty[i] {
            self.block_barrier();
        }
        self.grow_scratch(i, bytes);
        self.sync.next = (i ^ 1) & 1;
        Region::Scratch(4 * self.sync.instance + i)
    }

    /// The scratch regions of the current instance, as large as they are so far.
    fn own_scratch(&self) -> [u32; 4] {
        self.sync.scratch.get(self.sync.instance).copied().unwrap_or_default()
    }

    fn grow_scratch(&mut self, i: usize, bytes: u32) {
        let instance = self.sync.instance;
        if self.sync.scratch.len() <= instance {
            self.sync.scratch.resize(instance + 1, [0; 4]);
        }
        let most = &mut self.sync.scratch[instance][i];
        *most = bytes.max(*most);
    }

    /// Bytes of shared memory beyond the allocations for the whole kernel.
    fn room(&self) -> u32 {
        let others = self
            .sync
            .scratch
            .iter()
            .enumerate()
            .filter(|(instance, _)| *instance != self.sync.instance);
        let others: u32 =
            others.map(|(_, s)| s[0].next_multiple_of(ALIGN) + s[1].next_multiple_of(ALIGN)).sum();
        let fixed = self.sync.fixed.next_multiple_of(ALIGN);
        self.caps.gpu.shared_per_block.saturating_sub(fixed + others)
    }

    /// Bytes that any scratch region may have, so that all fits.
    pub fn scratch_room(&self) -> u32 {
        let [a, b, ..] = self.own_scratch();
        let other = a.max(b);
        self.room().saturating_sub(other.next_multiple_of(ALIGN))
    }

    /// Bytes of the larger scratch region, as far as it may grow: half of what is free, or its
    /// size.
    pub fn larger_room(&self) -> u32 {
        let [a, b, ..] = self.own_scratch();
        let (large, small) = (a.max(b), a.min(b));
        let most = self.room().saturating_sub(small.next_multiple_of(ALIGN));
        (most.min(large.max(self.room() / 2)) & !(ALIGN - 1)).max(ALIGN)
    }

    /// The larger scratch region, which this thread may write without waiting.
    pub fn larger_scratch(&mut self, bytes: u32) -> Region {
        self.takes(bytes);
        let [a, b, ..] = self.own_scratch();
        let i = usize::from(b > a);
        if self.sync.state.dirty[i] {
            self.block_barrier();
        }
        self.grow_scratch(i, bytes);
        self.sync.next = i ^ 1;
        Region::Scratch(4 * self.sync.instance + i)
    }

    /// Records that a part of fixed memory is unused from here to the end of the kernel.
    pub fn reuse(&mut self, at: u32, bytes: u32) {
        self.sync.reused.get_or_insert((at, bytes & !(2 * ALIGN - 1)));
    }

    /// Whether a stage was released since the last barrier.
    pub fn unmet_release(&self) -> bool {
        self.sync.state.released
    }

    pub fn set_unmet_release(&mut self) {
        self.sync.state.released = true;
    }

    /// Records a barrier since the last release.
    pub fn sync_release(&mut self) {
        self.sync.state.released = false;
    }

    /// Selects the instance whose scratch memory is used from here on.
    pub fn set_sync_instance(&mut self, instance: usize) {
        self.sync.instance = instance;
    }

    /// Records that the region is read from here on.
    pub fn reading(&mut self, region: Region) {
        if let Region::Scratch(i) = region {
            self.sync.state.dirty[i % 4] = true;
        }
    }

    /// Synchronises all threads of the group, and makes their writes visible to each other.
    pub fn barrier(&mut self) {
        if self.instance_barrier() {
            // The threads of a role alone.
        } else if self.cluster > 1 {
            self.asm.emit(Inst::ClusterArrive { release: true });
            self.asm.emit(Inst::ClusterWait { acquire: true });
        } else {
            self.asm.barrier();
        }
        self.sync.state = SyncState::default();
    }

    /// Synchronises the threads of this block, and makes their writes to its shared memory visible
    /// to each other. No other block uses its scratch regions and pipelines.
    pub fn block_barrier(&mut self) {
        if self.cluster == 1 || self.instance.role.is_some() {
            return self.barrier();
        }
        self.asm.barrier();
        self.sync.state.dirty = [false; 4];
        self.sync.state.released = false;
    }

    pub fn sync_state(&self) -> SyncState {
        self.sync.state.clone()
    }

    pub fn swap_sync_state(&mut self, state: SyncState) -> SyncState {
        std::mem::replace(&mut self.sync.state, state)
    }

    /// After two branches: the union of both states.
    pub fn join_sync_state(&mut self, other: SyncState) {
        let state = &mut self.sync.state;
        for (dirty, also) in state.dirty.iter_mut().zip(other.dirty) {
            *dirty |= also;
        }
        state.released |= other.released;
        for (into, from) in [(&mut state.reads, other.reads), (&mut state.writes, other.writes)] {
            for (param, accesses) in from {
                into.entry(param).or_default().extend(accesses);
            }
        }
    }

    /// At the start of a loop an earlier iteration may have done anything that its body does.
    pub fn enter_loop(&mut self, bodies: &[BlockId]) {
        self.depth += 1;
        self.sync.state.dirty = [true; 4];
        let releases = |id: OpId| self.func.ops[id].code == StagedOp::Release;
        for &body in bodies {
            let mut found = false;
            self.func.walk_block(body, &mut |id| found |= releases(id));
            self.sync.state.released |= found;
        }
        for &body in bodies {
            for v in self.written_in(body) {
                let Repr::View(view) = self.repr(v) else { continue };
                let param = view.param;
                let fold = self.only_fold(bodies, v);
                if fold.is_none() {
                    self.sync.state.reads.entry(param).or_default().push(Access::Unknown);
                }
                let write = fold.unwrap_or(Access::Unknown);
                self.sync.state.writes.entry(param).or_default().push(write);
            }
        }
    }

    /// The one kind of folds that these blocks do with memory, if they do nothing else with it.
    fn only_fold(&self, bodies: &[BlockId], memory: Value) -> Option<Access> {
        let mut found = Vec::new();
        for &body in bodies {
            self.func.walk_block(body, &mut |id| {
                if self.func.ops[id].operands.contains(&memory) {
                    found.push(self.access_of(id).1);
                }
            });
        }
        let first = found.first().filter(|a| matches!(a, Access::Fold(_)))?;
        found.iter().all(|other| other == first).then(|| first.clone())
    }

    /// Another group begins: groups are unordered, so their accesses to parameters do not conflict.
    pub fn begin_group(&mut self) {
        // Buffers are in the same memory for every group.
        let params = self.func.params().len();
        self.sync.state.reads.retain(|&memory, _| memory >= params);
        self.sync.state.writes.retain(|&memory, _| memory >= params);
    }

    pub fn leave_loop(&mut self) {
        self.depth -= 1;
    }

    fn access_of(&self, id: OpId) -> (Option<usize>, Access) {
        let op = &self.func.ops[id];
        let Repr::View(view) = self.repr(op.operands[0]) else { return (None, Access::Unknown) };
        if view.read_only {
            return (None, Access::Unknown);
        }
        let tile = op.results.first().or(op.operands.get(1)).map(|&v| self.func.ty(v));
        let access = match (op.group("at"), tile) {
            (at, Some(Type::Frag { layout, .. })) if op.attr("extent").is_some() => Access::Block {
                at: at.to_vec(),
                extent: op.attr("extent").cloned(),
                step: op.attr("step").cloned(),
                layout: layout.clone(),
            },
            _ if view.buffer.is_some() => {
                self.unordered_fold(id).map_or(Access::Unknown, Access::Fold)
            }
            _ => Access::Unknown,
        };
        (Some(view.param), access)
    }

    /// Synchronises if another thread may have written what is read next.
    pub fn before_read(&mut self, id: OpId) {
        let (Some(param), access) = self.access_of(id) else { return };
        if self.clashes(&self.sync.state.writes, param, &access, access.has_copies()) {
            self.barrier();
        }
        self.sync.state.reads.entry(param).or_default().push(access);
    }

    /// The same before a write.
    pub fn before_write(&mut self, id: OpId) {
        let (Some(param), access) = self.access_of(id) else { return };
        let state = &self.sync.state;
        if self.clashes(&state.reads, param, &access, access.has_copies())
            || self.clashes(&state.writes, param, &access, false)
        {
            self.barrier();
        }
        self.sync.state.writes.entry(param).or_default().push(access);
    }

    /// A buffer begins in memory that others had: their accesses are its own.
    pub(super) fn inherit_accesses(&mut self, memory: usize, others: &[usize]) {
        let state = &mut self.sync.state;
        for seen in [&mut state.reads, &mut state.writes] {
            if others.iter().any(|other| seen.get(other).is_some_and(|list| !list.is_empty())) {
                seen.entry(memory).or_default().push(Access::Unknown);
            }
        }
    }

    /// Records a write of some elements by some threads.
    pub(super) fn wrote(&mut self, memory: usize) {
        self.sync.state.writes.entry(memory).or_default().push(Access::Unknown);
    }

    pub fn smem(&self, v: Value) -> Smem {
        match self.repr(v) {
            Repr::Smem(m) => m.clone(),
            other => unreachable!("expected shared memory, got {other:?}"),
        }
    }

    pub fn smem_alloc(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let Type::Smem { layout, dtype, .. } = self.func.ty(op.result()).clone() else {
            return self.unsupported(id, "expected shared memory");
        };
        let align = op.attr("alignment").and_then(|a| a.as_int()).unwrap_or(1024) as u32;
        let offset = self.allocate(layout.bytes(), align.max(ALIGN).max(layout.align()));
        let result = op.result();
        self.set(
            result,
            Repr::Smem(Smem { region: Region::Fixed, offset, moving: None, layout, dtype }),
        );
        Ok(())
    }
}
