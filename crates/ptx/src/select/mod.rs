//! Instruction selection: from Staged IR to PTX. A scalar is one register, uniform over all
//! threads; a tile is the registers that its layout gives a thread; memory is an address and what
//! is known about it.
//!
//! Before: a valid function of Staged IR with a layout on every tile. After: one PTX kernel.
//!
//! Warp specialization is in `warp_specialize`, mbarriers in `mbar`, TMA in `tma`, WGMMA in
//! `wgmma`, pipelines of `cp.async` in `pipeline`, the persistent loop in `tile_scheduler`.

mod asm_text;
mod buffers;
mod canonical;
mod cluster;
mod combiner;
mod convert;
mod convert_pieces;
mod counters;
mod descriptors;
mod exchange;
mod fill;
mod fused;
mod histogram;
mod in_order;
mod indexed;
mod many;
mod mbar;
mod memory;
mod mma;
mod mma_in_flight;
mod ordered;
mod part;
mod per_warpgroup_store;
mod pipeline;
mod place;
mod position;
mod print;
mod reduce;
mod scan;
mod scan_parallel;
mod scatter_last;
mod select_control;
mod shape;
mod shifted;
mod slow_path;
mod sort;
mod sort_digits;
mod sort_keys;
mod stamps;
mod stmatrix;
mod sync;
mod tile_scheduler;
mod tma;
mod unroll_by_two;
mod value;
mod warp_specialize;
mod warpgroup_pingpong;
mod wgmma;
mod wgmma_plan;
mod words;
mod work_queue;

pub(crate) mod inner {
    pub use super::descriptors::Matrix;
    pub use super::fill::transposing_layout;
    pub use super::fused::inner::*;
    pub use super::per_warpgroup_store::{Share, moves_evenly, share};
    pub use super::slow_path::inner::*;
}

use crate::asm::Asm;
use crate::caps::PtxCaps;
use crate::code::{ArrayClass, Classes, MapRecipe, Site};
use crate::inst::*;
use crate::module::{Kernel, Param, Stmt};
use crate::reports::Printing;
use crate::scalar::Scalars;
use crate::stamps::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_layout::Layout;
use tessera_lower::stage::{Off, Step};
use tessera_numerics::{DType, Profile};
use tessera_staged::ops::team::Team;
use tessera_staged::{StagedFunc, StagedOp};
use tessera_support::Entity;
use tessera_target::frame::{self, Frame};
use tessera_tile::TileOp;
use tessera_tile::attrs::grid_axis;

pub use mma::matrix_type as mma_type;

/// The block of argument words.
pub const ARGS: &str = "args";

/// What a value of the function is in the generated code.
#[derive(Clone, Debug)]
pub enum Repr {
    /// Not computed, or without a run-time value.
    None,
    Scalar(Reg),
    /// A tile all of whose elements are one number.
    Splat(Reg),
    /// A register for each of the layout's, in the carrier of the dtype.
    Tile(Vec<Reg>),
    /// Packed codes of narrow elements, as many in a 32-bit word as fit: what tensor cores take.
    Packed(Vec<Reg>),
    /// An accumulator that WGMMA may be writing.
    Pending(wgmma::Pending),
    /// A tile that stays in shared memory until its last use.
    Lazy(sync::Smem),
    View(View),
    Smem(sync::Smem),
    Pipeline(pipeline::Pipeline),
    Stage(pipeline::Stage),
}

/// A parameter in global memory, or a buffer in shared memory.
#[derive(Clone, Debug)]
pub struct View {
    /// The number of the parameter; those of buffers come after all parameters.
    pub param: usize,
    /// Its first word: the address, then extents, then strides in bytes.
    pub word: usize,
    pub rank: usize,
    pub dtype: DType,
    pub class: ArrayClass,
    pub read_only: bool,
    /// Where a buffer is; none for parameters.
    pub buffer: Option<Arc<buffers::Place>>,
}

