//! Pipelines of stages in shared memory that copies run ahead in.
//!
//! A pipeline's stages lie one after another in fixed shared memory; counter `i` is stage `i mod n`. All
//! threads fill and read: a fill is `cp.async` by every thread, a publication closes the thread's
//! group of copies, and a wait lets so many of the newest groups go on as the function publishes
//! ahead, then synchronises. That meeting also says that all threads have read the stage before, so that
//! `acquire` need not meet again; where there was none since the last release, it does.
//!
//! Copies are not issued where a fill stands, but held back and issued between the steps of the next
//! product, so that its first operands are not queued behind all of them.

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

/// What stages start at a multiple of.
const ALIGN: u32 = 1024;
/// And fields, where copy engines fill them.
const TMA_ALIGN: u32 = 128;

#[derive(Clone, Debug)]
pub struct Pipeline {
    pub stages: u32,
    /// From one stage to the next, in bytes.
    pub stride: u32,
    /// Where the first begins in fixed memory.
    offset: u32,
    /// Where its barriers begin, in functions with roles.
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
    /// The stage's bytes from the pipeline's start.
    pub moving: Reg,
}

/// What pipelines and the loops around them need while code is emitted.
#[derive(Default)]
pub struct Pipelines {
    /// Copies that were begun and not issued yet, each with the code that it needs.
    held: VecDeque<Vec<Stmt>>,
    /// For the bytes of a stage its whole address.
    addresses: BTreeMap<Reg, Reg>,
    /// Loops that are open: the body, where its code begins, and what goes before it.
    loops: Vec<(BlockId, usize, Vec<Stmt>)>,
    /// The loop that is being emitted, if it is rotated.
    pub rotation: Option<Rotation>,
    /// Strides of axes of parameters, see `copy_stride`.
    pub strides: BTreeMap<(usize, usize), Reg>,
    /// Thread's places in shared memory, found once at the head.
    pub places: BTreeMap<PlaceKey, Reg>,
}

/// Addresses of threads' places, by coordinates and by what goes through the swizzle.
pub type KnownPlaces = BTreeMap<Vec<Option<Reg>>, BTreeMap<u32, Reg>>;

/// Coordinates, the memory's form, and what is added to the thread's bytes before the swizzle.
type PlaceKey = (Vec<Option<Reg>>, Shared, u32);

impl Select<'_> {
    pub fn pipeline_create(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let result = self.func.ops[id].result();
        let Type::Pipeline { stages, fields } = self.func.ty(result) else {
            return self.unsupported(id, "expected a pipeline");
        };
        // Copy engines request more than threads do.
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

    /// The bytes of a counter's stage from the pipeline's start, and its address.
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
        // Copies of threads are writes of threads to an engine that reads them.
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

    /// All of some memory with its axes turned.
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

    /// How many groups of copies are newer than the one that a `wait` is for, for certain: where
    /// each iteration of a loop publishes a counter that is a constant ahead of the one it waits for,
    /// all counters between have been published before. Anywhere else none.
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

    // Copies that are held back.

    /// Code that is issued later, in order, before anything that it must not come after.
    pub fn hold(&mut self, write: impl FnOnce(&mut Self)) {
        let body = std::mem::take(&mut self.asm.kernel.body);
        write(self);
        let held = std::mem::replace(&mut self.asm.kernel.body, body);
        self.pipelines.held.push_back(held);
    }

    /// Issues so many of the copies that were held back.
    pub fn issue_copies(&mut self, n: usize) {
        let n = n.min(self.pipelines.held.len());
        for stmts in self.pipelines.held.drain(..n) {
            self.asm.kernel.body.extend(stmts);
        }
    }

    pub fn held_copies(&self) -> usize {
        self.pipelines.held.len()
    }

    /// Whether copies may still be held back when an op comes.
    pub fn may_hold(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let multiplies = |o: &OpId| {
            matches!(func.ops[*o].code, StagedOp::MmaIssue | StagedOp::Tile(TileOp::Mma))
        };
        // Where no product comes they have nothing to wait for.
        if self.pipelines.held.is_empty() || !func.blocks[op.block].ops.iter().any(multiplies) {
            return false;
        }
        match op.code {
            StagedOp::Acquire
            | StagedOp::Fill
            | StagedOp::Publish
            | StagedOp::Field
            | StagedOp::SmemView
            | StagedOp::FragLoad
            | StagedOp::Release
            | StagedOp::MmaOpen
            | StagedOp::MmaIssue
            | StagedOp::MmaRetire => true,
            StagedOp::Tile(code) => matches!(
                code,
                TileOp::Const
                    | TileOp::Dim
                    | TileOp::Ew(_)
                    | TileOp::Cast
                    | TileOp::Select
                    | TileOp::Mma
            ),
            _ => false,
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

    /// Writes code before the innermost loop if `outside`, else here.
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

    /// Whether a value is from outside of the innermost loop.
    pub fn is_outside(&self, v: Value) -> bool {
        let Some(&(body, ..)) = self.pipelines.loops.last() else { return false };
        let home = match self.func.values[v].def {
            ValueDef::Result(id, _) => self.func.ops[id].block,
            ValueDef::Arg(block, _) => block,
        };
        !self.func.block_within(home, body)
    }

    // Addresses in shared memory.

    /// The whole address of memory, without its constant offset.
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

    /// The bytes of the thread's own place in memory of a form, with `through` added before the
    /// swizzle: found once at the head of the kernel.
    pub fn thread_place(&mut self, coords: &[Option<Reg>], shared: &Shared, through: u32) -> Reg {
        let key = (coords.to_vec(), shared.clone(), through);
        if let Some(&r) = self.pipelines.places.get(&key) {
            return r;
        }
        if let Some(far) = self.swizzled_apart(shared, through) {
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

    /// What a distance becomes by the swizzle, where that does not depend on the thread: bytes that share no
    /// bit go through it each on its own. Three warpgroups that multiply have no register to spare for each
    /// distance, from the head of their code to the end of a tile; one instruction makes it where it is
    /// used. Two have, and the assembler then places their sums and weights better.
    fn swizzled_apart(&self, shared: &Shared, through: u32) -> Option<u32> {
        let s = shared.swizzle.filter(|_| through != 0 && self.instance.number_of.is_some())?;
        let (strides, panel) = shared.strides();
        let clean = strides.iter().chain([&panel]).all(|s| s.is_power_of_two());
        let low = ((1u32 << s.bits) - 1) << s.base;
        clean.then_some(through ^ (through >> s.shift & low))
    }

    /// The address of the element at a constant distance from the thread's own coordinates, which
    /// share no bit with it. `known` keeps addresses for memory that does not move meanwhile.
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
