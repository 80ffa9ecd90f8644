//! `register_prefetch` (double buffering in registers): a loop's loads to registers
//! are issued one iteration before their use.
//!
//! Input: a valid Staged function. Output: each `for` loop that [`takes`] accepts carries the tiles
//! that its iteration uses. The tiles of the next iteration are loaded after the last use of the
//! current ones, into the registers that become free, so that loads are always in flight. Each
//! thread loads what it uses: there is no shared memory and no barrier.
//!
//! The last iteration has no next one. Its loads are moved outside their array, where nothing is
//! read; the result is not used.
//!
//! Matmul loops have pipelines for the MMA operands. Their other loads, such as a scale for each
//! row, are small: [`beside_products`] issues them an iteration early, while the tensor cores work.
//! Scalars that say where an iteration reads are needed by several roles: each role loads its own,
//! and consumers do so an iteration early ([`beside_copies`]).

use super::pipelines::{copied, depends, writes};
use super::seeds;
use std::collections::BTreeMap;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;
use tessera_tile::attrs::checked_axes;

/// Tiles are worth a copy ahead of their use if they have this number of bytes for each thread, a wide
/// access, or this number in all.
const LEAST_OF_THREAD: u64 = 16;
const LEAST: u64 = 4096;
/// Registers of a thread that all tiles of a loop may take together; larger ones go through shared
/// memory.
const MOST_WORDS: u64 = 32;
/// Far before every array, and a multiple of every vector size.
const OUTSIDE: i64 = -(1 << 40);

type Rw<'f> = Rewriter<'f, Staged>;

/// The loads of a loop that are issued an iteration ahead, in registers.
pub fn takes(func: &StagedFunc, loop_op: OpId) -> Vec<OpId> {
    let op = &func.ops[loop_op];
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let requested =
        op.attr("prefetch").is_some() || config.is_some_and(|c| c.get("num_stages").is_some());
    if op.code != StagedOp::Tile(TileOp::For) || requested {
        return Vec::new();
    }
    // In a loop over groups threads wait for each other anyway, and more than one load should be in
    // flight.
    if func.def(op.operands[2]).is_some_and(|d| d.code == StagedOp::Workers) {
        return Vec::new();
    }
    let body = op.regions[0];
    let multiplies = |&id: &OpId| {
        let code = func.ops[id].code;
        matches!(code, StagedOp::Tile(TileOp::Mma) | StagedOp::MmaIssue)
            && func.block_within(func.ops[id].block, body)
    };
    // MMAs take their operands from shared memory, and need all registers.
    if func.walk().iter().any(multiplies) {
        return Vec::new();
    }
    let loads: Vec<OpId> =
        func.blocks[body].ops.iter().copied().filter(|&id| streams(func, body, id)).collect();
    let words: u64 = loads.iter().map(|&id| words(func, id)).sum();
    if words <= MOST_WORDS { loads } else { Vec::new() }
}

/// Whether a load reads a large tile at a position that changes and is known an iteration ahead.
fn streams(func: &StagedFunc, body: BlockId, id: OpId) -> bool {
    let op = &func.ops[id];
    let Some(ty) = op.results.first().map(|&v| func.ty(v)).filter(|ty| ty.is_tile()) else {
        return false;
    };
    let elements: u64 = seeds::extents(ty).iter().map(|&n| u64::from(n)).product();
    elements * ty.dtype().bytes() as u64 >= least(func) && moves_evenly(func, body, id)
}

/// The bytes of the smallest tile that is worth a copy ahead of its use. The fewer threads a block
/// has, the less of its wait for memory do they hide from each other.
pub fn least(func: &StagedFunc) -> u64 {
    let threads = func.attrs.get("threads").and_then(Attr::as_int).unwrap_or(i64::MAX) as u64;
    threads.saturating_mul(LEAST_OF_THREAD).min(LEAST)
}

/// Whether an op is a load at a position that changes and is known an iteration ahead.
fn moves_evenly(func: &StagedFunc, body: BlockId, id: OpId) -> bool {
    let op = &func.ops[id];
    if op.code != StagedOp::Tile(TileOp::Load) {
        return false;
    }
    let (view, ty) = (op.operands[0], func.ty(op.result()));
    let position = func.blocks[body].args[0];
    let moves: Option<Vec<bool>> =
        op.group("at").iter().map(|&v| depends(func, v, body, position, 64)).collect();
    func.params().contains(&view)
        && op.group("other").is_empty()
        && func.ty(view).dtype() == ty.dtype()
        && moves.is_some_and(|m| m.contains(&true))
        && !func.walk().iter().any(|&o| writes(func, o, view))
}

/// Registers of 32 bits that a thread holds a load's tile in.
fn words(func: &StagedFunc, id: OpId) -> u64 {
    let ty = func.ty(func.ops[id].result());
    let regs = ty.layout().map_or(0, |l| u64::from(l.regs()));
    (regs * ty.dtype().bytes() as u64).div_ceil(4)
}

