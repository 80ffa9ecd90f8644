//! Group kernels: a loop over groups, in it the ops of the kernel one after another, each that has
//! an effect or keeps a tile as a loop nest of its own.

mod argreduce;
mod blocked;
mod column_stream;
mod group_control;
mod group_plan;
mod interleave;
mod loops;
mod mma;
mod nest;
mod prefetch;
mod reduce;
mod rows;
mod scan;
mod scatter_blocks;
mod sequence;
mod sink;
mod stores;
mod transpose_squares;
mod transposed_store;
mod whole_matmul;

use crate::atomic::only_folds;
use crate::build::Atomics;
use crate::code::{Code, Site};
use crate::frame::Frame;
use crate::isa::Isa;
use crate::llvm::{Ir, Val};
use crate::memory::Mem;
use crate::scalar::Scalars;
use group_plan::{GroupPlan, is_expression};
use nest::{Nest, shape_of};
use sink::Sink;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, DimExpr, Op, OpId, Type, Value};
use tessera_numerics::{DType, Profile};
use tessera_support::Entity;
use tessera_tile::attrs::{constant_of, grid_axis};
use tessera_tile::{Tile, TileFunc, TileOp};

/// What a value of the function is in the generated code.
#[derive(Clone)]
pub enum Repr {
    Scalar(Val),
    /// A tile in scratch memory.
    Buffer(Buffer),
    Memory(Mem),
    /// A tile that is computed where it is used.
    Expression,
}

/// A tile in memory, row by row without gaps, in its carrier.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub ptr: Val,
    pub dtype: DType,
    pub shape: Vec<i64>,
}

pub struct Group<'a> {
    pub func: &'a TileFunc,
    pub ir: &'a Ir,
    pub s: Scalars<'a>,
    pub isa: Isa,
    pub profile: Profile,
    /// Lanes of a full vector.
    pub lanes: u32,
    plan: GroupPlan,
    env: Vec<Repr>,
    /// Kept tiles whose op was passed and that are not in memory yet.
    pending: BTreeSet<Value>,
    /// Scans that are computed by the store that uses them, under it.
    put_off: BTreeMap<OpId, OpId>,
    code: &'a mut Code,
    frame: &'a Frame,
    words: Val,
    scratch: Val,
    /// An address that can always be read.
    safe: Val,
    ids: [Val; 3],
    /// Whether the launch is alone with its atomics, where it has any.
    alone: Val,
    ahead: prefetch::Prefetch,
    /// Where the kernel is one matmul: axes of accesses that need no bounds check.
    trusted: Option<BTreeSet<(OpId, usize)>>,
    /// A result may have few rows or columns.
    few: bool,
}

/// Emits the loop over the groups `begin..end` into the function that was begun, up to its return.
#[allow(clippy::too_many_arguments)]
pub fn emit(
    ir: &Ir,
    isa: Isa,
    profile: Profile,
    func: &TileFunc,
    frame: &Frame,
    layouts: &[u32],
    code: &mut Code,
    [words, scratch, begin, end]: [Val; 4],
) {
    let mut group = Group {
        func,
        ir,
        s: Scalars { ir, isa, quick: profile == Profile::Default },
        isa,
        profile,
        lanes: isa.lanes(),
        plan: GroupPlan::new(func),
        env: vec![Repr::Expression; func.values.len()],
        pending: BTreeSet::new(),
        put_off: BTreeMap::new(),
        code,
        frame,
        words,
        scratch,
        safe: scratch,
        ids: [ir.c64(0); 3],
        alone: ir.bool(false),
        trusted: None,
        few: layouts.iter().any(|&l| l & crate::memory::FEW != 0),
        ahead: prefetch::Prefetch::default(),
    };
    // The first line of the scratch memory is what `safe` points to.
    group.code.reserve(64);
    group.bind_params(layouts);
    if Atomics::of(func) == Atomics::Bounded {
        group.alone = crate::code::alone(ir, words);
    }
    if let Some(whole) = whole_matmul::find(&group) {
        group.code.parts = true;
        group.blocked(&whole, begin, end);
        return ir.ret(Some(ir.c64(0)));
    }
    let [_, ny, nz] = [0, 1, 2].map(|axis| group.grid(axis));
    let start = group.code.mark();
    ir.for_range(begin, end, 1, &[], |ir, at, _| {
        // Group numbers count along the last axis first, as the grid is walked.
        let (z, rest) = (ir.urem(at, nz), ir.udiv(at, nz));
        group.ids = [ir.udiv(rest, ny), ir.urem(rest, ny), z];
        group.block(func.body);
        group.code.release(start);
        Vec::new()
    });
    if group.code.streams {
        ir.intrinsic("llvm.x86.sse.sfence", &[], &[]);
    }
    ir.ret(Some(ir.c64(0)));
}

