//! `persistent_blocks`, for memory-bound kernels: a block computes one group after
//! another, so that the loads of the next group overlap with the computation of this one.
//!
//! Input: a valid Staged function for one group. Output: the same in a loop over the groups of a
//! worker in its phase, `first + worker, first + worker + workers, …`; coordinates are computed
//! from the group's index. The work is divided into phases that become shorter: with equal shares,
//! all would wait for the workers that the memory serves last. Where there are enough short groups,
//! consecutive blocks hide their loads already, and the function is left alone, unless most of what
//! it reads is the same for all groups.

use super::Staging;
use tessera_ir::{Attr, Builder, OpId, OpSpec, Rewriter, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// Bytes that a group reads in one tile, from which on the loop is worth it.
const LEAST: u64 = 48 << 10;

pub fn persistent_blocks(func: &StagedFunc, staging: &Staging<'_>) -> Option<StagedFunc> {
    if !staging.caps.async_copy || !wants(func, staging) {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let (body, loc) = (rw.new.body, func.loc.clone());
    let axes = func.attrs.get("grid").and_then(Attr::as_list).map_or(3, |l| l.len());
    let mut build = rw.builder(body, loc.clone());
    let extents: Vec<Value> = (0..axes)
        .map(|axis| {
            let spec = OpSpec::new(StagedOp::Tile(TileOp::NumPrograms), &[])
                .attr("axis", Attr::Int(axis as i64));
            build.one(spec, Type::INDEX)
        })
        .collect();
    let total = extents[1..].iter().fold(extents[0], |n, &e| build.ew(ScalarFn::Mul, &[n, e]));
    let worker = build.one(OpSpec::new(StagedOp::Worker, &[]), Type::INDEX);
    let workers = build.one(OpSpec::new(StagedOp::Workers, &[]), Type::INDEX);
    let (first, end) = phase(&mut build, worker, workers, total);
    let spec = OpSpec::new(StagedOp::Tile(TileOp::For), &[first, end, workers]);
    let new = build.op(spec).expect("it has no results");
    let block = rw.new.ops[new].regions[0];
    let number = rw.new.add_arg(block, Type::INDEX, Some("group"));
    // Groups are numbered along the last axis first. A launch has less than 2^31 of them, and
    // division of 32-bit numbers is much shorter code.
    let mut build = rw.builder(block, loc.clone());
    let mut ids = vec![number; axes];
    if axes > 1 {
        let mut at = build.cast(number, DType::U32);
        for axis in (1..axes).rev() {
            let extent = build.cast(extents[axis], DType::U32);
            let rest = build.ew(ScalarFn::Mod, &[at, extent]);
            ids[axis] = build.cast(rest, DType::I64);
            at = build.ew(ScalarFn::FloorDiv, &[at, extent]);
        }
        ids[0] = build.cast(at, DType::I64);
    }
    for &id in &func.blocks[func.body].ops {
        let op = &func.ops[id];
        match op.code {
            StagedOp::Tile(TileOp::Return) => rw.builder(block, loc.clone()).yield_(&[]),
            StagedOp::Tile(TileOp::ProgramId) => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let id = match ids.get(axis) {
                    Some(&id) => id,
                    None => rw.builder(block, op.loc.clone()).index(0),
                };
                rw.set(op.result(), id);
            }
            StagedOp::SmemAlloc => {
                rw.copy_op(id, body);
            }
            _ => {
                rw.copy_op(id, block);
            }
        }
    }
    rw.builder(body, loc).return_();
    Some(rw.new)
}

/// The range of groups of a worker in its phase. With `t` iterations of all workers for all groups,
/// phase `i` ends at iteration `t - (t >> (i + 2))`, and the last one at the end.
fn phase(
    build: &mut Builder<'_, Staged>,
    worker: Value,
    workers: Value,
    total: Value,
) -> (Value, Value) {
    let along = |code: StagedOp| OpSpec::new(code, &[]).attr("axis", Attr::Int(1));
    let phase = build.one(along(StagedOp::Worker), Type::INDEX);
    let phases = build.one(along(StagedOp::Workers), Type::INDEX);
    let [zero, one, two] = [0, 1, 2].map(|n| build.index(n));
    // Division of 32-bit numbers is short code; there are less than 2^31 groups.
    let [all, resident] = [total, workers].map(|v| build.cast(v, DType::U32));
    let less = build.constant(Type::Scalar(DType::U32), Attr::Int(1));
    let more = build.ew(ScalarFn::Sub, &[resident, less]);
    let iterations = build.ew(ScalarFn::Add, &[all, more]);
    let iterations = build.ew(ScalarFn::FloorDiv, &[iterations, resident]);
    let iterations = build.cast(iterations, DType::I64);
    // The group where the iterations that `shift` leaves for later phases begin.
    let before = |build: &mut Builder<'_, Staged>, shift: Value| {
        let by = build.ew(ScalarFn::Add, &[phase, shift]);
        let left = build.ew(ScalarFn::Shr, &[iterations, by]);
        let done = build.ew(ScalarFn::Sub, &[iterations, left]);
        build.ew(ScalarFn::Mul, &[done, workers])
    };
    let start = before(build, one);
    let end = before(build, two);
    let end = build.ew(ScalarFn::Minimum, &[end, total]);
    let is_first = build.ew(ScalarFn::Eq, &[phase, zero]);
    let start = build.select(is_first, zero, start);
    let next = build.ew(ScalarFn::Add, &[phase, one]);
    let is_last = build.ew(ScalarFn::Ge, &[next, phases]);
    let end = build.select(is_last, total, end);
    (build.ew(ScalarFn::Add, &[start, worker]), end)
}