/// Registers of a thread that all such loads of a matmul loop may take together.
const FEW_WORDS: u64 = 8;

/// The body of a loop with MMAs.
fn body_with_products(func: &StagedFunc, loop_op: OpId) -> Option<BlockId> {
    let op = &func.ops[loop_op];
    let body = *op.regions.first().filter(|_| op.code == StagedOp::Tile(TileOp::For))?;
    let issues = |&id: &OpId| func.ops[id].code == StagedOp::MmaIssue;
    func.blocks[body].ops.iter().any(issues).then_some(body)
}

/// The loads of a matmul loop that are not operands, and small.
fn takes_beside(func: &StagedFunc, loop_op: OpId) -> Vec<OpId> {
    let Some(body) = body_with_products(func, loop_op) else { return Vec::new() };
    let ops = &func.blocks[body].ops;
    let small = |&id: &OpId| {
        func.ops[id].results.first().is_some_and(|&v| func.ty(v).rank() < 2)
            && moves_evenly(func, body, id)
            && !decides(func, id)
    };
    let loads: Vec<OpId> = ops.iter().copied().filter(small).collect();
    let words: u64 = loads.iter().map(|&id| words(func, id).max(1)).sum();
    if words <= FEW_WORDS { loads } else { Vec::new() }
}

/// Scalars that say where a matmul loop reads, once producers do its loads.
fn takes_numbers(func: &StagedFunc, loop_op: OpId) -> Vec<OpId> {
    let Some(body) = body_with_products(func, loop_op) else { return Vec::new() };
    let ops = &func.blocks[body].ops;
    let number = |&id: &OpId| {
        let one = |&v: &Value| matches!(func.ty(v), Type::Scalar(_));
        func.ops[id].results.first().is_some_and(one)
            && moves_evenly(func, body, id)
            && decides(func, id)
    };
    ops.iter().copied().filter(number).take(FEW_WORDS as usize).collect()
}

/// Loads the scalars of matmul loops an iteration early, after warp specialization.
pub fn beside_copies(func: &StagedFunc) -> Option<StagedFunc> {
    rewritten(func, takes_numbers)
}

/// Whether a loaded value decides where something is read or written, or which branch is taken:
/// roles other than the consumer may need it.
fn decides(func: &StagedFunc, load: OpId) -> bool {
    let mut seen = vec![func.ops[load].result()];
    let mut next = 0;
    while let Some(&v) = seen.get(next) {
        next += 1;
        for op in func.walk().into_iter().map(|o| &func.ops[o]) {
            if !op.operands.contains(&v) {
                continue;
            }
            let computes = matches!(
                op.code,
                StagedOp::Tile(
                    TileOp::Ew(_)
                        | TileOp::Cast
                        | TileOp::Select
                        | TileOp::Broadcast
                        | TileOp::Expand
                        | TileOp::Yield
                ) | StagedOp::ConvertLayout
            );
            if !computes {
                return true;
            }
            seen.extend(
                op.results.iter().filter(|r| !seen.contains(r)).copied().collect::<Vec<_>>(),
            );
        }
    }
    false
}

/// Issues the loads of matmul loops that are not operands an iteration early.
pub fn beside_products(func: &StagedFunc) -> Option<StagedFunc> {
    rewritten(func, takes_beside)
}

pub fn register_prefetch(func: &StagedFunc) -> Option<StagedFunc> {
    rewritten(func, |func, id| if counts(func, id) { Vec::new() } else { takes(func, id) })
}

/// Whether a loop counts in bins. Such loops measured faster with plain loads than with loads one
/// iteration ahead (docs/perf/tile_ops.md).
fn counts(func: &StagedFunc, loop_op: OpId) -> bool {
    let Some(&body) = func.ops[loop_op].regions.first() else { return false };
    let histogram = |&id: &OpId| {
        func.ops[id].code == StagedOp::Tile(TileOp::Histogram)
            && func.block_within(func.ops[id].block, body)
    };
    func.walk().iter().any(histogram)
}

fn rewritten(
    func: &StagedFunc,
    takes: impl Fn(&StagedFunc, OpId) -> Vec<OpId>,
) -> Option<StagedFunc> {
    let mut loops = BTreeMap::new();
    for id in func.walk() {
        let loads = takes(func, id);
        if !loads.is_empty() {
            loops.insert(id, loads);
        }
    }
    if loops.is_empty() {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &loops, id, body);
    }
    Some(rw.new)
}

fn emit(rw: &mut Rw<'_>, loops: &BTreeMap<OpId, Vec<OpId>>, id: OpId, into: BlockId) {
    match loops.get(&id) {
        Some(loads) => rotated(rw, loops, loads, id, into),
        None => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, loops, inner, block));
        }
    }
}