impl View {
    pub fn space(&self) -> Space {
        if self.buffer.is_some() { Space::Shared } else { Space::Global }
    }
}

pub struct Select<'a> {
    pub func: &'a StagedFunc,
    pub asm: Asm,
    pub caps: &'a PtxCaps,
    pub profile: Profile,
    frame: &'a Frame,
    classes: &'a Classes,
    pub warps: u32,
    /// Blocks of a cluster that compute one group together, and those that compute neighbouring
    /// ones.
    pub cluster: u32,
    pub team: Team,
    env: Vec<Repr>,
    head: Vec<Stmt>,
    specials: BTreeMap<Special, Reg>,
    tid_fields: BTreeMap<(u32, u32), Reg>,
    coords: BTreeMap<(Vec<u32>, Vec<u32>), Option<Reg>>,
    belows: BTreeMap<(Reg, u32), Reg>,
    nones: BTreeMap<(Reg, u32), Reg>,
    pairs: BTreeMap<(Reg, Reg), Reg>,
    words: BTreeMap<usize, Reg>,
    ids: BTreeMap<usize, Reg>,
    /// The bounds of a parameter's memory.
    ends: BTreeMap<usize, (Reg, Reg)>,
    pub sites: Vec<Site>,
    sync: sync::Sync,
    /// The op that is being selected, and the one that took the most shared memory.
    current: Option<OpId>,
    greatest: Option<Greatest>,
    pipelines: pipeline::Pipelines,
    mbars: mbar::Mbars,
    /// The threads that run what is being emitted.
    instance: warp_specialize::RoleInstance,
    per_warpgroup: per_warpgroup_store::PerWarpgroupStores,
    pingpong: warpgroup_pingpong::Pingpong,
    roles: warp_specialize::Roles,
    /// Tensor maps, and the registers at the head that hold their addresses.
    maps: Vec<MapRecipe>,
    map_addresses: BTreeMap<usize, Reg>,
    /// Tensor maps that roles use: those of more than one thread last.
    early_maps: BTreeSet<(bool, usize)>,
    /// The coordinates of the one tile of a block, of loops over this grid.
    once: Option<(Vec<Value>, Vec<Reg>)>,
    /// The known alignment of the run-time part of an address, where it is small.
    granules: BTreeMap<Reg, u32>,
    wgmma_state: wgmma::WgmmaState,
    /// Whether conditions of slow paths hold anywhere in this warp, by the block of the vote.
    votes: BTreeMap<Value, (Reg, BlockId)>,
    /// Code that rarely runs; it is placed after the kernel.
    behind: Vec<Stmt>,
    ordered: ordered::OrderedSection,
    /// The work queue, where a dynamic tile scheduler hands out tiles.
    work_queue: Option<work_queue::WorkQueue>,
    prints: Vec<Printing>,
    stamps: Vec<Stamp>,
    /// The op whose combiner is evaluated: its scalars differ from thread to thread.
    combining: Option<OpId>,
    /// Counters of the histograms that an open loop adds up.
    counting: BTreeMap<OpId, histogram::Counters>,
    /// The depth of open loops.
    depth: u32,
    /// Whether blocks read each other's shared memory: none may exit before the others are done.
    remote_reads: bool,
    /// Whether blocks of a cluster exchange partial results.
    exchanges: bool,
}

/// The op that takes the most shared memory.
#[derive(Clone, Debug)]
pub struct Greatest {
    pub bytes: u32,
    /// The tile that it is for.
    pub tile: String,
    pub elements: u32,
    pub loc: Loc,
}

/// The result of selecting one kernel.
pub struct Selected {
    pub greatest: Option<Greatest>,
    pub kernel: Kernel,
    pub sites: Vec<Site>,
    pub maps: Vec<MapRecipe>,
    /// Whether groups fold in order.
    pub ordered: bool,
    /// Whether tiles come from a counter in the context, which is 0 again after the launch.
    pub counts: bool,
    pub prints: Vec<Printing>,
    pub stamps: Vec<Stamp>,
    pub files: Vec<String>,
}

