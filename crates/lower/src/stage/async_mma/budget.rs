//! Resource budgets of a warp-specialized kernel: pipeline depth against shared memory, registers
//! of producer and consumer warps, and the raster order of the tile scheduler.
//!
//! Input: a Staged function and the plan of its producer loads. Output: the number of stages of
//! each pipeline, `setmaxnreg` values for register reallocation, and a `raster` attribute on the
//! loop over groups.

use super::super::{MOST_STAGES, Staging};
use super::producer_loads::LoadPlan;
use super::{GROUP, LANES, Refusal, pingpong};
use tessera_ir::{Attr, BlockId, OpId, Type, Value, ValueDef, verify};
use tessera_staged::{StagedFunc, StagedOp, shared_bytes};
use tessera_tile::TileOp;
use tessera_tile::ops::mma::is_promoted;

/// Stages begin at multiples of this many bytes.
pub const ALIGN: u32 = 1024;
/// Bytes for mbarriers and for reductions between warps.
const LITTLE: u32 = 960;
/// Multiply-adds of 16-bit elements that the tensor cores of a multiprocessor do in a clock, and
/// the memory latency in clocks.
const RATE: u64 = 2048;
const LATENCY: u64 = 2048;

/// The largest pipeline depth: what the user requests, limited by `stages`.
pub fn most_stages(func: &StagedFunc, stages: u32) -> u32 {
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let ahead = |id: &OpId| func.ops[*id].attr("prefetch").and_then(Attr::as_int);
    let wanted = func
        .walk()
        .iter()
        .filter_map(ahead)
        .max()
        .map(|n| n.saturating_add(1))
        .or_else(|| config.and_then(|c| c.get("num_stages").and_then(Attr::as_int)))
        .filter(|&n| n > 0);
    let wanted = wanted.map_or(MOST_STAGES, |n| u32::try_from(n.max(1)).unwrap_or(MOST_STAGES));
    wanted.min(stages).max(1)
}

/// Depth of the pipelines in loops, with `other` bytes of shared memory taken already. Pipelines
/// that are filled once for a group have one stage.
pub fn fit(staging: &Staging<'_>, plan: &LoadPlan, other: u32, most: u32) -> u32 {
    fit_beside(staging, plan, other, most, 1)
}

fn fit_beside(staging: &Staging<'_>, plan: &LoadPlan, other: u32, most: u32, once: u32) -> u32 {
    let bytes = |iterations: bool| {
        let here = plan.own().filter(|(_, r)| r.iterations == iterations);
        here.map(|(_, r)| r.stage_bytes()).sum::<u32>()
    };
    let taken = ALIGN + LITTLE + other.next_multiple_of(ALIGN) + once * bytes(false);
    let room = staging.caps.shared_per_block.saturating_sub(taken);
    (room / bytes(true).max(1)).min(most)
}

/// The pipeline depth that hides the memory latency: the stage that is read, and as many as keep
/// the tensor cores busy for that long. More stages gain less than an epilogue through shared
/// memory, or than loads of the next group.
pub fn enough(func: &StagedFunc, plan: &LoadPlan) -> u32 {
    let clocks = |block: BlockId| {
        let mut clocks = 0;
        func.walk_block(block, &mut |id| {
            if func.ops[id].code == StagedOp::MmaIssue {
                clocks += mma_clocks(func, id);
            }
        });
        clocks.max(1)
    };
    let loops = plan.pipelines.iter().filter(|r| r.iterations);
    let stages = loops.map(|r| 1 + LATENCY.div_ceil(clocks(r.block)) as u32).max();
    stages.map_or(3, |n| n.clamp(2, 3))
}

/// Clocks that the tensor cores take for an MMA, of all warpgroups together.
pub fn mma_clocks(func: &StagedFunc, issue: OpId) -> u64 {
    let op = &func.ops[issue];
    let sums = func.ty(op.result()).static_shape().unwrap_or_default();
    let left = func.ty(op.operands[0]);
    let deep = left.static_shape().unwrap_or_default().last().copied().unwrap_or(1);
    let all: i64 = sums.iter().product::<i64>() * deep;
    all.unsigned_abs() * u64::from(left.dtype().bits()) / 16 / RATE
}

