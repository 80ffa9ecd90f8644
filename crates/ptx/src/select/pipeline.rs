//! Software pipelines of `cp.async` (Ampere-style): stages in shared memory that copies fill ahead
//! of use.
//!
//! The stages of a pipeline are consecutive in fixed shared memory; counter `i` uses stage
//! `i mod n`. All threads fill and read. A fill is `cp.async` by every thread, a publish commits
//! the thread's group of copies, and a wait leaves as many of the newest groups in flight as the
//! function publishes ahead, then synchronises. That barrier also shows that all threads have read
//! the stage before, so `acquire` need not synchronise again; where there was no barrier since the
//! last release, it does.
//!
//! Copies are not issued at the fill. They are queued and issued between the k steps of the next
//! MMA, so that its first operand loads are not queued behind all of them.

use super::mma_in_flight::Rotation;
use super::sync::{Region, Smem};
use super::{Repr, Select};
use crate::inst::*;
use crate::module::Stmt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, BlockId, OpId, Type, Value, ValueDef};
use tessera_layout::Shared;
use tessera_lower::stage::divisor;
use tessera_numerics::{DType, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// The alignment of stages.
const ALIGN: u32 = 1024;
/// The alignment of fields that TMA fills.
const TMA_ALIGN: u32 = 128;

#[derive(Clone, Debug)]
pub struct Pipeline {
    pub stages: u32,
    /// Bytes from one stage to the next.
    pub stride: u32,
    /// The offset of the first stage in fixed memory.
    offset: u32,
    /// The offset of its mbarriers, in functions with roles.
    pub bars: u32,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    offset: u32,
    layout: Arc<Shared>,
    dtype: DType,
}

#[derive(Clone, Debug)]
pub struct Stage {
    pub pipeline: Arc<Pipeline>,
    /// The stage's byte offset from the pipeline's start.
    pub moving: Reg,
}

/// The state of pipelines and the loops around them while code is emitted.
#[derive(Default)]
pub struct Pipelines {
    /// Copies that are queued and not issued yet, each with its code.
    held: VecDeque<Vec<Stmt>>,
    /// The full address of a stage, by its byte offset.
    addresses: BTreeMap<Reg, Reg>,
    /// Open loops: the body, the start of its code, and what is hoisted before it.
    loops: Vec<(BlockId, usize, Vec<Stmt>)>,
    /// The loop that is being emitted, if an MMA stays in flight across its iterations.
    pub rotation: Option<Rotation>,
    /// Strides of axes of parameters, see `copy_stride`.
    pub strides: BTreeMap<(usize, usize), Reg>,
    /// Threads' offsets in shared memory, computed once at the head.
    pub places: BTreeMap<PlaceKey, Reg>,
}

/// Addresses of threads' elements, by coordinates and by the bits that go through the swizzle.
pub type KnownPlaces = BTreeMap<Vec<Option<Reg>>, BTreeMap<u32, Reg>>;

/// Coordinates, the memory's form, and what is added to the thread's bytes before the swizzle.
type PlaceKey = (Vec<Option<Reg>>, Shared, u32);

impl Select<'_> {
    pub fn pipeline_create(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let result = self.func.ops[id].result();
        let Type::Pipeline { stages, fields } = self.func.ty(result) else {
            return self.unsupported(id, "expected a pipeline");
        };
        // TMA needs a larger alignment than threads do.
        let align = if self.has_roles() { TMA_ALIGN } else { 1 };
        let mut stride = 0u32;
        let fields = fields
            .iter()
            .map(|f| {
                let offset = stride.next_multiple_of(f.layout.align().max(align));
                stride = offset + f.layout.bytes();
                Field { name: f.name.clone(), offset, layout: f.layout.clone(), dtype: f.dtype }
            })
            .collect();
        let stride = stride.next_multiple_of(ALIGN);
        let offset = self.allocate(stages * stride, ALIGN);
        let bars = if self.has_roles() { self.pipeline_barriers(result, *stages)? } else { 0 };
        self.set(
            result,
            Repr::Pipeline(Pipeline { stages: *stages, stride, offset, bars, fields }),
        );
        Ok(())
    }

    pub fn pipeline(&self, v: Value) -> Arc<Pipeline> {
        match self.repr(v) {
            Repr::Pipeline(pipeline) => Arc::new(pipeline.clone()),
            other => unreachable!("expected a pipeline, got {other:?}"),
        }
    }

    /// The stage of a counter. Counters are below 2^32: no loop has that many iterations.
    fn stage(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let pipeline = self.pipeline(op.operands[0]);
        let i = self.scalar(op.operands[1]);
        let i = self.asm.cvt(Ty::U32, Ty::U64, None, i);
        let found = self.stage_registers(&pipeline, i);
        self.know_stage(found);
        let result = self.func.ops[id].result();
        self.set(result, Repr::Stage(Stage { pipeline, moving: found[0] }));
    }

    /// The byte offset of a counter's stage from the pipeline's start, and its address.
    pub fn stage_registers(&mut self, pipeline: &Pipeline, i: Reg) -> [Reg; 2] {
        let n = pipeline.stages;
        let stage = if n.is_power_of_two() {
            self.asm.int(Alu::And, Ty::B32, &[i.into(), Opnd::Int((n - 1).into())])
        } else {
            self.asm.int(Alu::Rem, Ty::U32, &[i.into(), Opnd::Int(n.into())])
        };
        let stride = Opnd::Int(pipeline.stride.into());
        let moving = self.asm.int(Alu::MulLo, Ty::U32, &[stage.into(), stride]);
        let base = self.region(Region::Fixed);
        let address = self.asm.int(Alu::Add, Ty::U32, &[base.into(), moving.into()]);
        [moving, address]
    }

    pub fn know_stage(&mut self, [moving, address]: [Reg; 2]) {
        self.pipelines.addresses.insert(moving, address);
    }

    pub fn stage_address(&self, moving: Reg) -> Reg {
        self.pipelines.addresses[&moving]
    }

    pub fn acquire(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.has_roles() {
            return self.mbar_acquire(id);
        }
        if self.unmet_release() {
            self.issue_copies(usize::MAX);
            self.block_barrier();
        }
        self.stage(id);
        Ok(())
    }

    pub fn publish(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.has_roles() {
            return self.mbar_publish(id);
        }
        self.hold(|me| me.asm.emit(Inst::CpCommit));
        Ok(())
    }

    pub fn wait(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.has_roles() {
            return self.mbar_wait(id);
        }
        if self.is_rotated(id) {
            self.sync_release();
            return Ok(());
        }
        self.issue_copies(usize::MAX);
        let groups = self.published_ahead(id);
        self.asm.emit(Inst::CpWait { groups });
        // `cp.async` writes through the generic proxy: WGMMA needs a proxy fence.
        if self.uses_async_mma() {
            self.asm.emit(Inst::FenceProxyAsync);
        }
        self.block_barrier();
        self.stage(id);
        Ok(())
    }

    pub fn release(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.has_roles() {
            return self.mbar_release(id);
        }
        self.set_unmet_release();
        Ok(())
    }

    pub fn drain(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.has_roles() {
            return self.mbar_drain(id);
        }
        self.issue_copies(usize::MAX);
        self.asm.emit(Inst::CpWait { groups: 0 });
        self.block_barrier();
        if self.pipelines.loops.is_empty() {
            let pipeline = self.pipeline(self.func.ops[id].operands[0]);
            self.reuse(pipeline.offset, pipeline.stages * pipeline.stride);
        }
        Ok(())
    }

    pub fn field_of(&self, stage: Value, name: &str) -> Option<Smem> {
        let Repr::Stage(stage) = self.repr(stage) else { return None };
        let field = stage.pipeline.fields.iter().find(|f| f.name == name)?;
        Some(Smem {
            region: Region::Fixed,
            offset: stage.pipeline.offset + field.offset,
            moving: Some(stage.moving),
            layout: field.layout.clone(),
            dtype: field.dtype,
        })
    }

    pub fn field(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let name = op.attr("name").and_then(Attr::as_word).unwrap_or_default();
        match self.field_of(op.operands[0], name) {
            Some(m) => {
                self.set(op.result(), Repr::Smem(m));
                Ok(())
            }
            None => self.unsupported(id, "expected a field of the stage"),
        }
    }

    /// All of some memory with its axes permuted.
    pub fn smem_view(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let m = self.smem(op.operands[0]);
        let Type::Smem { layout, .. } = func.ty(op.result()) else {
            return self.unsupported(id, "expected shared memory");
        };
        let zero = |&v: &Value| divisor(func, v) == 0;
        let whole = layout.shape.iter().product::<u32>() == m.layout.shape.iter().product::<u32>();
        if !whole || !op.group("at").iter().all(zero) {
            return self.smem_part(id);
        }
        self.set(op.result(), Repr::Smem(Smem { layout: layout.clone(), ..m }));
        Ok(())
    }

    /// How many groups of copies are certainly newer than the one that a `wait` is for. If each
    /// iteration of a loop publishes a counter that is a constant ahead of the one it waits for,
    /// all counters in between were published before. Anywhere else none.
    pub fn published_ahead(&self, wait: OpId) -> u32 {
        let func = self.func;
        let op = &func.ops[wait];
        let (pipeline, i) = (op.operands[0], op.operands[1]);
        let ops = &func.blocks[op.block].ops;
        let mut passed = false;
        for &id in ops {
            passed |= id == wait;
            let publish = &func.ops[id];
            if publish.code != StagedOp::Publish || publish.operands[0] != pipeline {
                continue;
            }
            let constant = |v: Value| func.def(v).and_then(|d| d.attr("value")?.as_int());
            let ahead = func.def(publish.operands[1]).and_then(|d| match d.code {
                StagedOp::Tile(TileOp::Ew(ScalarFn::Add)) => match (d.operands[0], d.operands[1]) {
                    (a, b) if a == i => constant(b),
                    (a, b) if b == i => constant(a),
                    _ => None,
                },
                _ => None,
            });
            let ahead = ahead.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            return if passed { ahead.saturating_sub(1) } else { ahead };
        }
        0
    }

    // Queued copies.

    /// Queues code that is issued later, in order, before anything that must follow it.
    pub fn hold(&mut self, write: impl FnOnce(&mut Self)) {
        let body = std::mem::take(&mut self.asm.kernel.body);
        write(self);
        let held = std::mem::replace(&mut self.asm.kernel.body, body);
        self.pipelines.held.push_back(held);
    }

    /// Issues `n` of the queued copies.
    pub fn issue_copies(&mut self, n: usize) {
        let n = n.min(self.pipelines.held.len());
        for stmts in self.pipelines.held.drain(..n) {
            self.asm.kernel.body.extend(stmts);
        }
    }

    pub fn held_copies(&self) -> usize {
        self.pipelines.held.len()
    }

    /// Whether copies may stay queued across an op.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn may_hold(&self, id: OpId) -> bool {
        use StagedOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let multiplies = |o: &OpId| matches!(func.ops[*o].code, MmaIssue | Tile(TileOp::Mma));
        // Where no MMA follows there is nothing to interleave with.
        if self.pipelines.held.is_empty() || !func.blocks[op.block].ops.iter().any(multiplies) {
            return false;
        }
        match op.code {
            Acquire | Fill | Publish | Field | SmemView | FragLoad | Release | MmaOpen
            | MmaIssue | MmaRetire => true,
            Tile(code) => matches!(
                code,
                TileOp::Const
                    | TileOp::Dim
                    | TileOp::Ew(_)
                    | TileOp::Cast
                    | TileOp::Select
                    | TileOp::Mma
            ),
            ConvertLayout | SmemAlloc | FragStore | FragPart | PipelineCreate | Wait | Drain
            | BulkStore | BulkReduce | BulkWait | OrderBarrierCreate | OrderWait | OrderArrive
            | RoleBarrier | ClusterBarrier | BlockBarrier | FenceAsync | WarpSpecialize
            | WarpRole | Replica | Worker | Workers | Tiles => false,
        }
    }

    // Code before loops.

    pub fn open_loop(&mut self, body: BlockId) {
        let at = self.asm.kernel.body.len();
        self.pipelines.loops.push((body, at, Vec::new()));
    }

    pub fn close_loop(&mut self) {
        if let Some((_, at, stmts)) = self.pipelines.loops.pop() {
            self.asm.kernel.body.splice(at..at, stmts);
        }
    }

    /// Emits code before the innermost loop if `outside`, else here.
    pub fn before_loop<T>(&mut self, outside: bool, write: impl FnOnce(&mut Self) -> T) -> T {
        let Some(place) = self.pipelines.loops.len().checked_sub(1).filter(|_| outside) else {
            return write(self);
        };
        let before = std::mem::take(&mut self.pipelines.loops[place].2);
        let body = std::mem::replace(&mut self.asm.kernel.body, before);
        let out = write(self);
        self.pipelines.loops[place].2 = std::mem::replace(&mut self.asm.kernel.body, body);
        out
    }

    /// Whether a value is defined outside the innermost loop.
    pub fn is_outside(&self, v: Value) -> bool {
        let Some(&(body, ..)) = self.pipelines.loops.last() else { return false };
        let home = match self.func.values[v].def {
            ValueDef::Result(id, _) => self.func.ops[id].block,
            ValueDef::Arg(block, _) => block,
        };
        !self.func.block_within(home, body)
    }

    // Addresses in shared memory.

    /// The full address of memory, without its constant offset.
    pub fn smem_address(&mut self, m: &Smem) -> Reg {
        match m.moving {
            Some(moving) => match self.pipelines.addresses.get(&moving) {
                Some(&r) => r,
                None => {
                    let base = self.region(m.region);
                    self.asm.int(Alu::Add, Ty::U32, &[base.into(), moving.into()])
                }
            },
            None => self.region(m.region),
        }
    }

    /// The byte offset of the thread's own element in memory of a form, with `through` added before
    /// the swizzle: computed once at the head of the kernel.
    pub fn thread_place(&mut self, coords: &[Option<Reg>], shared: &Shared, through: u32) -> Reg {
        let key = (coords.to_vec(), shared.clone(), through);
        if let Some(&r) = self.pipelines.places.get(&key) {
            return r;
        }
        if let Some(far) = self.swizzled_alone(shared, through) {
            let first = self.thread_place(coords, shared, 0);
            return self.asm.int(Alu::Xor, Ty::B32, &[first.into(), Opnd::Int(far.into())]);
        }
        let r = self.head(|me| {
            let own = me.thread_bytes(coords, shared);
            let mut at = match own {
                Some(t) if through == 0 => t,
                Some(t) => me.asm.int(Alu::Add, Ty::U32, &[t.into(), Opnd::Int(through.into())]),
                None => me.asm.mov(Ty::B32, Opnd::Int(through.into())),
            };
            if let Some(s) = shared.swizzle {
                let low = ((1i64 << s.bits) - 1) << s.base;
                let by = Opnd::Int(s.shift.into());
                let high = me.asm.int(Alu::Shr, Ty::U32, &[at.into(), by]);
                let bits = me.asm.int(Alu::And, Ty::B32, &[high.into(), Opnd::Int(low)]);
                at = me.asm.int(Alu::Xor, Ty::B32, &[at.into(), bits.into()]);
            }
            at
        });
        self.pipelines.places.insert(key, r);
        r
    }

    /// What the swizzle makes of an offset, where that does not depend on the thread: bytes that
    /// share no bit are swizzled independently. Three consumer warpgroups have no register to spare
    /// for each offset, live from the head of their code to the end of a tile; one instruction
    /// recomputes it at each use. Two warpgroups have, and the assembler then allocates their
    /// accumulators and weights better.
    fn swizzled_alone(&self, shared: &Shared, through: u32) -> Option<u32> {
        let s = shared.swizzle.filter(|_| through != 0 && self.instance.number_of.is_some())?;
        let (strides, panel) = shared.strides();
        let clean = strides.iter().chain([&panel]).all(|s| s.is_power_of_two());
        let low = ((1u32 << s.bits) - 1) << s.base;
        clean.then_some(through ^ (through >> s.shift & low))
    }

    /// The address of the element at a constant offset from the thread's own coordinates, which
    /// share no bit with it. `known` caches addresses for memory that does not move meanwhile.
    pub fn place_address(
        &mut self,
        coords: &[Option<Reg>],
        m: &Smem,
        offset: &[u32],
        known: &mut BTreeMap<u32, Reg>,
    ) -> Addr {
        let shared = m.layout.clone();
        let own = Shared { swizzle: None, ..(*shared).clone() }.offset(offset);
        let (strides, panel) = shared.strides();
        let clean = strides.iter().chain([&panel]).all(|s| s.is_power_of_two());
        // Bits that the swizzle reads or changes go through it; the rest is added afterwards.
        let through = match shared.swizzle {
            None => 0,
            Some(s) => {
                let low = ((1u32 << s.bits) - 1) << s.base;
                if clean { own & (low | low << s.shift) } else { own }
            }
        };
        let base = match known.get(&through) {
            Some(&r) => r,
            None => {
                let thread = self.thread_place(coords, &shared, through);
                let base = self.smem_address(m);
                let r = self.asm.int(Alu::Add, Ty::U32, &[base.into(), thread.into()]);
                known.insert(through, r);
                r
            }
        };
        Addr::reg(base, i64::from(own - through + m.offset))
    }
}
