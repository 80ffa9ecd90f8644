//! Layout seeds: the ops that prefer a layout. Memory accesses want contiguous elements in a thread
//! (coalescing), MMAs and ordered sums have layouts of their own. The highest-priority seed wins.

use super::layouts::{inverse, permutation};
use super::threads::{Team, elements};
use super::tile_ops::combined;
use super::{MatrixRow, Staging};
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_layout::Layout;
use tessera_numerics::{DType, Profile};
use tessera_target::arrays::ArrayClass;
use tessera_tile::ops::mma::is_promoted;
use tessera_tile::{TileFunc, TileOp};

/// A layout preference for a value.
pub struct Seed {
    pub value: Value,
    pub layout: Layout,
    /// The larger priority comes first.
    pub weight: (u8, u64),
}

pub fn extents(ty: &Type) -> Vec<u32> {
    ty.static_shape().unwrap_or_default().iter().map(|&d| d.max(1) as u32).collect()
}

/// All seeds, the highest priority first, those of one priority in program order.
pub fn seeds(func: &TileFunc, staging: &Staging<'_>, team: Team) -> Vec<Seed> {
    let mut out = Vec::new();
    for id in func.walk() {
        let op = &func.ops[id];
        match op.code {
            TileOp::Mma => {
                let value = op.result();
                let layout = product(func, staging, team, id).1;
                out.push(Seed { value, layout, weight: (3, elements(func.ty(value))) });
            }
            TileOp::Reduce if is_ordered(func, staging, id) => {
                let value = op.operands[0];
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let layout = canonical(&extents(func.ty(value)), axis, team);
                out.push(Seed { value, layout, weight: (2, elements(func.ty(value))) });
            }
            TileOp::ReduceBy | TileOp::ScanBy => {
                let value = op.operands[0];
                if let Some(layout) = combined(func, staging, team, id) {
                    out.push(Seed { value, layout, weight: (2, elements(func.ty(value))) });
                }
            }
            TileOp::Load | TileOp::Store | TileOp::Accumulate => {
                let value = op
                    .results
                    .first()
                    .copied()
                    .unwrap_or(op.operands.get(1).copied().unwrap_or(op.operands[0]));
                if let Type::Tile { .. } = func.ty(value) {
                    let layout = access(func, staging, team, id, value);
                    let bytes = func.ty(op.operands[0]).dtype().bytes() as u64;
                    let weight = (1, elements(func.ty(value)) * bytes);
                    out.push(Seed { value, layout, weight });
                }
            }
            _ => {}
        }
    }
    // Values without a seed.
    for id in func.walk() {
        for &value in &func.ops[id].results {
            if let Type::Tile { .. } = func.ty(value) {
                let layout = plain(&extents(func.ty(value)), team);
                out.push(Seed { value, layout, weight: (0, elements(func.ty(value))) });
            }
        }
    }
    out.sort_by_key(|seed| std::cmp::Reverse(seed.weight));
    out
}

/// Whether a reduction keeps the canonical order.
pub fn is_ordered(func: &TileFunc, staging: &Staging<'_>, id: OpId) -> bool {
    let op = &func.ops[id];
    op.code == TileOp::Reduce
        && staging.profile == Profile::Strict
        && func.ty(op.operands[0]).dtype().is_float()
        && matches!(op.attr("op").and_then(Attr::as_word), Some("sum" | "add" | "prod"))
}

/// The dim that blocks of a cluster divide: the longest.
fn shared_dim(shape: &[u32], team: Team) -> Option<usize> {
    (team.blocks > 1)
        .then(|| (0..shape.len()).max_by_key(|&d| shape[d]))
        .flatten()
        .filter(|&d| shape[d] >= team.blocks * 32)
}

/// The last dim contiguous.
pub fn plain(shape: &[u32], team: Team) -> Layout {
    let last = shape.len().checked_sub(1);
    Layout::coalesced(shape, last, 4, team.warps, team.blocks, shared_dim(shape, team))
}

/// The contiguous axis of the memory, as a dim of the tile.
pub fn contiguous_dim(func: &TileFunc, staging: &Staging<'_>, id: OpId) -> Option<usize> {
    let op = &func.ops[id];
    let param = func.params().iter().position(|&p| p == op.operands[0])?;
    let class = staging.classes[param];
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let axes = (0..extent.len()).filter(|&a| extent[a] != 0);
    axes.enumerate().find(|&(_, axis)| class.is_contiguous(axis)).map(|(dim, _)| dim)
}