/// Bytes of shared memory that are used beside the pipelines of the plan.
pub fn other_bytes(func: &StagedFunc, plan: &LoadPlan) -> u32 {
    let gone: u32 = func
        .walk()
        .iter()
        .filter(|id| plan.gone.contains(id))
        .filter_map(|&id| match func.ops[id].results.first().map(|&v| func.ty(v)) {
            Some(Type::Smem { layout, .. }) => Some(layout.bytes()),
            _ => None,
        })
        .sum();
    let all = u32::try_from(shared_bytes(func)).unwrap_or(u32::MAX).saturating_sub(gone);
    // Warpgroups in ping-pong have a buffer each.
    all.saturating_mul(if pingpong::is_requested(&func.attrs) { pingpong::REPLICAS } else { 1 })
}

pub fn give_stages(
    func: &StagedFunc,
    staging: &Staging<'_>,
    plan: &mut LoadPlan,
    most: u32,
) -> Result<(), Refusal> {
    let other = other_bytes(func, plan);
    let stages = fit(staging, plan, other, most);
    if stages < 2.min(most) {
        return Err("two iterations of the loop do not fit in shared memory".into());
    }
    // Double-buffer the operands of the next group where the loops keep the stages they need.
    let beside = fit_beside(staging, plan, other, most, 2);
    let enough = stages.min(enough(func, plan));
    let (stages, once) = if most > 1 && beside >= enough { (beside, 2) } else { (stages, 1) };
    for pipeline in &mut plan.pipelines {
        pipeline.stages = if pipeline.iterations { stages } else { once };
    }
    Ok(())
}

/// Registers of a consumer thread and of a producer thread for register reallocation
/// (`setmaxnreg`): producers keep the fewest that copies need, consumers get the rest. None where
/// the target cannot reallocate.
pub fn registers(staging: &Staging<'_>, warps: u32, fields: usize) -> Option<(u32, u32)> {
    let caps = staging.caps;
    let even = caps.registers_per_sm / ((warps + GROUP) * LANES);
    if !caps.register_pools || even >= caps.registers_per_thread {
        return None;
    }
    // Each field has positions of its own.
    let load = if fields <= 2 { 24 } else { 40 };
    let left = caps.registers_per_sm - load * GROUP * LANES;
    let work = left / (warps * LANES) / 8 * 8;
    Some((work.min(MOST_POOL), load))
}

/// Whether the tiles of all roles leave registers for addresses and numbers.
pub fn has_room(func: &StagedFunc) -> bool {
    let mut less = func.clone();
    let pieces = func.walk().iter().map(|&id| &func.ops[id]).any(|op| {
        let class = op.attr("class").and_then(Attr::as_word);
        op.code == StagedOp::MmaIssue && is_promoted(func.ty(op.operands[0]).dtype(), class)
    });
    let others = OTHERS + if pieces { PIECE } else { 0 };
    for id in func.walk() {
        let op = &mut less.ops[id];
        if let (StagedOp::WarpRole, Some(regs)) = (op.code, op.attr("regs").and_then(Attr::as_int))
        {
            op.attrs.set("regs", Attr::Int((regs - others).max(regs.min(LEAST))));
        }
    }
    // Without register reallocation every thread has what the target gives.
    let pools = func.walk().iter().any(|&id| func.ops[id].attr("regs").is_some());
    if !pools {
        less.attrs.set("regs", Attr::Int(EVEN - others));
    }
    verify(&less).is_ok()
}

/// Elements of the short fp8 accumulator between two promotions: one piece, beside the full f32
/// tile.
const PIECE: i64 = 64;
/// Registers beside those of tiles, and those of a thread where three warpgroups share them evenly.
const OTHERS: i64 = 40;
const EVEN: i64 = 168;
/// The fewest that a role can have; one without tiles needs no more.
const LEAST: i64 = 24;

/// The most registers that `setmaxnreg` can give a thread.
const MOST_POOL: u32 = 240;

