//! `stage-hoist`, loop-invariant code motion of loads: a tile that every iteration loads alike is
//! loaded once, before the loop.
//!
//! Input: a valid Staged function. Output: the same, where loads that do not depend on the
//! iteration, from parameters that the function does not write, are before the loop, as long as
//! their tiles fit in registers beside the loop's own. Narrow elements stay packed until they are
//! used. In a loop over groups, tiles that do not fit in registers go to shared memory, as far as
//! two stages of the loop's own loads still fit.
//!
//! Matmul loops on the tensor cores have no registers to spare. Small invariant loads, one number
//! for each row or one for all, are hoisted by [`beside_products`].
//!
//! The loop may have no iterations. The load is done all the same, so nothing that was known inside
//! the loop may be used: positions that are not constants are checked against the extents.

use super::Staging;
use super::pipelines::copied;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value, ValueDef};
use tessera_layout::Shared;
use tessera_staged::ops::smem::holds_its_part;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp, registers};
use tessera_tile::TileOp;
use tessera_tile::attrs::checked_axes;

/// Registers of a thread for scalars and addresses, and for elements in flight.
const BESIDE: u64 = 56;
/// Shared memory that reductions and conversions after pipelines take, and the alignment of an
/// allocation.
const OTHER_SHARED: u64 = 8 << 10;
const ALIGN: u64 = 1 << 10;
/// Registers of a thread that let two blocks of 256 threads run on a multiprocessor.
const SHARED_OUT: u64 = 128;

/// Where the loads of a loop go.
#[derive(Default)]
struct Chosen {
    registers: Vec<OpId>,
    shared: Vec<OpId>,
}

type Plan = BTreeMap<OpId, Chosen>;

/// None where there is nothing to do.
pub fn hoist(func: &StagedFunc, staging: &Staging<'_>) -> Option<StagedFunc> {
    rewritten(func, |id| chosen(func, staging, id))
}

/// Registers of a thread that hoisted loads of a matmul loop on the tensor cores may take together.
const FEW_WORDS: u64 = 8;

/// Hoists the small invariant loads of matmul loops.
pub fn beside_products(func: &StagedFunc) -> Option<StagedFunc> {
    rewritten(func, |id| {
        let body = func.ops[id].regions[0];
        let ops = &func.blocks[body].ops;
        let mut out = Chosen::default();
        if !ops.iter().any(|&o| func.ops[o].code == StagedOp::MmaIssue) {
            return out;
        }
        let mut room = FEW_WORDS;
        for &load in ops.iter().filter(|&&o| is_alike(func, o, body)) {
            let words = registers(func.ty(func.ops[load].result())).max(1);
            if words <= room {
                room -= words;
                out.registers.push(load);
            }
        }
        out
    })
}

fn rewritten(func: &StagedFunc, chosen: impl Fn(OpId) -> Chosen) -> Option<StagedFunc> {
    let plan: Plan = func
        .walk()
        .into_iter()
        .filter(|&id| func.ops[id].code == StagedOp::Tile(TileOp::For))
        .map(|id| (id, chosen(id)))
        .filter(|(_, c)| !c.registers.is_empty() || !c.shared.is_empty())
        .collect();
    if plan.is_empty() {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    let mut kept = BTreeMap::new();
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &plan, &mut kept, id, body);
    }
    Some(rw.new)
}

/// `kept` has the shared memory that hoisted tiles are in.
fn emit(
    rw: &mut Rewriter<'_, Staged>,
    plan: &Plan,
    kept: &mut BTreeMap<OpId, Value>,
    id: OpId,
    into: BlockId,
) {
    if plan.values().any(|c| c.registers.contains(&id)) {
        return;
    }
    let old = rw.old;
    let loc = old.ops[id].loc.clone();
    if let Some(&mem) = kept.get(&id) {
        let result = old.ops[id].result();
        let tile = rw.builder(into, loc).frag_load(mem, old.ty(result).clone());
        rw.new.values[tile].name = old.values[result].name.clone();
        rw.set(result, tile);
        return;
    }
    let mut moved = BTreeMap::new();
    if let Some(c) = plan.get(&id) {
        let body = old.ops[id].regions[0];
        for &load in &c.registers {
            before(rw, load, body, &mut moved, into);
        }
        for &load in &c.shared {
            before(rw, load, body, &mut moved, into);
            let tile = rw.get(old.ops[load].result());
            let mut build = rw.builder(into, loc.clone());
            if let Some(shared) = memory(old, load) {
                let ty = old.ty(old.ops[load].result());
                let (shape, dtype) = (ty.shape().to_vec(), ty.dtype());
                let layout = Arc::new(shared);
                let mem = build.smem_alloc(Type::Smem { shape, dtype, layout });
                build.frag_store(mem, tile);
                kept.insert(load, mem);
            }
        }
        if !c.shared.is_empty() {
            rw.builder(into, loc).sync(StagedOp::BlockBarrier);
        }
    }
    rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, plan, kept, inner, block));
}