/// For a tile that is transposed between its load and its store: the dim of the tile that is
/// contiguous at the other end, where it is not the one that is contiguous at this end.
pub fn turned(func: &TileFunc, staging: &Staging<'_>, id: OpId) -> Option<usize> {
    let op = &func.ops[id];
    let own = contiguous_dim(func, staging, id)?;
    let loads = op.code == TileOp::Load;
    let value = if loads { op.result() } else { *op.operands.get(1)? };
    // Values between load and store, each with its dims as those of the first.
    let mut seen = vec![(value, (0..func.ty(value).rank()).collect::<Vec<_>>())];
    let mut next = 0;
    while let Some((v, dims)) = seen.get(next).cloned() {
        next += 1;
        let ops: Vec<OpId> = match loads {
            true => {
                func.walk().into_iter().filter(|&o| func.ops[o].operands.contains(&v)).collect()
            }
            false => func.def_id(v).into_iter().collect(),
        };
        for at in ops {
            let op = &func.ops[at];
            let (there, same): (Vec<Value>, _) = match op.code {
                TileOp::Load if !loads => (Vec::new(), contiguous_dim(func, staging, at)),
                TileOp::Store if loads && op.operands[1] == v => {
                    (Vec::new(), contiguous_dim(func, staging, at))
                }
                TileOp::Ew(_) | TileOp::Cast | TileOp::Select | TileOp::Bitcast => {
                    (if loads { op.results.clone() } else { op.operands.clone() }, None)
                }
                TileOp::Transpose => {
                    let perm = permutation(op.attr("perm"));
                    let perm = if loads { perm } else { inverse(&perm) };
                    let new = if loads { op.result() } else { op.operands[0] };
                    let turned = perm.iter().map(|&p| dims[p]).collect();
                    if !seen.iter().any(|(v, _)| *v == new) {
                        seen.push((new, turned));
                    }
                    continue;
                }
                _ => continue,
            };
            if let Some(dim) = same.map(|d| dims[d]).filter(|&d| d != own) {
                return Some(dim);
            }
            for new in there {
                let rank = func.ty(new).rank() == dims.len();
                if rank && func.ty(new).is_tile() && !seen.iter().any(|(v, _)| *v == new) {
                    seen.push((new, dims.clone()));
                }
            }
        }
    }
    None
}

/// Bytes of the elements that a function transposes between memory and memory, if it does.
pub fn turned_bytes(func: &TileFunc, staging: &Staging<'_>) -> Option<u32> {
    let is_access = |&id: &OpId| matches!(func.ops[id].code, TileOp::Load | TileOp::Store);
    let accesses = func.walk().into_iter().filter(is_access);
    let bytes = |id: OpId| func.ty(func.ops[id].operands[0]).dtype().bytes() as u32;
    accesses.filter(|&id| turned(func, staging, id).is_some()).map(bytes).max()
}

/// The layout that an access should have, where the tile's own would waste most of each
/// transaction.
pub fn better_access(
    func: &TileFunc,
    staging: &Staging<'_>,
    team: Team,
    id: OpId,
    value: Value,
    own: &Layout,
) -> Option<Layout> {
    // Blocks of a cluster do not exchange tiles. Beside asynchronous MMAs' pipelines there is no
    // shared memory for it.
    if team.blocks > 1 || !staging.caps.async_mma.is_empty() {
        return None;
    }
    let dim = contiguous_dim(func, staging, id)?;
    let bytes = func.ty(func.ops[id].operands[0]).dtype().bytes() as u32;
    let best = access(func, staging, team, id, value);
    let widest = 16 / bytes.min(16);
    (useful(own, dim, bytes, widest) < 0.6 * useful(&best, dim, bytes, widest)).then_some(best)
}

/// The fraction of the 32-byte sectors touched by a warp's access, of up to `widest` elements a
/// thread, that was requested.
pub fn useful(layout: &Layout, dim: usize, bytes: u32, widest: u32) -> f64 {
    let vector = layout.run_along(dim).min(widest).max(1);
    let mut sectors = std::collections::BTreeSet::new();
    let mut elements = std::collections::BTreeSet::new();
    for lane in 0..32 {
        for reg in 0..vector {
            let mut at = layout.coords(reg, lane, 0, 0);
            elements.insert(at.clone());
            at[dim] = at[dim] * bytes / 32;
            sectors.insert(at);
        }
    }
    (elements.len() as u32 * bytes) as f64 / (sectors.len() * 32) as f64
}

/// Whether elements are too misaligned for any vector access.
fn is_rough(class: ArrayClass, bytes: u32) -> bool {
    bytes < 4 && class.align < 4
}

