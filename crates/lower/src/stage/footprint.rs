//! Resource use of a staged function (registers, shared memory, threads), and with how many warps a
//! thread would need fewer registers.

use super::GpuCaps;
use std::collections::BTreeSet;
use tessera_ir::{Attr, Attrs, BlockId, OpId, Type, Value};
use tessera_staged::ops::roles::role_info;
use tessera_staged::{StagedFunc, StagedOp, pressure, shared_bytes};
use tessera_target::{BESIDE_TILES, Footprint};
use tessera_tile::{TileFunc, TileOp};

/// Threads of a warp, and the granularity of register allocation.
const LANES: u32 = 32;
const UNIT: u32 = 8;

pub fn footprint(func: &StagedFunc, caps: &GpuCaps) -> Footprint {
    let int = |name: &str| func.attrs.get(name).and_then(Attr::as_int);
    let small = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    let threads = int("threads").map_or(LANES, small);
    let even = caps.registers_per_sm / threads.max(1) / UNIT * UNIT;
    let even = int("regs").map_or(even.min(caps.registers_per_thread), small);
    let mut found = Footprint {
        threads,
        tiles: 0,
        registers: even,
        widest: func.loc.clone(),
        async_mma: None,
        stages: None,
        resident: 1,
    };
    for widest in pressure(func) {
        let own = widest.role.and_then(|role| role_info(func, role).regs);
        let registers = own.map_or(even, small).min(caps.registers_per_thread);
        let tiles = u32::try_from(widest.registers).unwrap_or(u32::MAX);
        // A producer holds no tiles, and has few registers.
        let room = |tiles: u32, registers: u32| i64::from(registers) - i64::from(tiles);
        let least = found.tiles == 0 || room(tiles, registers) < room(found.tiles, found.registers);
        if tiles > 0 && least {
            (found.tiles, found.registers) = (tiles, registers);
            found.widest = func.ops[widest.at].loc.clone();
        }
    }
    found.async_mma = products(func);
    found.stages = stages(func);
    found.resident = resident(func, &found, caps);
    found
}

/// Blocks of a multiprocessor. Where registers are divided among roles, one block has all.
fn resident(func: &StagedFunc, found: &Footprint, caps: &GpuCaps) -> u32 {
    if func.attrs.get("regs").is_some() {
        return 1;
    }
    let each = (found.tiles + BESIDE_TILES).min(caps.registers_per_thread).next_multiple_of(UNIT);
    let by_registers = caps.registers_per_sm / (each * found.threads.max(1));
    let shared = u32::try_from(shared_bytes(func)).unwrap_or(u32::MAX);
    let by_shared = caps.shared_per_sm / shared.saturating_add(caps.shared_reserved).max(1);
    let by_threads = caps.threads_per_sm / found.threads.max(1);
    by_registers.min(by_shared).min(by_threads).clamp(1, caps.blocks_per_sm.max(1))
}

/// How far ahead loops load what their MMAs read.
fn stages(func: &StagedFunc) -> Option<u32> {
    let mut fewest = None;
    for id in func.walk() {
        let op = &func.ops[id];
        if !matches!(op.code, StagedOp::MmaIssue | StagedOp::Tile(TileOp::Mma)) {
            continue;
        }
        let Some(body) = innermost_loop(func, op.block) else { continue };
        let one = op.operands[..2].iter().filter_map(|&v| source(func, v, body));
        fewest = one.chain(fewest).min();
    }
    fewest
}

/// The body of the loop around a block.
fn innermost_loop(func: &StagedFunc, block: BlockId) -> Option<BlockId> {
    let is_loop =
        |id: &OpId| matches!(func.ops[*id].code, StagedOp::Tile(TileOp::For | TileOp::While));
    let around = func.ancestors(block).into_iter().find(is_loop)?;
    func.ops[around].regions.iter().copied().find(|&r| func.block_within(block, r))
}

/// The stages of the pipelines that a value of a loop's body is made from, 1 for a load from global
/// memory in the same iteration, and none for what comes from outside or was computed.
fn source(func: &StagedFunc, value: Value, body: BlockId) -> Option<u32> {
    let (mut open, mut seen, mut fewest) = (vec![value], BTreeSet::new(), None::<u32>);
    while let Some(v) = open.pop() {
        if !seen.insert(v) {
            continue;
        }
        let Some(op) = func.def(v).filter(|op| func.block_within(op.block, body)) else { continue };
        let found = match op.code {
            StagedOp::Tile(TileOp::Load | TileOp::Gather) => {
                matches!(func.ty(op.operands[0]), Type::View { .. }).then_some(1)
            }
            StagedOp::Wait => match func.ty(op.operands[0]) {
                Type::Pipeline { stages, .. } => Some(*stages),
                _ => None,
            },
            // The results of an MMA are no operands of another that were loaded.
            StagedOp::Tile(TileOp::Mma) | StagedOp::MmaIssue | StagedOp::MmaRetire => None,
            _ => {
                open.extend(&op.operands);
                None
            }
        };
        fewest = found.into_iter().chain(fewest).min();
    }
    fewest
}

/// Whether all MMAs are asynchronous; none where there are no MMAs.
fn products(func: &StagedFunc) -> Option<bool> {
    let mut found = None;
    for id in func.walk() {
        match func.ops[id].code {
            StagedOp::MmaIssue => found = found.or(Some(true)),
            StagedOp::Tile(TileOp::Mma) => found = Some(false),
            _ => {}
        }
    }
    found
}

/// The warps that the user requests.
pub fn pinned_warps(func: &TileFunc) -> Option<i64> {
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    config.and_then(|c| c.get("num_warps").and_then(Attr::as_int)).filter(|&n| n > 0)
}

/// Larger numbers of warps for a function whose tiles do not fit in registers, up to the registers
/// of a block.
pub fn wider(of: &Footprint, caps: &GpuCaps) -> impl Iterator<Item = u32> + use<> {
    let most = caps.registers_per_sm / (caps.registers_per_thread + 1) / LANES;
    let first = if of.spilled() > 0 { (of.threads / LANES).next_power_of_two() } else { u32::MAX };
    // Producer warps may be among the threads.
    std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(move |&n| n <= most)
}

pub fn with_warps(func: &TileFunc, warps: u32) -> TileFunc {
    let mut func = func.clone();
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let mut config: Attrs = config.cloned().unwrap_or_default();
    config.set("num_warps", Attr::Int(warps.into()));
    func.attrs.set("config", Attr::Dict(config));
    func
}

/// Copies the user's requests to the staged function.
pub fn take_config(staged: &mut StagedFunc, func: &TileFunc) {
    match func.attrs.get("config") {
        Some(config) => staged.attrs.set("config", config.clone()),
        None => {
            staged.attrs.remove("config");
        }
    }
}