fn rotated(
    rw: &mut Rw<'_>,
    loops: &BTreeMap<OpId, Vec<OpId>>,
    loads: &[OpId],
    id: OpId,
    into: BlockId,
) {
    let old = rw.old;
    let op = &old.ops[id];
    let body = op.regions[0];
    let bounds = [0, 1, 2].map(|i| rw.get(op.operands[i]));
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    inits.extend(loads.iter().map(|&load| load_at(rw, load, body, bounds[0], bounds[1], into)));
    let mut types: Vec<Type> = op.results.iter().map(|&v| old.ty(v).clone()).collect();
    types.extend(loads.iter().map(|&load| old.ty(old.ops[load].result()).clone()));
    let mut spec = OpSpec::new(op.code, &bounds).group("init", &inits).results(types);
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, op.loc.clone()).op(spec).expect("result types are given");
    let block = rw.new.ops[new].regions[0];
    rw.copy_args(body, block);
    for &load in loads {
        let v = old.ops[load].result();
        let arg = rw.new.add_arg(block, old.ty(v).clone(), old.name_of(v));
        rw.set(v, arg);
    }
    let position = rw.new.blocks[block].args[0];
    let mut last: BTreeMap<OpId, Vec<usize>> = BTreeMap::new();
    for (i, &load) in loads.iter().enumerate() {
        last.entry(last_use(old, body, load)).or_default().push(i);
    }
    let mut next: Vec<Option<Value>> = vec![None; loads.len()];
    for &inner in &old.blocks[body].ops {
        if old.ops[inner].is_terminator() {
            let end = rw.copy_op(inner, block);
            let end = &mut rw.new.ops[end];
            end.operands.extend(next.iter().flatten());
            end.group_lens[0] += loads.len();
            continue;
        }
        if !loads.contains(&inner) {
            emit(rw, loops, inner, block);
        }
        for &i in last.get(&inner).into_iter().flatten() {
            let loc = old.ops[loads[i]].loc.clone();
            let later = rw.builder(block, loc).ew(ScalarFn::Add, &[position, bounds[2]]);
            next[i] = Some(load_at(rw, loads[i], body, later, bounds[1], block));
        }
    }
    let results = rw.new.ops[new].results.clone();
    for (&v, &r) in op.results.iter().zip(&results) {
        rw.set(v, r);
        rw.new.values[r].name = old.values[v].name.clone();
    }
}

/// The op of the loop's body after which a load's tile, and its cast, are not used any more; the
/// load itself where nothing uses it. A cast takes no registers beside the tile: it is done element
/// by element where its result is used.
fn last_use(func: &StagedFunc, body: BlockId, load: OpId) -> OpId {
    let mut tiles = vec![func.ops[load].result()];
    let mut last = load;
    for &id in &func.blocks[body].ops {
        let mut inside = func
            .walk()
            .into_iter()
            .filter(|&o| o == id || func.ancestors(func.ops[o].block).contains(&id));
        let op = &func.ops[id];
        // What is yielded is used last, and is yielded as it was loaded.
        let used = inside.any(|o| func.ops[o].operands.iter().any(|v| tiles.contains(v)));
        if op.is_terminator() || !used {
            continue;
        }
        last = id;
        if op.code == StagedOp::Tile(TileOp::Cast) {
            tiles.push(op.result());
        }
    }
    last
}

/// A load of the loop's body as the iteration at `position` does it, if there is such an iteration.
fn load_at(
    rw: &mut Rw<'_>,
    load: OpId,
    body: BlockId,
    position: Value,
    end: Value,
    block: BlockId,
) -> Value {
    let old = rw.old;
    let op = &old.ops[load];
    let loc = op.loc.clone();
    let first = old.blocks[body].args[0];
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let moves = |&a: &usize| depends(old, op.group("at")[a], body, first, 64) == Some(true);
    // A dim of the tile that moves, if there is one: all its positions are checked anyway.
    let moving: Vec<usize> = (0..extent.len()).filter(moves).collect();
    let guarded = moving.iter().copied().find(|&a| extent[a] != 0).unwrap_or(moving[0]);
    let mut moved = BTreeMap::from([(first, position)]);
    let mut at: Vec<Value> =
        op.group("at").iter().map(|&v| copied(rw, v, body, &mut moved, block)).collect();
    let mut build = rw.builder(block, loc.clone());
    let is_iteration = build.ew(ScalarFn::Lt, &[position, end]);
    let outside = build.index(OUTSIDE);
    at[guarded] = build.select(is_iteration, at[guarded], outside);
    let src = rw.get(op.operands[0]);
    let checked = checked_axes(op, extent.len());
    let bounds = checked
        .iter()
        .enumerate()
        .map(|(a, &checked)| if checked || a == guarded { "checked" } else { "inside" });
    let mut spec = OpSpec::new(op.code, &[src]).group("at", &at);
    spec.attrs = op.attrs.clone();
    spec.attrs.remove("inbounds");
    spec.attrs.set("bounds", Attr::words(bounds));
    rw.builder(block, loc).one(spec, old.ty(op.result()).clone())
}
