//! Which ops on parts of tiles a GPU has by itself, on tiles in registers, and with which layouts.
//! The others are expanded into shared buffers before staging (`tessera_tile::expand_parts_but`).

use super::passes::{Off, Step};
use super::seeds::{contiguous_dim, extents};
use super::threads::{Team, elements};
use super::{GpuCaps, Staging, pinned_warps};
use std::sync::Arc;
use tessera_ir::{Attr, Op, OpId, Value};
use tessera_layout::{Layout, Prefer};
use tessera_numerics::Profile;
use tessera_tile::{Tile, TileFunc, TileOp};

/// The longest axis that a thread scans alone, and the registers for it: where the order of a scan
/// is defined, no other thread takes part.
const LONGEST_FOLD: u32 = 64;
const FOLD_WORDS: u64 = 128;
/// The most elements of a thread that are sorted in registers: the code has as many instructions as
/// a thread has comparisons.
const MOST_OF_THREAD: u64 = 64;
/// Threads of a block where nobody requests more.
const MOST_THREADS: u64 = 256;
/// The most bins that are counted in scratch memory.
const MOST_BINS: i64 = 8192;

/// Whether an op on parts of tiles stays an op of Staged IR.
pub fn is_selected(func: &TileFunc, caps: &GpuCaps, profile: Profile, id: OpId) -> bool {
    let op = &func.ops[id];
    // Roles divide the tiles of kernels with MMAs by rules that these ops do not have.
    let multiplies = || func.walk().iter().any(|&o| func.ops[o].code == TileOp::Mma);
    let own = match op.code {
        TileOp::ReduceBy => true,
        TileOp::ScanBy => scans(func, profile, op),
        TileOp::Sort => {
            let n = elements(func.ty(op.operands[0]));
            let threads = pinned_warps(func).map_or(MOST_THREADS, |n| 32 * n.max(1) as u64);
            let fits = n * sort_bytes(func, profile, op) <= u64::from(caps.shared_per_block);
            fits && n <= threads * MOST_OF_THREAD
        }
        TileOp::Slice => cut_axis(func, op).is_some(),
        TileOp::Histogram => extents(func.ty(op.result()))[0] as i64 <= MOST_BINS,
        _ => false,
    };
    own && !Off::of(func).has(Step::TileOps) && !multiplies()
}

/// Bytes of shared memory for each element, where warps exchange them: two regions take turns, for
/// the elements (or their places) that threads fetch and for the entries of the network.
fn sort_bytes(func: &TileFunc, profile: Profile, op: &Op<Tile>) -> u64 {
    let dtype = func.ty(op.operands[0]).dtype();
    let word = (dtype.bytes() as u64).next_multiple_of(4);
    let used = |v: Value| func.walk().iter().any(|&o| func.ops[o].operands.contains(&v));
    let places = used(op.results[1]) || dtype.is_float() && profile == Profile::Strict;
    if places { word + (word + 4) } else { word + word }
}

fn scans(func: &TileFunc, profile: Profile, op: &Op<Tile>) -> bool {
    let len = extents(func.ty(op.operands[0]))[axis_of(op)];
    let reverse = op.attr("reverse").and_then(Attr::as_bool) == Some(true);
    // Padding would come first.
    if reverse && !len.is_power_of_two() {
        return false;
    }
    let words = |v: &Value| u64::from(len) * (func.ty(*v).dtype().bytes() as u64).div_ceil(4);
    let fold = || len <= LONGEST_FOLD && op.operands.iter().map(words).sum::<u64>() <= FOLD_WORDS;
    profile == Profile::Default || fold()
}

/// The axis of which a slice takes a single position, and all of the others; and that position.
pub fn cut_axis(func: &TileFunc, op: &Op<Tile>) -> Option<(usize, u32)> {
    let (from, to) = (extents(func.ty(op.operands[0])), extents(func.ty(op.result())));
    let start = op.attr("start").and_then(Attr::as_ints)?;
    let step = tessera_tile::ops::parts::slice_steps(op.attr("step"), from.len());
    let whole = |d: usize| from[d] == to[d] && start[d] == 0 && step[d] == 1;
    let cut: Vec<usize> = (0..from.len()).filter(|&d| !whole(d)).collect();
    match cut[..] {
        [axis] if to[axis] == 1 => Some((axis, start[axis] as u32)),
        _ => None,
    }
}

pub fn axis_of(op: &Op<Tile>) -> usize {
    op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize
}

/// The layout in which a reduction or scan by a function takes its tiles.
pub fn combined(func: &TileFunc, staging: &Staging<'_>, team: Team, id: OpId) -> Option<Layout> {
    let op = &func.ops[id];
    let axis = axis_of(op);
    let shape = extents(func.ty(op.operands[0]));
    let read = op.operands.iter().find_map(|&v| memory_dim(func, staging, v));
    let beside = read.filter(|&d| d != axis);
    let ordered = op.code == TileOp::ScanBy && staging.profile != Profile::Default;
    let prefer = match beside {
        _ if ordered => Prefer::Whole,
        Some(dim) => Prefer::Beside(dim),
        None => Prefer::Axis,
    };
    Layout::divided(&shape, axis, team.warps, prefer)
}

/// The dim of a tile that is contiguous in the memory that it comes from.
fn memory_dim(func: &TileFunc, staging: &Staging<'_>, v: Value) -> Option<usize> {
    let mut v = v;
    for _ in 0..16 {
        let id = func.def_id(v)?;
        let op = &func.ops[id];
        match op.code {
            TileOp::Load => return contiguous_dim(func, staging, id),
            TileOp::Ew(_) | TileOp::Cast | TileOp::Bitcast | TileOp::Select => {
                let same =
                    |&o: &Value| func.ty(o).is_tile() && func.ty(o).shape() == func.ty(v).shape();
                v = op.operands.iter().copied().find(same)?;
            }
            _ => return None,
        }
    }
    None
}

/// The layout in which a tile comes to `sort`, and that of the results.
pub fn sorted(had: &Arc<Layout>, axis: usize, team: Team) -> Option<(Arc<Layout>, Arc<Layout>)> {
    if let Some(up) = had.ascending(axis) {
        return Some((had.clone(), Arc::new(up)));
    }
    let own = Arc::new(Layout::divided(had.shape(), axis, team.warps, Prefer::Axis)?);
    Some((own.clone(), own))
}

/// The layout of one position of an axis: all threads that held others of it have copies.
pub fn position(layout: &Layout, axis: usize) -> Layout {
    layout.reduce(axis).expand(axis)
}