/// The layout of a tile in shared memory: as its threads hold it, so that each reads what it wrote.
fn memory(func: &StagedFunc, load: OpId) -> Option<Shared> {
    let ty = func.ty(func.ops[load].result());
    let shared = Shared::row_major(&super::seeds::extents(ty), ty.dtype().bytes() as u32);
    let cluster = func.attrs.get("cluster").and_then(Attr::as_ints).unwrap_or_default();
    match cluster.iter().product::<i64>() {
        0 | 1 => Some(shared),
        blocks => shared
            .divided(blocks as u32)
            .filter(|s| ty.layout().is_some_and(|l| holds_its_part(s, l))),
    }
}

/// Copies a load of the loop's body before the loop.
fn before(
    rw: &mut Rewriter<'_, Staged>,
    load: OpId,
    body: BlockId,
    moved: &mut BTreeMap<Value, Value>,
    into: BlockId,
) {
    let old = rw.old;
    let op = &old.ops[load];
    let view = rw.get(op.operands[0]);
    let at: Vec<Value> = op.group("at").iter().map(|&v| copied(rw, v, body, moved, into)).collect();
    let other: Vec<Value> =
        op.group("other").iter().map(|&v| copied(rw, v, body, moved, into)).collect();
    let mut spec = OpSpec::new(op.code, &[view]).group("at", &at).group("other", &other);
    spec.attrs = op.attrs.clone();
    let checked = checked_axes(op, at.len());
    let bounds = op.group("at").iter().zip(checked).map(|(&v, checked)| {
        let constant = old.def(v).is_some_and(|d| d.code == StagedOp::Tile(TileOp::Const));
        if checked || !constant { "checked" } else { "inside" }
    });
    // Facts about iterations do not hold for a loop without any.
    spec.attrs.remove("inbounds");
    spec.attrs.set("bounds", Attr::words(bounds));
    let result = op.result();
    let spec = spec.result(old.ty(result).clone());
    let new = rw.builder(into, op.loc.clone()).value(spec).expect("the result type is given");
    rw.new.values[new].name = old.values[result].name.clone();
    rw.set(result, new);
}

/// The loads that are hoisted out of a loop: in program order, as many as fit.
fn chosen(func: &StagedFunc, staging: &Staging<'_>, id: OpId) -> Chosen {
    let body = func.ops[id].regions[0];
    let mut multiplies = false;
    func.walk_block(body, &mut |o| {
        multiplies |= matches!(func.ops[o].code, StagedOp::Tile(TileOp::Mma) | StagedOp::MmaIssue);
    });
    let mut out = Chosen::default();
    // Loops with MMAs need their registers.
    if multiplies {
        return out;
    }
    let ops = &func.blocks[body].ops;
    let tile = |o: OpId| func.ops[o].results.first().is_some_and(|&v| func.ty(v).is_tile());
    let alike: Vec<OpId> =
        ops.iter().copied().filter(|&o| tile(o) && is_alike(func, o, body)).collect();
    if alike.is_empty() {
        return out;
    }
    let threads = func.attrs.get("threads").and_then(Attr::as_int).unwrap_or(128).max(32) as u64;
    let most = u64::from(staging.caps.registers_per_sm) / threads;
    let most = most.min(u64::from(staging.caps.registers_per_thread));
    // A loop over groups has its multiprocessor to itself.
    let groups = over_groups(func, id);
    let most = if groups { most } else { most.min(SHARED_OUT) };
    let mut taken = held(func, body, &alike) + BESIDE;
    let bytes = |load: OpId| memory(func, load).map(|s| u64::from(s.bytes()));
    let is_load = |o: &OpId| {
        let op = &func.ops[*o];
        op.code == StagedOp::Tile(TileOp::Load) && func.ty(op.result()).is_tile()
    };
    let streamed = ops.iter().copied().filter(|o| is_load(o) && !alike.contains(o));
    let streamed: u64 = streamed.filter_map(bytes).sum();
    let room = u64::from(staging.caps.shared_per_block).checked_sub(2 * streamed + OTHER_SHARED);
    let mut room = room.filter(|_| groups).unwrap_or(0);
    for load in alike {
        let registers = registers(func.ty(func.ops[load].result()));
        if taken + registers <= most {
            taken += registers;
            out.registers.push(load);
        } else if let Some(bytes) = bytes(load).filter(|b| b + ALIGN <= room) {
            room -= bytes + ALIGN;
            out.shared.push(load);
        }
    }
    out
}

