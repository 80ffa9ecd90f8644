//! What fits: slots of rings in shared memory, registers of roles; and in which order groups are
//! taken so that those that run at once read much of the same.

use super::super::{MOST_SLOTS, Staging};
use super::feeds::Plan;
use super::{GROUP, LANES, Refusal};
use tessera_ir::{Attr, BlockId, OpId, Type, Value, ValueDef, verify};
use tessera_staged::{StagedFunc, StagedOp, shared_bytes};
use tessera_tile::TileOp;

/// Slots begin at multiples of this many bytes.
pub const ALIGN: u32 = 1024;
/// Bytes for barriers, and for what reductions between warps need.
const LITTLE: u32 = 960;
/// Slots that hide the way to memory: more are worth less than a tile that leaves by bulk stores.
pub const ENOUGH: u32 = 3;

/// The most slots of a ring: what the user asks for, and what the caller says.
pub fn most_slots(func: &StagedFunc, slots: u32) -> u32 {
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
    let wanted = wanted.map_or(MOST_SLOTS, |n| u32::try_from(n.max(1)).unwrap_or(MOST_SLOTS));
    wanted.min(slots).max(1)
}

/// Slots of the rings in loops, with `other` bytes of shared memory taken already, where those that
/// are filled once for a group have one.
pub fn fit(staging: &Staging<'_>, plan: &Plan, other: u32, most: u32) -> u32 {
    fit_beside(staging, plan, other, most, 1)
}

fn fit_beside(staging: &Staging<'_>, plan: &Plan, other: u32, most: u32, once: u32) -> u32 {
    let bytes = |turns: bool| {
        let here = plan.own().filter(|(_, r)| r.turns == turns);
        here.map(|(_, r)| r.slot_bytes()).sum::<u32>()
    };
    let taken = ALIGN + LITTLE + other.next_multiple_of(ALIGN) + once * bytes(false);
    let room = staging.caps.shared_bytes.saturating_sub(taken);
    (room / bytes(true).max(1)).min(most)
}

/// Shared memory that stays beside the rings of the plan.
pub fn other_bytes(func: &StagedFunc, plan: &Plan) -> u32 {
    let gone: u32 = func
        .walk()
        .iter()
        .filter(|id| plan.gone.contains(id))
        .filter_map(|&id| match func.ops[id].results.first().map(|&v| func.ty(v)) {
            Some(Type::Smem { layout, .. }) => Some(layout.bytes()),
            _ => None,
        })
        .sum();
    u32::try_from(shared_bytes(func)).unwrap_or(u32::MAX).saturating_sub(gone)
}

pub fn give_slots(
    func: &StagedFunc,
    staging: &Staging<'_>,
    plan: &mut Plan,
    most: u32,
) -> Result<(), Refusal> {
    let other = other_bytes(func, plan);
    let slots = fit(staging, plan, other, most);
    if slots < 2.min(most) {
        return Err("two turns of the loop do not fit in shared memory".into());
    }
    // The next group's are filled early where that costs the loops nothing they need.
    let beside = fit_beside(staging, plan, other, most, 2);
    let (slots, once) =
        if most > 1 && beside >= slots.min(ENOUGH) { (beside, 2) } else { (slots, 1) };
    for ring in &mut plan.rings {
        ring.slots = if ring.turns { slots } else { once };
    }
    Ok(())
}

/// Registers of a thread of the work role and of the load role, where roles can share them unevenly:
/// the fewest that copies need, and all others.
pub fn registers(staging: &Staging<'_>, warps: u32, fields: usize) -> Option<(u32, u32)> {
    let caps = staging.caps;
    let even = caps.regs_per_block / ((warps + GROUP) * LANES);
    if !caps.register_pools || even >= caps.regs_per_thread {
        return None;
    }
    // Each field has positions of its own.
    let load = if fields <= 2 { 24 } else { 40 };
    let left = caps.regs_per_block - load * GROUP * LANES;
    let work = left / (warps * LANES) / 8 * 8;
    Some((work.min(MOST_POOL), load))
}

/// Whether the tiles of all roles leave registers for addresses and numbers.
pub fn has_room(func: &StagedFunc) -> bool {
    let mut less = func.clone();
    for id in func.walk() {
        let op = &mut less.ops[id];
        if let (StagedOp::Role, Some(regs)) = (op.code, op.attr("regs").and_then(Attr::as_int)) {
            op.attrs.set("regs", Attr::Int((regs - OTHERS).max(regs.min(LEAST))));
        }
    }
    // Roles that say nothing of registers have what the target gives every thread.
    let pools = func.walk().iter().any(|&id| func.ops[id].attr("regs").is_some());
    if !pools {
        less.attrs.set("regs", Attr::Int(EVEN - OTHERS));
    }
    verify(&less).is_ok()
}

/// Registers beside those of tiles, and those of a thread where three warpgroups share them evenly.
const OTHERS: i64 = 40;
const EVEN: i64 = 168;
/// The fewest that a role can have; one without tiles needs no more.
const LEAST: i64 = 24;

/// The most registers of a thread in a pool.
const MOST_POOL: u32 = 240;

/// Walks the grid in bands along its first axis, where what groups read depends on both of the first
/// two axes: a wave of groups then reads as little as it can. Bands of g groups by w / g columns read
/// g times what the first axis alone decides, and w / g times what the second does.
pub fn set_raster(func: &mut StagedFunc, staging: &Staging<'_>) {
    let all = func.walk();
    let Some(tiles) = all.iter().copied().find(|&id| func.ops[id].code == StagedOp::Tiles) else {
        return;
    };
    let args = func.blocks[func.ops[tiles].regions[0]].args.clone();
    let axes = func.ops[tiles].group("grid").len();
    let mut bytes = [0u64; 2];
    let mut third = [false; 2];
    for &id in &all {
        let op = &func.ops[id];
        if op.code != StagedOp::Fill {
            continue;
        }
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let elements: i64 = extent.iter().map(|&e| e.max(1)).product();
        let size = elements as u64 * func.ty(op.operands[1]).dtype().bytes() as u64;
        let moves = |axis: usize| op.group("at").iter().any(|&v| depends(func, v, args[axis], 64));
        // What both axes decide is read by one group alone. The third axis is the slow one: right where
        // all depends on it, or nothing.
        if axes >= 2 && moves(0) != moves(1) {
            bytes[usize::from(moves(1))] += size;
        }
        if axes == 3 {
            third[usize::from(moves(2))] = true;
        }
    }
    if third == [true; 2] {
        return;
    }
    if axes < 2 || bytes.contains(&0) {
        return;
    }
    let wave = f64::from(staging.caps.multiprocessors.max(1));
    let best = (wave * bytes[1] as f64 / bytes[0] as f64).sqrt();
    let group = 1u32 << best.log2().round().clamp(1.0, 5.0) as u32;
    func.ops[tiles].attrs.set("raster", Attr::word(format!("m{group}")));
}

/// Whether a scalar is computed from another; carried values count as what they begin with.
fn depends(func: &StagedFunc, v: Value, on: Value, fuel: u32) -> bool {
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
fn around(func: &StagedFunc, block: BlockId, i: usize) -> Option<Value> {
    let op = &func.ops[func.blocks[block].parent?];
    match op.code {
        StagedOp::Tile(TileOp::For) if i == 0 => op.operands.first().copied(),
        StagedOp::Tile(TileOp::For) => op.group("init").get(i - 1).copied(),
        StagedOp::Tile(TileOp::While) => op.group("init").get(i).copied(),
        _ => None,
    }
}