/// Whether the function reads a large tile in straight-line code, which can be put in a loop.
#[deny(clippy::wildcard_enum_match_arm)]
fn wants(func: &StagedFunc, staging: &Staging<'_>) -> bool {
    use TileOp::*;
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let stages = config.and_then(|c| c.get("num_stages").and_then(Attr::as_int));
    if func.attrs.get("grid").is_none() || stages == Some(1) {
        return false;
    }
    let mut bytes = 0;
    for id in func.walk() {
        let op = &func.ops[id];
        let StagedOp::Tile(code) = op.code else { return false };
        match code {
            For | If | While | Mma | Atomic | Accumulate | Assert | Scatter | Print | AsmEffect => {
                return false;
            }
            Load => bytes += streamed_bytes(func, id),
            Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId | LocalId
            | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast | Bitcast
            | Reshape | Transpose | Broadcast | Expand | Store | Gather | BufAlloc | CopyAsync
            | Barrier | CopyCommit | CopyWait | GroupReduce | GroupScan | GroupBroadcast
            | GroupShuffle | Philox | Reduce | Scan | ArgReduce | Ew(_) | Slice | Concat | Take
            | ReduceBy | ScanBy | Sort | Histogram | Owned | Asm => {}
        }
    }
    // Where the user requests stages, smaller tiles qualify. Two groups' tiles must fit.
    let least = if stages.is_some_and(|n| n > 1) { 1 } else { LEAST };
    bytes >= least && 2 * bytes + 8192 <= u64::from(staging.caps.shared_per_block)
}

/// The bytes of a tile that a load reads from memory that depends on the group.
fn streamed_bytes(func: &StagedFunc, id: OpId) -> u64 {
    let op = &func.ops[id];
    let ty = func.ty(op.result());
    if !ty.is_tile() || !op.group("at").iter().any(|&v| depends_on_group(func, v, 32)) {
        return 0;
    }
    let elements: u64 =
        ty.static_shape().unwrap_or_default().iter().map(|&d| d.max(1) as u64).product();
    elements * ty.dtype().bytes() as u64 / func_blocks(func)
}

/// Blocks that divide a tile.
fn func_blocks(func: &StagedFunc) -> u64 {
    let cluster = func.attrs.get("cluster").and_then(Attr::as_ints).unwrap_or_default();
    cluster.iter().product::<i64>().max(1) as u64
}

fn depends_on_group(func: &StagedFunc, v: Value, fuel: u32) -> bool {
    let (Some(id), Some(fuel)) = (func.def_id(v), fuel.checked_sub(1)) else { return false };
    let op = &func.ops[id as OpId];
    op.code == StagedOp::Tile(TileOp::ProgramId)
        || op.operands.iter().any(|&o| depends_on_group(func, o, fuel))
}