pub fn select(
    func: &StagedFunc,
    frame: &Frame,
    classes: &Classes,
    caps: &PtxCaps,
    profile: Profile,
) -> Result<Selected, Diagnostics> {
    let threads = func.attrs.get("threads").and_then(Attr::as_int).unwrap_or(128) as u32;
    let all = match func.attrs.get("cluster") {
        Some(Attr::Int(n)) => *n as u32,
        Some(other) => other.as_ints().map_or(1, |n| n.iter().product::<i64>().max(1) as u32),
        None => 1,
    };
    let mut kernel = Kernel::new(crate::name::entry(&func.name), threads);
    kernel.cluster = all;
    // Blocks of a team have a group each; other clusters compute one group together.
    let team = Team::of(func);
    let cluster = if team.blocks() > 1 { 1 } else { all };
    kernel.params.push(Param { name: ARGS.into(), bytes: 8 * frame.words() as u32, align: 8 });
    let mut me = Select {
        func,
        asm: Asm::new(kernel),
        caps,
        profile,
        frame,
        classes,
        warps: threads / 32,
        cluster,
        team,
        env: vec![Repr::None; func.values.len()],
        head: Vec::new(),
        specials: BTreeMap::new(),
        tid_fields: BTreeMap::new(),
        coords: BTreeMap::new(),
        belows: BTreeMap::new(),
        nones: BTreeMap::new(),
        pairs: BTreeMap::new(),
        words: BTreeMap::new(),
        ids: BTreeMap::new(),
        ends: BTreeMap::new(),
        sites: Vec::new(),
        sync: sync::Sync::default(),
        current: None,
        greatest: None,
        pipelines: pipeline::Pipelines::default(),
        mbars: mbar::Mbars::default(),
        instance: warp_specialize::RoleInstance::default(),
        per_warpgroup: per_warpgroup_store::PerWarpgroupStores::default(),
        pingpong: warpgroup_pingpong::Pingpong::default(),
        roles: warp_specialize::survey(func),
        maps: Vec::new(),
        map_addresses: BTreeMap::new(),
        early_maps: BTreeSet::new(),
        once: None,
        granules: BTreeMap::new(),
        wgmma_state: wgmma::WgmmaState::default(),
        votes: BTreeMap::new(),
        behind: Vec::new(),
        ordered: ordered::OrderedSection::of(func, profile),
        work_queue: None,
        prints: Vec::new(),
        stamps: Vec::new(),
        combining: None,
        counting: BTreeMap::new(),
        depth: 0,
        remote_reads: false,
        exchanges: false,
    };
    me.draw_number()?;
    me.bind_params();
    me.bind_buffers();
    me.block(func.body)?;
    if me.remote_reads {
        me.barrier();
    }
    me.asm.emit(Inst::Ret);
    let body = std::mem::take(&mut me.asm.kernel.body);
    let bases = me.region_bases();
    let begin = me.begin_exchanges();
    let mut kernel = me.asm.kernel;
    kernel.body = bases;
    kernel.body.extend(me.head);
    kernel.body.extend(begin);
    kernel.body.extend(body);
    kernel.body.extend(me.behind);
    if !Off::of(func).has(Step::AccumulatorCoalescing) {
        crate::coalesce::accumulators(&mut kernel);
    }
    kernel.dynamic_shared = me.sync.bytes();
    let (ordered, counts) = (me.ordered.is_kept(), me.work_queue.is_some());
    Ok(Selected {
        greatest: me.greatest,
        kernel,
        files: me.asm.files,
        sites: me.sites,
        ordered,
        counts,
        prints: me.prints,
        stamps: me.stamps,
        maps: me.maps,
    })
}