impl<'a> Group<'a> {
    fn word(&self, place: usize) -> Val {
        let p = self.ir.offset_const(self.words, 8 * place as i64);
        self.ir.load(self.ir.i64(), p, 8)
    }

    /// Groups along an axis. A grid that the kernel states is the one it is launched with.
    fn grid(&self, axis: usize) -> Val {
        let stated = self.func.attrs.get("grid").and_then(Attr::as_exprs);
        match stated.as_ref().map(|grid| grid.get(axis)) {
            Some(Some(&DimExpr::Const(n))) => self.ir.c64(n),
            Some(None) => self.ir.c64(1),
            _ => self.word(crate::frame::GRID + axis),
        }
    }

    fn bind_params(&mut self, layouts: &[u32]) {
        let func = self.func;
        for (i, &v) in func.params().iter().enumerate() {
            let first = self.frame.params[i].word;
            let repr = match func.ty(v) {
                Type::Scalar(dtype) => {
                    Repr::Scalar(crate::code::scalar_word(&self.s, self.word(first), *dtype))
                }
                ty => Repr::Memory(crate::code::array(self.ir, self.words, first, ty, layouts[i])),
            };
            self.set(v, repr);
        }
    }

    pub fn repr(&self, v: Value) -> Repr {
        self.env[v.index()].clone()
    }

    fn set(&mut self, v: Value, repr: Repr) {
        self.env[v.index()] = repr;
    }

    /// The value of a scalar.
    fn scalar(&self, v: Value) -> Val {
        match &self.env[v.index()] {
            Repr::Scalar(x) => *x,
            _ => unreachable!("a scalar is computed where it stands"),
        }
    }

    fn memory(&self, v: Value) -> Mem {
        match &self.env[v.index()] {
            Repr::Memory(m) => m.clone(),
            _ => unreachable!("the verifier sees to it that this is a memory"),
        }
    }