/// Whether a loop takes one group after another.
fn over_groups(func: &StagedFunc, id: OpId) -> bool {
    func.def(func.ops[id].operands[2]).is_some_and(|op| op.code == StagedOp::Workers)
}

/// Whether an op of a loop's body loads the same in every iteration.
fn is_alike(func: &StagedFunc, id: OpId, body: BlockId) -> bool {
    let op = &func.ops[id];
    if op.code != StagedOp::Tile(TileOp::Load) {
        return false;
    }
    let view = op.operands[0];
    is_only_read(func, view) && op.operands[1..].iter().all(|&v| is_constant_in(func, v, body, 32))
}

/// Whether memory is a parameter that the function does not write.
pub fn is_only_read(func: &StagedFunc, view: Value) -> bool {
    let writes = |o: &OpId| {
        let other = &func.ops[*o];
        matches!(
            other.code,
            StagedOp::Tile(TileOp::Store | TileOp::Scatter | TileOp::Accumulate | TileOp::Atomic)
                | StagedOp::BulkStore
                | StagedOp::BulkReduce
        ) && other.operands.contains(&view)
    };
    func.params().contains(&view) && !func.walk().iter().any(writes)
}

/// Whether a scalar is the same in every iteration, and can be computed before the loop.
fn is_constant_in(func: &StagedFunc, v: Value, body: BlockId, fuel: u32) -> bool {
    let home = match func.values[v].def {
        ValueDef::Result(id, _) => func.ops[id].block,
        ValueDef::Arg(block, _) => block,
    };
    if !func.block_within(home, body) {
        return true;
    }
    let (Some(op), Some(fuel)) = (func.def(v), fuel.checked_sub(1)) else { return false };
    let pure = matches!(
        op.code,
        StagedOp::Tile(
            TileOp::Const
                | TileOp::Dim
                | TileOp::NumPrograms
                | TileOp::Ew(_)
                | TileOp::Cast
                | TileOp::Select
        )
    );
    home == body
        && pure
        && matches!(func.ty(v), Type::Scalar(_))
        && op.operands.iter().all(|&o| is_constant_in(func, o, body, fuel))
}

/// The registers that the body's own tiles take at its barriers; where it has none, those of two of
/// its largest tiles.
fn held(func: &StagedFunc, body: BlockId, alike: &[OpId]) -> u64 {
    let ops = &func.blocks[body].ops;
    let place: BTreeMap<OpId, usize> = ops.iter().enumerate().map(|(i, &o)| (o, i)).collect();
    // For each tile of the body, where it is defined and where it is used last.
    let mut last: BTreeMap<Value, usize> = BTreeMap::new();
    for (i, &id) in ops.iter().enumerate() {
        let mut inside: BTreeSet<Value> = func.ops[id].operands.iter().copied().collect();
        for &region in &func.ops[id].regions {
            func.walk_block(region, &mut |o| inside.extend(func.ops[o].operands.iter().copied()));
        }
        last.extend(inside.into_iter().map(|v| (v, i)));
    }
    let tiles = last.iter().filter_map(|(&v, &end)| {
        let id = func.def_id(v)?;
        let names = matches!(
            func.ops[id].code,
            StagedOp::Tile(
                TileOp::Const
                    | TileOp::Iota
                    | TileOp::Broadcast
                    | TileOp::Expand
                    | TileOp::Reshape
                    | TileOp::Transpose
            )
        );
        let tile = func.ty(v).layout().is_some() && !names && !alike.contains(&id);
        Some((*place.get(&id)?, end, registers(func.ty(v)))).filter(|_| tile)
    });
    let tiles: Vec<(usize, usize, u64)> = tiles.collect();
    let synchronises = |&&id: &&OpId| {
        matches!(
            func.ops[id].code,
            StagedOp::Tile(TileOp::Reduce | TileOp::ArgReduce | TileOp::Scan)
                | StagedOp::ConvertLayout
        )
    };
    let across = |at: usize| {
        tiles.iter().filter(|(made, end, _)| *made < at && at < *end).map(|t| t.2).sum::<u64>()
    };
    let largest = tiles.iter().map(|t| t.2).max().unwrap_or(0);
    let most = ops.iter().filter(synchronises).map(|id| across(place[id])).max();
    most.unwrap_or(2 * largest).max(largest)
}