/// Whether tiles are stored where no vector access is possible.
fn writes_roughly(func: &TileFunc, staging: &Staging<'_>) -> bool {
    func.walk().into_iter().any(|id| {
        let op = &func.ops[id];
        let writes = matches!(op.code, TileOp::Store | TileOp::Accumulate);
        let param =
            writes.then(|| func.params().iter().position(|&p| p == op.operands[0])).flatten();
        let bytes = |p: usize| func.ty(func.params()[p]).dtype().bytes() as u32;
        param.is_some_and(|p| is_rough(staging.classes[p], bytes(p)))
    })
}

/// The widest access that the memory allows.
fn access(func: &TileFunc, staging: &Staging<'_>, team: Team, id: OpId, value: Value) -> Layout {
    let op = &func.ops[id];
    let shape = extents(func.ty(value));
    let Some(param) = func.params().iter().position(|&p| p == op.operands[0]) else {
        return plain(&shape, team);
    };
    let class = staging.classes[param];
    let bytes = func.ty(op.operands[0]).dtype().bytes() as u32;
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    // The memory's axis of each dim of the tile.
    let axes: Vec<usize> = (0..extent.len()).filter(|&a| extent[a] != 0).collect();
    let dim = axes.iter().position(|&axis| class.is_contiguous(axis));
    let widest = 16 / bytes.min(16);
    // Misaligned rows are loaded as aligned vectors and shifted into place. Misaligned stores want
    // each element in a thread of its own.
    let shifts =
        op.code == TileOp::Load && is_rough(class, bytes) && !writes_roughly(func, staging);
    let vector = if shifts { widest } else { (class.align.max(bytes) / bytes).clamp(1, widest) };
    let dims = shared_dim(&shape, team);
    match dim {
        Some(dim) => {
            // As many rows of vectors as a vector along the other dim has elements.
            let beside = turned(func, staging, id).map(|other| (other, 16 / bytes.min(16)));
            let (warps, blocks) = (team.warps, team.blocks);
            Layout::coalesced_beside(&shape, Some(dim), vector, beside, warps, blocks, dims)
        }
        None => {
            Layout::coalesced(&shape, shape.len().checked_sub(1), 1, team.warps, team.blocks, dims)
        }
    }
}

/// How warps divide an MMA's rows and columns: about as many of either for each warp.
fn divide(m: u32, n: u32, warps: u32, atom: (u32, u32)) -> [u32; 2] {
    let (mut wm, mut wn) = (1, 1);
    while wm * wn < warps {
        let (rows, cols) = (m / (wm * atom.0).max(1), n / (wn * atom.1).max(1));
        if rows * atom.0 >= cols * atom.1 && rows >= 2 || cols < 2 {
            wm *= 2;
        } else {
            wn *= 2;
        }
    }
    [wm, wn]
}

/// Whether whole rows of an MMA's accumulator are wanted in one warp: they are reduced along rows,
/// or are the left operand of another MMA, whose rows are then the same.
fn wants_rows(func: &TileFunc, id: OpId) -> bool {
    let same = |code: TileOp| matches!(code, TileOp::Ew(_) | TileOp::Cast | TileOp::Select);
    let mut seen = vec![func.ops[id].result()];
    let mut next = 0;
    while let Some(&v) = seen.get(next) {
        next += 1;
        for user in func.walk() {
            let op = &func.ops[user];
            let Some(at) = op.operands.iter().position(|&o| o == v) else { continue };
            let along = op.attr("axis").and_then(Attr::as_int) == Some(1);
            match op.code {
                TileOp::Reduce | TileOp::ArgReduce | TileOp::Scan if along => return true,
                TileOp::Mma if at == 0 => return true,
                code if same(code) && !seen.contains(&op.result()) => seen.push(op.result()),
                _ => {}
            }
        }
    }
    // From the operand's side.
    let mut open = vec![func.ops[id].operands[0]];
    while let Some(op) = open.pop().and_then(|v| func.def(v)) {
        match op.code {
            TileOp::Mma => return true,
            code if same(code) => open.extend(&op.operands),
            _ => {}
        }
    }
    false
}

/// How the warps divide an MMA.
fn divided(func: &TileFunc, id: OpId, team: Team, two: [u32; 2]) -> [u32; 2] {
    if wants_rows(func, id) && two[0].is_multiple_of(16 * team.warps) {
        return [team.warps, 1];
    }
    divide(two[0], two[1], team.warps, (16, 8))
}