/// Sets the raster order: the grid is walked in bands along one axis, so that a wave of resident
/// groups shares what it reads in the L2 cache. It applies where the loads depend on two axes of
/// the grid.
///
/// A wave of w groups in bands of g reads g times the operand of the first axis and w / g times
/// that of the second. A third axis changes slowest, whatever its position: this is right where all
/// loads depend on it, or none.
pub fn set_raster(func: &mut StagedFunc, staging: &Staging<'_>) {
    let all = func.walk();
    let Some(tiles) = all.iter().copied().find(|&id| func.ops[id].code == StagedOp::Tiles) else {
        return;
    };
    let axes = func.ops[tiles].group("grid").len();
    let args = func.blocks[func.ops[tiles].regions[0]].args[..axes].to_vec();
    let fills: Vec<(u64, Vec<bool>)> = all
        .iter()
        .filter(|&&id| func.ops[id].code == StagedOp::Fill)
        .map(|&id| {
            let op = &func.ops[id];
            let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
            let elements: i64 = extent.iter().map(|&e| e.max(1)).product();
            let size = elements as u64 * func.ty(op.operands[1]).dtype().bytes() as u64;
            let moves = |on: &Value| op.group("at").iter().any(|&v| depends(func, v, *on, 64));
            (size, args.iter().map(moves).collect())
        })
        .collect();
    let orders: &[[usize; 3]] = match axes {
        2 => &[[0, 1, 2]],
        3 => &[[0, 1, 2], [1, 2, 0], [0, 2, 1]],
        _ => &[],
    };
    for order in orders {
        if let Some(bytes) = shared_bytes_of(&fills, &order[..axes]) {
            let wave = f64::from(staging.caps.multiprocessors.max(1));
            let best = (wave * bytes[1] as f64 / bytes[0] as f64).sqrt();
            let config = func.attrs.get("config").and_then(Attr::as_dict);
            let pinned =
                config.and_then(|c| c.get("raster").and_then(Attr::as_int)).filter(|&n| n > 0);
            let chosen = || 1 << best.log2().round().clamp(1.0, 5.0) as i64;
            let group = pinned.unwrap_or_else(chosen);
            reorder(func, tiles, &order[..axes]);
            func.ops[tiles].attrs.set("raster", Attr::word(format!("m{group}")));
            return;
        }
    }
}

/// Bytes that adjacent groups along the second axis share, and along the first. None unless loads
/// depend on both and the third axis is a slow one. A load that depends on both axes is read by one
/// group alone.
fn shared_bytes_of(fills: &[(u64, Vec<bool>)], order: &[usize]) -> Option<[u64; 2]> {
    let mut bytes = [0u64; 2];
    for (size, moves) in fills {
        if moves[order[0]] != moves[order[1]] {
            bytes[usize::from(moves[order[1]])] += size;
        }
    }
    let slow = |&axis: &usize| {
        let mut on = fills.iter().map(|(_, moves)| moves[axis]);
        let first = on.next();
        on.all(|m| Some(m) == first)
    };
    (order[2..].iter().all(slow) && !bytes.contains(&0)).then_some(bytes)
}

/// Permutes the axes of a grid and the coordinates along them.
pub fn reorder(func: &mut StagedFunc, tiles: OpId, order: &[usize]) {
    let body = func.ops[tiles].regions[0];
    let (grid, args) = (func.ops[tiles].group("grid").to_vec(), func.blocks[body].args.clone());
    for (to, &from) in order.iter().enumerate() {
        // The grid is the first group, and nothing is before it.
        func.ops[tiles].operands[to] = grid[from];
        func.blocks[body].args[to] = args[from];
        func.values[args[from]].def = ValueDef::Arg(body, to);
    }
}

/// Whether a scalar is computed from another; carried values count as what they begin with.
pub fn depends(func: &StagedFunc, v: Value, on: Value, fuel: u32) -> bool {
    if v == on {
        return true;
    }
    let Some(fuel) = fuel.checked_sub(1) else { return true };
    match func.values[v].def {
        ValueDef::Result(id, _) => {
            func.ops[id].operands.iter().any(|&o| depends(func, o, on, fuel))
        }
        ValueDef::Arg(block, i) => {
            around(func, block, i).is_some_and(|o| depends(func, o, on, fuel))
        }
    }
}

/// What an argument of a loop begins with.
pub fn around(func: &StagedFunc, block: BlockId, i: usize) -> Option<Value> {
    let op = &func.ops[func.blocks[block].parent?];
    match op.code {
        StagedOp::Tile(TileOp::For) if i == 0 => op.operands.first().copied(),
        StagedOp::Tile(TileOp::For) => op.group("init").get(i - 1).copied(),
        StagedOp::Tile(TileOp::While) => op.group("init").get(i).copied(),
        _ => None,
    }
}