impl<'a> Select<'a> {
    fn bind_params(&mut self) {
        let func = self.func;
        for (i, &v) in func.params().iter().enumerate() {
            let word = self.frame.params[i].word;
            let repr = match func.ty(v) {
                Type::Scalar(dtype) => Repr::Scalar(self.scalar_word(word, *dtype)),
                Type::View { dims, elem, privilege } => Repr::View(View {
                    param: i,
                    word,
                    rank: dims.len(),
                    dtype: elem.storage,
                    class: self.classes[i],
                    read_only: !privilege.writes(),
                    buffer: None,
                }),
                _ => Repr::None,
            };
            self.set(v, repr);
        }
    }

    /// A word of the arguments, read once.
    pub fn word(&mut self, place: usize) -> Reg {
        if let Some(&r) = self.words.get(&place) {
            return r;
        }
        let r = self.head(|me| {
            let addr = Addr::name(ARGS, 8 * place as i64);
            me.asm.ld(Space::Param, Ty::B64, 1, addr, Cache::Usual)[0]
        });
        self.words.insert(place, r);
        r
    }

    fn scalar_word(&mut self, place: usize, dtype: DType) -> Reg {
        let word = self.word(place);
        self.head(|me| match crate::scalar::carrier(dtype) {
            Class::B64 => word,
            Class::Pred => me.asm.setp(Cmp::Ne, Ty::U64, word, Opnd::Int(0)),
            Class::B32 | Class::B16 => me.asm.cvt(Ty::U32, Ty::U64, None, word),
        })
    }

    pub fn set(&mut self, v: Value, repr: Repr) {
        self.env[v.index()] = repr;
    }

    pub fn repr(&self, v: Value) -> &Repr {
        &self.env[v.index()]
    }

    pub fn scalar(&self, v: Value) -> Reg {
        match &self.env[v.index()] {
            Repr::Scalar(r) => *r,
            other => unreachable!("expected a scalar that was computed, got {other:?}"),
        }
    }

    pub fn view(&self, v: Value) -> View {
        match &self.env[v.index()] {
            Repr::View(m) => m.clone(),
            other => unreachable!("expected a parameter in memory, got {other:?}"),
        }
    }

    /// The layout of a tile.
    pub fn layout(&self, v: Value) -> Arc<Layout> {
        match self.func.ty(v) {
            Type::Frag { layout, .. } => layout.clone(),
            Type::Pending(of) => match &**of {
                Type::Frag { layout, .. } => layout.clone(),
                other => unreachable!("expected a tile with a layout, got {other}"),
            },
            other => unreachable!("expected a tile with a layout, got {other}"),
        }
    }

    pub fn dtype(&self, v: Value) -> DType {
        self.func.ty(v).dtype()
    }