/// The MMA instruction, if one is used.
pub fn matrix(func: &TileFunc, staging: &Staging<'_>, id: OpId) -> Option<MatrixRow> {
    let op = &func.ops[id];
    let [a, b] = [0, 1].map(|i| func.ty(op.operands[i]).dtype());
    let ty = func.ty(op.result());
    let shape = extents(ty);
    let k = extents(func.ty(op.operands[0]))[1];
    // Tensor cores accumulate 8-bit floats with too few bits for the class `f32`.
    let whole = op.attr("class").and_then(Attr::as_word) == Some("f32");
    let [a, b] = match is_promoted(a, None) && whole {
        true => [DType::F16; 2],
        false => [a, b],
    };
    staging.matrix(a, b, ty.dtype()).filter(|row| {
        shape[0].is_multiple_of(16) && shape[1].is_multiple_of(8) && k.is_multiple_of(row.k)
    })
}

/// The layout of an MMA's accumulator, and the MMA instruction if one is used.
pub fn product(
    func: &TileFunc,
    staging: &Staging<'_>,
    team: Team,
    id: OpId,
) -> (Option<MatrixRow>, Layout) {
    let op = &func.ops[id];
    let ty = func.ty(op.result());
    let shape = extents(ty);
    let two = [shape[0], shape[1]];
    if let Some(layout) = super::async_mma::sums(staging, team, &two) {
        return (None, layout);
    }
    let row = matrix(func, staging, id);
    match row {
        Some(row) if ty.dtype() == DType::F64 => {
            // Rows that are 8 apart stay in a warp: some targets have MMAs of 16 rows.
            let warps = divided(func, id, team, two);
            let whole = two[0].is_multiple_of(16 * warps[0]) && two[1].is_multiple_of(8 * warps[1]);
            let powers = two[0].is_power_of_two() && two[1].is_power_of_two();
            let layout = match whole && powers {
                true => Layout::mma_acc_f64_blocks(&two, warps),
                false => Layout::mma_acc_f64(&two, warps),
            };
            (Some(row), layout)
        }
        Some(row) => {
            let warps = divided(func, id, team, two);
            let whole = two[0].is_multiple_of(16 * warps[0]) && two[1].is_multiple_of(8 * warps[1]);
            let powers = two[0].is_power_of_two() && two[1].is_power_of_two();
            let layout = if whole && powers {
                Layout::mma_acc_blocks(&two, warps)
            } else {
                Layout::mma_acc(&two, warps)
            };
            (Some(row), layout)
        }
        None => (None, super::lanes::sums(func, staging, team, id)),
    }
}

/// The layout of the canonical reduction: lanes along the lowest five bits of the axis, the next
/// bit in the lowest warp bit (or a register, with one warp), registers above, other warps above
/// those. Partial sums of every 64th element are in one thread, and later elements are in later
/// registers.
pub fn canonical(shape: &[u32], axis: usize, team: Team) -> Layout {
    let rank = shape.len();
    let unit = |n: u32| {
        let mut v = vec![0; rank];
        v[axis] = n;
        v
    };
    let lanes = (0..5).map(|i| unit(1 << i)).collect();
    let bits = team.warps.trailing_zeros();
    let blocks = vec![vec![0; rank]; team.blocks.trailing_zeros() as usize];
    let n = shape[axis];
    let mut warps: Vec<Vec<u32>> = Vec::new();
    let mut regs: Vec<Vec<u32>> = Vec::new();
    if bits == 0 {
        regs.push(unit(32));
    } else {
        warps.push(unit(32));
        // Other rows first, then the rest of the axis.
        let others: u64 = (0..rank).filter(|&d| d != axis).map(|d| u64::from(shape[d])).product();
        let along = n.div_ceil(64).next_power_of_two().trailing_zeros();
        let wanted = (bits - 1).min(if others == 1 { along } else { 0 });
        let held = along - wanted;
        if wanted > 0 {
            regs.extend((0..held).map(|i| unit(64 << i)));
            warps.extend((0..wanted).map(|i| unit(64 << (held + i))));
        }
        // The rest takes rows, or holds copies.
        let mut left = bits - 1 - wanted;
        let mut dims: Vec<usize> = (0..rank).filter(|&d| d != axis).collect();
        dims.sort_by_key(|&d| std::cmp::Reverse(shape[d]));
        for dim in dims {
            let room = shape[dim].next_power_of_two().trailing_zeros().min(left);
            for i in 0..room {
                let mut v = vec![0; rank];
                v[dim] = 1 << i;
                warps.push(v);
            }
            left -= room;
        }
        warps.extend((0..left).map(|_| vec![0; rank]));
    }
    Layout::tiled(shape, regs, lanes, warps, blocks).expect("every coordinate is covered")
}