    /// The ops of a block, without its terminator. The caller gives back the scratch memory.
    fn block(&mut self, id: BlockId) {
        let func = self.func;
        for &op in &func.blocks[id].ops {
            if !func.ops[op].is_terminator() {
                self.op(op);
            }
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId) {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        match op.code {
            _ if is_expression(func, id) => {
                if func.ty(op.result()).rank() == 0 {
                    self.evaluate_scalar(id);
                } else {
                    // A tile of an earlier iteration, or of another branch, is not this one.
                    self.set(op.result(), Repr::Expression);
                    if self.plan.kept.contains(&op.result()) {
                        self.pending.insert(op.result());
                    }
                }
            }
            For => self.counted(id),
            If => self.branch(id),
            While => self.conditional(id),
            ProgramId => self.give(id, self.ids[grid_axis(op)]),
            NumPrograms => {
                let v = self.grid(grid_axis(op));
                self.give(id, v);
            }
            LinearId | LocalId => self.give(id, ir.c64(0)),
            GroupSize => {
                let lanes = self.word(crate::frame::LANES);
                self.give(id, ir.smax(lanes, ir.c64(1)));
            }
            WarpSize => self.give(id, ir.c64(crate::WARP.into())),
            Dim => {
                let name = op.attr("name").map(Attr::to_string).unwrap_or_default();
                let v = self.word(self.frame.symbol(&name));
                self.give(id, v);
            }
            Store if self.scan_into(id) => {}
            Store => {
                let run = self.plan.run(id);
                if run.last() == Some(&id) {
                    let dims = shape_of(func.ty(op.operands[1]));
                    self.write(&dims, run.into_iter().map(Sink::Store).collect());
                }
            }
            Accumulate => {
                let dims = shape_of(func.ty(op.operands[1]));
                self.write(&dims, vec![Sink::Fold(id)]);
            }
            Scatter => {
                let dims = shape_of(func.ty(op.operands[1]));
                self.write(&dims, vec![Sink::Scatter(id)]);
            }
            BufAlloc => self.allocate(id),
            CopyAsync => {
                self.flush();
                self.copy(id);
            }
            // A copy is synchronous, and the ops of a group run one after another.
            Barrier | CopyCommit | CopyWait => {}
            // What is said of memory is for checks.
            Owned => {}
            Atomic if func.ty(op.result()).rank() > 0 && only_folds(func, id) => {
                let dims = shape_of(func.ty(op.result()));
                self.write(&dims, vec![Sink::Change(id)]);
            }
            Atomic => {
                self.flush();
                self.atomic(id);
            }
            Mma => self.product(id),
            Reduce => self.reduce(id),
            Scan => self.scan(id),
            ArgReduce => self.arg_reduce(id),
            AsmEffect => {
                self.flush();
                self.text_with_effects(id);
            }
            Print => {
                self.flush();
                self.print(id);
            }
            Assert => {
                let failed = ir.not(self.scalar(op.operands[0]));
                let site = self.code.site(Site::assertion(func, id));
                self.fail(failed, site);
            }
            Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram => {
                unreachable!("`expand_parts` replaces these")
            }
            Origin | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle => {
                unreachable!("`code::supported` refuses these in group kernels")
            }
            Yield | Return | SlowPath | Const | Iota | Select | Cast | Bitcast | Reshape
            | Transpose | Broadcast | Expand | Load | Gather | Philox | Ew(_) | Asm => {
                unreachable!("terminators are left out, the others are expressions")
            }
        }
    }

    /// Whether no other group or launch changes a memory: the group's own, or where the launch is
    /// alone.
    fn alone_at(&self, mem: Value) -> Val {
        match self.func.ty(mem) {
            Type::Buf { .. } => self.ir.bool(true),
            _ => self.alone,
        }
    }

    fn give(&mut self, id: OpId, v: Val) {
        self.set(self.func.ops[id].result(), Repr::Scalar(v));
    }

    fn evaluate_scalar(&mut self, id: OpId) {
        let v = self.func.ops[id].result();
        self.set(v, Repr::Expression);
        let x = self.eval(&mut Nest::new(&[]), &(v, Vec::new()));
        self.set(v, Repr::Scalar(x));
    }

    fn constant(&self, op: &Op<Tile>) -> Val {
        let dtype = self.func.ty(op.result()).dtype();
        self.s.constant(constant_of(op, dtype), 1)
    }

    /// Ends the kernel where the condition holds.
    fn fail(&mut self, cond: Val, site: i64) {
        // The error message reads the group from the context.
        let ids = self.ids;
        let words = self.words;
        self.ir.when(cond, |ir| {
            crate::code::note_group(ir, words, ids);
            ir.ret(Some(ir.c64(site)));
        });
    }

    fn allocate(&mut self, id: OpId) {
        let ty = self.func.ty(self.func.ops[id].result());
        let shape = shape_of(ty);
        let bytes = shape.iter().product::<i64>().max(0) as u64 * ty.dtype().bytes() as u64;
        let ptr = self.room(bytes);
        // What was never written reads as zero, in every run alike.
        self.ir.fill_bytes(ptr, 0, self.ir.c64(bytes as i64), 64);
        let mem = self.buffer_mem(&Buffer { ptr, dtype: ty.dtype(), shape });
        self.set(self.func.ops[id].result(), Repr::Memory(mem));
    }

    fn room(&mut self, bytes: u64) -> Val {
        let at = self.code.reserve(bytes);
        self.ir.offset_const(self.scratch, at as i64)
    }

    /// Scratch memory for a tile.
    fn buffer_for(&mut self, v: Value) -> Buffer {
        let ty = self.func.ty(v);
        self.buffer_of(ty.dtype(), shape_of(ty))
    }

    fn buffer_of(&mut self, dtype: DType, shape: Vec<i64>) -> Buffer {
        let dtype = dtype.carrier();
        let bytes = shape.iter().product::<i64>() as u64 * dtype.bytes() as u64;
        Buffer { ptr: self.room(bytes), dtype, shape }
    }

    /// The tile in memory, wherever it is now.
    fn in_memory(&mut self, v: Value) -> Buffer {
        match self.repr(v) {
            Repr::Buffer(b) => b,
            Repr::Expression => {
                let to = self.buffer_for(v);
                self.compute_into(v, to.clone());
                to
            }
            Repr::Scalar(_) | Repr::Memory(_) => unreachable!("only tiles get here"),
        }
    }

    /// Computes a tile into memory. One that the plan keeps is there from now on; of another this
    /// is a copy for the moment, since this place may be inside a branch and the next use outside
    /// it.
    fn compute_into(&mut self, v: Value, to: Buffer) {
        self.sink(&to.shape.clone(), vec![Sink::Keep(v, to)]);
    }

    /// Computes what is wanted in memory and not there yet, before something that may change it.
    fn flush(&mut self) {
        for v in self.pending.clone() {
            if self.pending.contains(&v) {
                self.in_memory(v);
            }
        }
    }

    fn copy_tile(&mut self, from: &Buffer, to: &Buffer) {
        let bytes = from.shape.iter().product::<i64>() * from.dtype.bytes() as i64;
        let bytes = self.ir.c64(bytes);
        self.ir.copy_bytes(to.ptr, from.ptr, bytes, 64);
    }
}
