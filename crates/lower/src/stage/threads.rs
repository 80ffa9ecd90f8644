//! Chooses the number of threads of a group. The largest tile decides: each thread holds enough
//! elements for wide loads, with enough of them in flight, and few enough to fit in registers.

use super::{Staging, seeds};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, OpId, Type};
use tessera_tile::{TileFunc, TileOp};

/// The threads of a group: warps of a block, blocks of a cluster. Powers of two.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Team {
    pub warps: u32,
    pub blocks: u32,
}

/// Warps that count in bins, where a tile has elements for all of them.
const COUNTING: u64 = 4;
/// Elements of the largest tile for each thread: with reductions or other exchanges, where fewer
/// threads need fewer barriers, and without, where more threads have more loads in flight.
const EACH_COMBINED: u64 = 32;
const EACH_ALONE: u64 = 8;
/// The most where tiles are transposed.
const EACH_TURNED: u64 = 64;
/// The most elements of a thread: with what is computed from them they fill the registers.
const MOST: u64 = 128;
/// Warps of a block while each thread holds less than the most. Fewer threads synchronise faster,
/// and their elements are the loads in flight.
const WARPS: u64 = 8;

pub fn choose(func: &TileFunc, staging: &Staging<'_>) -> Result<Team, Diagnostics> {
    let caps = staging.caps;
    let mut largest: (u64, Option<OpId>) = (1, None);
    let mut products = 0;
    for id in func.walk() {
        let op = &func.ops[id];
        for &v in &op.results {
            let n = elements(func.ty(v));
            // MMA operands go through shared memory and are not held whole.
            let feeds = op.code == TileOp::Load && feeds_product(func, v);
            if n > largest.0 && !feeds {
                largest = (n, Some(id));
            }
        }
        if op.code == TileOp::Mma {
            // Accumulator elements of a thread that leave room for operands. With tensor cores, 64
            // x 64 for a warp reads the least shared memory per MMA.
            let matrix = seeds::matrix(func, staging, id).is_some();
            let words = (func.ty(op.result()).dtype().bytes() as u64).div_ceil(4);
            let each = if matrix { 128 } else { 64 } / words;
            products = products.max(elements(func.ty(op.result())).div_ceil(32 * each));
        }
    }
    let most_warps = u64::from(caps.max_threads_per_block / 32);
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let pin = |name: &str| config.and_then(|c| c.get(name).and_then(Attr::as_int));
    let pinned = pin("num_warps");
    if products > 0 {
        let warps = products.clamp(4, 8).next_power_of_two();
        let warps = pinned.map_or(warps, |n| (n.max(1) as u64).next_power_of_two());
        return fits(func, largest, Team { warps: warps.min(most_warps) as u32, blocks: 1 });
    }
    let combined = combines(func);
    let counted = func.walk().iter().any(|&id| func.ops[id].code == TileOp::Histogram);
    let each = match seeds::turned_bytes(func, staging) {
        _ if combined || counted => EACH_COMBINED,
        // A square of vectors, to transpose in registers.
        Some(bytes) => u64::from(16 / bytes.min(16)).pow(2).clamp(EACH_ALONE, EACH_TURNED),
        None => EACH_ALONE,
    };
    let mut wanted = largest.0.div_ceil(32 * each).next_power_of_two();
    if counted && !combined {
        // Warps wait for their atomics: a few of them share that.
        wanted = wanted.max(COUNTING.min(largest.0.div_ceil(32 * EACH_ALONE).next_power_of_two()));
    }
    let can_spread = caps.max_cluster > 1 && spreads(func);
    let most_blocks = if can_spread { u64::from(caps.max_cluster) } else { 1 };
    let cluster = pin("cluster").map(|n| (n.max(1) as u64).next_power_of_two().min(most_blocks));
    let (warps, blocks) = match (pinned, cluster) {
        (Some(n), blocks) => {
            ((n.max(1) as u64).next_power_of_two().min(most_warps), blocks.unwrap_or(1))
        }
        (None, Some(blocks)) => (wanted.div_ceil(blocks).min(most_warps), blocks),
        (None, None) if !combined => (wanted.min(most_warps), 1),
        (None, None) if wanted <= WARPS => (wanted, 1),
        (None, None) => {
            // What does not fit in one such block goes to several, or else to a larger one.
            let needed = largest.0.div_ceil(32 * MOST * WARPS).next_power_of_two();
            match can_spread {
                true => (WARPS, needed.min(u64::from(caps.max_cluster))),
                false => ((WARPS * needed).min(most_warps), 1),
            }
        }
    };
    fits(func, largest, Team { warps: warps as u32, blocks: blocks as u32 })
}

fn fits(
    func: &TileFunc,
    (elements, op): (u64, Option<OpId>),
    team: Team,
) -> Result<Team, Diagnostics> {
    let threads = u64::from(team.warps * team.blocks * 32);
    if elements.div_ceil(threads) <= MOST {
        return Ok(team);
    }
    let loc = op.map_or(func.loc.clone(), |id| func.ops[id].loc.clone());
    let tile = op.map_or(String::new(), |id| func.ty(func.ops[id].result()).to_string());
    let most = threads * MOST;
    Err(Diagnostic::new(
        Code::E_TILE_LOWERING,
        format!("expected tiles that fit in registers, got {tile} of {elements} elements"),
    )
    .at(loc)
    .note(format!("{threads} threads hold at most {most} elements"))
    .help(format!("take pieces of at most {most} elements in a loop"))
    .into())
}

/// How many elements a value has.
pub fn elements(ty: &Type) -> u64 {
    match ty {
        Type::Tile { .. } => {
            ty.static_shape().map_or(1, |s| s.iter().map(|&d| d.max(1) as u64).product())
        }
        _ => 1,
    }
}

/// Whether a tile is only an operand of MMAs.
pub fn feeds_product(func: &TileFunc, v: tessera_ir::Value) -> bool {
    let mut found = false;
    for id in func.walk() {
        let op = &func.ops[id];
        for (i, &o) in op.operands.iter().enumerate() {
            if o == v {
                if op.code != TileOp::Mma || i > 1 {
                    return false;
                }
                found = true;
            }
        }
    }
    found
}

/// Whether elements of a tile are combined with each other.
fn combines(func: &TileFunc) -> bool {
    let combines = |&id: &OpId| {
        matches!(
            func.ops[id].code,
            TileOp::Reduce
                | TileOp::ArgReduce
                | TileOp::Scan
                | TileOp::ReduceBy
                | TileOp::ScanBy
                | TileOp::Sort
        )
    };
    func.walk().iter().any(combines)
}

/// Whether every op that moves data between threads can do so between blocks.
fn spreads(func: &TileFunc) -> bool {
    let stays = |id: OpId| {
        matches!(
            func.ops[id].code,
            TileOp::Scan
                | TileOp::Mma
                | TileOp::Reshape
                | TileOp::Transpose
                | TileOp::Atomic
                | TileOp::BufAlloc
                | TileOp::Slice
                | TileOp::ReduceBy
                | TileOp::ScanBy
                | TileOp::Sort
                | TileOp::Histogram
        )
    };
    !func.walk().into_iter().any(stays)
}
