//! What fits: shared memory for all allocations and rings, and registers for the tiles that are
//! alive at once. Registers are an estimate from layouts; what scalars and addresses take, the
//! assembler knows.

use crate::ops::roles::{role_info, role_of};
use crate::{Staged, StagedOp};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Code;
use tessera_ir::{Attr, BlockId, Func, OpErrors, OpId, Type, Value};
use tessera_layout::Shared;

/// The bytes of shared memory that an allocation takes, as they come one after another.
fn place(at: u64, layout: &Shared) -> u64 {
    at.next_multiple_of(layout.align().into()) + u64::from(layout.bytes())
}

/// The bytes of shared memory a function asks for: its allocations and rings, each aligned.
/// Barriers are not in it.
pub fn shared_bytes(func: &Func<Staged>) -> u64 {
    let mut at = 0;
    for id in func.walk() {
        let op = &func.ops[id];
        if !matches!(op.code, StagedOp::SmemAlloc | StagedOp::RingCreate) {
            continue;
        }
        match func.ty(op.result()) {
            Type::Smem { layout, .. } => at = place(at, layout),
            Type::Ring { slots, fields } => {
                for _ in 0..*slots {
                    at = fields.iter().fold(at, |at, f| place(at, &f.layout));
                }
            }
            _ => {}
        }
    }
    at
}

/// The 32-bit registers of a thread that a tile takes: smaller elements are packed.
pub fn registers(ty: &Type) -> u64 {
    let elements = ty.layout().map_or(0, |l| u64::from(l.regs()));
    (elements * u64::from(ty.dtype().bits()).max(1)).div_ceil(32)
}

pub(super) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    let limit = func.attrs.get("smem").and_then(Attr::as_int);
    let needed = shared_bytes(func);
    if let Some(limit) = limit
        && needed > limit as u64
    {
        errors.push(
            Code::E_TILE_LOWERING,
            format!("expected at most {limit} bytes of shared memory, got {needed}"),
        );
    }
    let regs = func.attrs.get("regs").and_then(Attr::as_int);
    check_block(func, func.body, regs, &BTreeSet::new(), errors);
}

/// Values of the block and those around it that are used in it or after it.
fn check_block(
    func: &Func<Staged>,
    block: BlockId,
    limit: Option<i64>,
    around: &BTreeSet<Value>,
    errors: &mut OpErrors,
) {
    let mut live = around.clone();
    let mut worst: Option<(u64, OpId)> = None;
    let passing = passing(func, block);
    for &id in func.blocks[block].ops.iter().rev() {
        let op = &func.ops[id];
        let after = live.clone();
        for &result in &op.results {
            live.remove(&result);
        }
        live.extend(op.operands.iter().filter(|&&v| func.ty(v).layout().is_some()));
        for &region in &op.regions {
            let mut inner = BTreeSet::new();
            func.walk_block(region, &mut |o| inner.extend(func.ops[o].operands.iter().copied()));
            inner.retain(|&v| func.ty(v).layout().is_some() && defined_outside(func, v, region));
            live.extend(inner);
            let limit = match op.code {
                StagedOp::Role => role_info(func, id).regs.or(limit),
                _ => limit,
            };
            // What a loop takes over is in its own arguments.
            let kept: BTreeSet<Value> =
                after.iter().copied().filter(|v| !op.results.contains(v)).collect();
            check_block(func, region, limit, &kept, errors);
        }
        // A result may take the place of an operand that ends here.
        let sum = |values: &BTreeSet<Value>| {
            values.iter().filter(|v| !passing.contains(v)).map(|&v| held(func, v)).sum::<u64>()
        };
        let held = sum(&live).max(sum(&after));
        if worst.is_none_or(|(most, _)| held > most) {
            worst = Some((held, id));
        }
    }
    if let (Some(limit), Some((held, id))) = (limit, worst)
        && held > limit as u64
    {
        errors.at_op(func, id);
        let who = role_of(func, id).map_or("a thread".to_string(), |r| {
            format!("a thread of role `{}`", role_info(func, r).name)
        });
        errors.push(
            Code::E_TILE_LOWERING,
            format!("expected tiles in at most {limit} registers of {who}, got about {held}"),
        );
    }
}

fn defined_outside(func: &Func<Staged>, v: Value, region: BlockId) -> bool {
    let block = match func.values[v].def {
        tessera_ir::ValueDef::Result(op, _) => func.ops[op].block,
        tessera_ir::ValueDef::Arg(block, _) => block,
    };
    !func.block_within(block, region)
}

/// Tiles that are made and used up between operations on single elements alone. Element after element
/// can go through all of those, so that no such tile is ever there as a whole.
fn passing(func: &Func<Staged>, block: BlockId) -> BTreeSet<Value> {
    use tessera_tile::TileOp::{Broadcast, Cast, Const, Ew, Expand, Iota, Select};
    let tile = |&v: &Value| func.ty(v).layout().is_some();
    let mut run = 0;
    let mut runs = BTreeMap::new();
    for &id in &func.blocks[block].ops {
        let op = &func.ops[id];
        match op.code {
            StagedOp::Tile(Ew(_) | Cast | Select | Const | Iota | Broadcast | Expand) => {
                runs.insert(id, run);
            }
            // What is done to scalars is done beside tiles.
            _ => {
                run += u32::from(
                    !op.regions.is_empty() || op.operands.iter().chain(&op.results).any(tile),
                )
            }
        }
    }
    // Whatever else uses a tile needs all of it.
    let mut out: BTreeSet<Value> =
        runs.keys().flat_map(|&id| func.ops[id].results.iter().copied()).collect();
    for id in func.walk() {
        for v in &func.ops[id].operands {
            let made = func.def_id(*v).and_then(|def| runs.get(&def));
            if made.is_some() && made != runs.get(&id) {
                out.remove(v);
            }
        }
    }
    out
}

/// Constants are made where they are used, and take nothing before.
fn held(func: &Func<Staged>, v: Value) -> u64 {
    use tessera_tile::TileOp::{Broadcast, Const, Expand, Iota, Reshape, Transpose};
    match func.def(v).map(|op| op.code) {
        Some(StagedOp::Tile(Const | Iota)) => 0,
        // These give names to registers that another value holds.
        Some(StagedOp::Tile(Broadcast | Expand | Reshape | Transpose) | StagedOp::FragPart) => 0,
        _ => registers(func.ty(v)),
    }
}