    pub fn scalars(&mut self) -> Scalars<'_> {
        Scalars { asm: &mut self.asm, caps: self.caps, profile: self.profile }
    }

    pub fn unsupported<T>(&self, op: OpId, why: impl Into<String>) -> Result<T, Diagnostics> {
        let loc: Loc = self.func.ops[op].loc.clone();
        Err(Diagnostic::new(ErrorCode::E_UNSUPPORTED, why.into()).at(loc).into())
    }

    /// The ops of a block, without its terminator.
    pub fn block(&mut self, id: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        for &op in &func.blocks[id].ops {
            if !func.ops[op].is_terminator() {
                self.asm.at(&func.ops[op].loc);
                if !self.may_hold(op) {
                    self.issue_copies(usize::MAX);
                }
                self.find_next_stages_before(op);
                self.current = Some(op);
                self.maybe_enter_ordered(op);
                self.op(op)?;
                self.maybe_leave_ordered(op);
            }
        }
        self.issue_copies(usize::MAX);
        self.find_next_stages();
        Ok(())
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            StagedOp::Tile(code) => self.tile_op(id, code),
            StagedOp::ConvertLayout => self.convert(id),
            StagedOp::FragPart => self.frag_part(id),
            StagedOp::SmemAlloc => self.smem_alloc(id),
            StagedOp::FragLoad if self.is_lazy(id) => {
                let m = self.smem(op.operands[0]);
                self.set(op.result(), Repr::Lazy(m));
                Ok(())
            }
            StagedOp::FragLoad => self.frag_load(id),
            StagedOp::FragStore => self.frag_store(id),
            StagedOp::BlockBarrier => {
                self.block_barrier();
                Ok(())
            }
            StagedOp::Worker | StagedOp::Workers if op.attr("axis").is_some() => {
                let all = op.code == StagedOp::Workers;
                let r = self.special(if all { Special::NctaidY } else { Special::CtaidY });
                let r = self.asm.cvt(Ty::U64, Ty::U32, None, r);
                self.give(id, r)
            }
            StagedOp::Worker => {
                let r = self.block_id();
                let r = self.count_clusters(r);
                self.give(id, r)
            }
            StagedOp::Workers => {
                let r = self.block_count();
                let r = self.count_clusters(r);
                self.give(id, r)
            }
            StagedOp::FenceAsync => {
                self.fence_async();
                Ok(())
            }
            StagedOp::MmaOpen => self.mma_open(id),
            StagedOp::MmaIssue => self.mma_issue(id),
            StagedOp::MmaRetire => self.mma_retire(id),
            StagedOp::PipelineCreate => self.pipeline_create(id),
            StagedOp::Acquire => self.acquire(id),
            StagedOp::Fill => self.fill(id),
            StagedOp::Publish => self.publish(id),
            StagedOp::Wait => self.wait(id),
            StagedOp::Field => self.field(id),
            StagedOp::Release => self.release(id),
            StagedOp::Drain => self.drain(id),
            StagedOp::SmemView => self.smem_view(id),
            StagedOp::BulkStore | StagedOp::BulkReduce => self.bulk(id),
            StagedOp::BulkWait => self.bulk_wait(id),
            StagedOp::OrderBarrierCreate => self.order_barrier_create(id),
            StagedOp::OrderWait => self.order_wait(id),
            StagedOp::OrderArrive => self.order_arrive(id),
            StagedOp::RoleBarrier => self.role_barrier(id),
            // Blocks of a cluster compute one group together, and synchronise as one.
            StagedOp::ClusterBarrier => {
                self.barrier();
                Ok(())
            }
            StagedOp::WarpSpecialize => self.roles(id),
            StagedOp::WarpRole => self.unsupported(id, "expected `warp_specialize` around a role"),
            StagedOp::Replica => self.replica(id),
            StagedOp::Tiles => self.tiles(id),
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn tile_op(&mut self, id: OpId, code: TileOp) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        match code {
            TileOp::For => self.counted(id),
            TileOp::If => self.branch(id),
            TileOp::SlowPath => self.slow_path(id),
            TileOp::While => self.conditional(id),
            TileOp::ProgramId => {
                let r = self.program_id(grid_axis(op));
                self.give(id, r)
            }
            TileOp::NumPrograms => {
                let r = self.word(frame::GRID + grid_axis(op));
                self.give(id, r)
            }
            TileOp::LinearId | TileOp::LocalId => {
                let r = self.asm.mov(Ty::B64, Opnd::Int(0));
                self.give(id, r)
            }
            TileOp::GroupSize => {
                let r = self.asm.mov(Ty::B64, Opnd::Int(1));
                self.give(id, r)
            }
            TileOp::WarpSize => {
                let r = self.asm.mov(Ty::B64, Opnd::Int(32));
                self.give(id, r)
            }
            TileOp::Dim => {
                let name = op.attr("name").map(Attr::to_string).unwrap_or_default();
                let r = self.word(self.frame.symbol(&name));
                self.give(id, r)
            }
            TileOp::Const => self.constant(id),
            TileOp::Iota => self.iota(id),
            TileOp::Ew(f) => self.elementwise(id, f),
            TileOp::Select => self.select_op(id),
            TileOp::Cast => self.cast(id),
            TileOp::Bitcast => self.bitcast(id),
            TileOp::Philox => self.philox(id),
            TileOp::Reshape => self.reshape(id),
            TileOp::Transpose => self.transpose(id),
            TileOp::Broadcast => self.broadcast(id),
            TileOp::Expand => self.expand(id),
            TileOp::Load => self.load(id),
            TileOp::Store => self.store(id),
            TileOp::Accumulate => self.accumulate(id),
            TileOp::Gather => self.gather(id),
            TileOp::Scatter => self.scatter(id),
            TileOp::Atomic => self.atomic(id),
            TileOp::Mma => self.mma(id),
            TileOp::Reduce => self.reduce(id),
            TileOp::ArgReduce => self.arg_reduce(id),
            TileOp::Scan => self.scan(id),
            TileOp::ReduceBy => self.reduce_by(id),
            TileOp::ScanBy => self.scan_by(id),
            TileOp::Sort => self.sort(id),
            TileOp::Slice => self.slice(id),
            TileOp::Histogram => self.histogram(id),
            TileOp::Assert => self.assertion(id),
            TileOp::BufAlloc => self.buf_alloc(id),
            TileOp::Print => self.print(id),
            TileOp::Asm => self.text(id),
            TileOp::AsmEffect => self.text_with_effects(id),
            TileOp::Barrier
            | TileOp::CopyAsync
            | TileOp::CopyCommit
            | TileOp::CopyWait
            | TileOp::Origin
            | TileOp::GroupReduce
            | TileOp::GroupScan
            | TileOp::GroupBroadcast
            | TileOp::GroupShuffle
            | TileOp::Concat
            | TileOp::Take
            | TileOp::Owned
            | TileOp::Yield
            | TileOp::Return => self.unsupported(id, "this op does not stand in a group kernel"),
        }
    }

    fn give(&mut self, id: OpId, r: Reg) -> Result<(), Diagnostics> {
        let v = self.func.ops[id].result();
        self.set(v, Repr::Scalar(r));
        Ok(())
    }

    /// Blocks to clusters.
    fn count_clusters(&mut self, blocks: Reg) -> Reg {
        let by = Opnd::Int(self.cluster.trailing_zeros().into());
        let r = self.asm.int(Alu::Shr, Ty::U32, &[blocks.into(), by]);
        self.asm.cvt(Ty::U64, Ty::U32, None, r)
    }

    /// The group's coordinate. Raster order: the last axis is fastest; in matmul kernels the grid
    /// is walked in bands along the last axis but one, so that concurrent groups share operands in
    /// L2.
    fn program_id(&mut self, axis: usize) -> Reg {
        if let Some(&r) = self.ids.get(&axis) {
            return r;
        }
        // Axes that the kernel's grid does not have are of size one.
        let axes = self.func.attrs.get("grid").and_then(Attr::as_list).map_or(3, |l| l.len());
        let block = self.block_id();
        let cluster = self.cluster;
        let extents: Vec<Reg> = (0..axes).map(|axis| self.word(frame::GRID + axis)).collect();
        let bands = axes >= 2 && self.has_mmas() && !self.ordered.is_kept();
        let all = self.head(|me| {
            let asm = &mut me.asm;
            let mut at = block;
            if cluster > 1 {
                let by = Opnd::Int(cluster.trailing_zeros().into());
                at = asm.int(Alu::Shr, Ty::U32, &[at.into(), by]);
            }
            let extents: Vec<Reg> =
                extents.iter().map(|&n| asm.cvt(Ty::U32, Ty::U64, None, n)).collect();
            let mut all = Vec::new();
            let mut axis = axes;
            if bands {
                let [rows, cols] = [axes - 2, axes - 1].map(|a| extents[a]);
                let both = asm.int(Alu::MulLo, Ty::U32, &[rows.into(), cols.into()]);
                let inner = match axes {
                    2 => at,
                    _ => asm.int(Alu::Rem, Ty::U32, &[at.into(), both.into()]),
                };
                let [row, col] = banded(asm, inner, rows, cols);
                all.extend([col, row]);
                if axes > 2 {
                    at = asm.int(Alu::Div, Ty::U32, &[at.into(), both.into()]);
                }
                axis -= 2;
            }
            while axis > 0 {
                axis -= 1;
                if axis == 0 {
                    all.push(at);
                } else {
                    let n = extents[axis];
                    all.push(asm.int(Alu::Rem, Ty::U32, &[at.into(), n.into()]));
                    at = asm.int(Alu::Div, Ty::U32, &[at.into(), n.into()]);
                }
            }
            let all: Vec<Reg> =
                all.iter().rev().map(|&r| asm.cvt(Ty::U64, Ty::U32, None, r)).collect();
            all
        });
        for (axis, r) in all.into_iter().enumerate() {
            self.ids.insert(axis, r);
        }
        match self.ids.get(&axis) {
            Some(&r) => r,
            None => {
                let r = self.head(|me| me.asm.mov(Ty::B64, Opnd::Int(0)));
                self.ids.insert(axis, r);
                r
            }
        }
    }

    fn has_mmas(&self) -> bool {
        let func = self.func;
        func.walk().iter().any(|&id| {
            matches!(func.ops[id].code, StagedOp::Tile(TileOp::Mma) | StagedOp::MmaIssue)
        })
    }

    fn assertion(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let ok = self.scalar(op.operands[0]);
        let text = op.attr("text").and_then(Attr::as_str);
        let message = text.unwrap_or_default().to_string();
        self.sites.push(Site { message, loc: op.loc.clone() });
        let site = self.sites.len() as i64;
        let status = self.word(frame::CONTEXT);
        let past = self.asm.label();
        self.asm.bra_if(ok, true, past);
        // The first fault is reported; the whole block ends, since the condition is uniform.
        let old = self.asm.reg(Class::B32);
        self.asm.emit(Inst::Atom {
            space: Space::Global,
            sem: Sem::Relaxed,
            scope: Scope::Gpu,
            op: AtomOp::Cas,
            ty: Ty::B32,
            d: old,
            addr: Addr::reg(status, 0),
            a: Opnd::Int(0),
            b: Some(Opnd::Int(site)),
        });
        self.skip_ordered();
        // A role goes on, as others wait for it.
        if self.instance.role.is_none() {
            self.asm.emit(Inst::Ret);
        }
        self.asm.place(past);
        Ok(())
    }

    /// The parameters that ops of a region may write.
    pub fn written_in(&self, block: BlockId) -> BTreeSet<Value> {
        let mut out = BTreeSet::new();
        self.func.walk_block(block, &mut |id| {
            let op = &self.func.ops[id];
            if let StagedOp::Tile(
                TileOp::Store | TileOp::Scatter | TileOp::Accumulate | TileOp::Atomic,
            ) = op.code
            {
                out.insert(op.operands[0]);
            }
        });
        out
    }
}

/// Rows of groups in a band.
const BAND: i64 = 8;

/// Row and column of a group where a grid is walked in bands of rows, each along its columns.
fn banded(asm: &mut Asm, at: Reg, rows: Reg, cols: Reg) -> [Reg; 2] {
    let band = Opnd::Int(BAND);
    let size = asm.int(Alu::MulLo, Ty::U32, &[cols.into(), band]);
    let number = asm.int(Alu::Div, Ty::U32, &[at.into(), size.into()]);
    let first = asm.int(Alu::MulLo, Ty::U32, &[number.into(), band]);
    let left = asm.int(Alu::Sub, Ty::U32, &[rows.into(), first.into()]);
    let height = asm.int(Alu::Min, Ty::U32, &[left.into(), band]);
    let before = asm.int(Alu::MulLo, Ty::U32, &[number.into(), size.into()]);
    let inside = asm.int(Alu::Sub, Ty::U32, &[at.into(), before.into()]);
    let col = asm.int(Alu::Div, Ty::U32, &[inside.into(), height.into()]);
    let row = asm.int(Alu::Rem, Ty::U32, &[inside.into(), height.into()]);
    let row = asm.int(Alu::Add, Ty::U32, &[row.into(), first.into()]);
    [row, col]
}
