//! Layout rules of ops. Data moves between threads only in `convert_layout`, `frag_load` and
//! `frag_store`, reductions, scans and MMAs; all tiles of any other op have one layout.

use crate::Staged;
use std::sync::Arc;
use tessera_ir::{Attr, Attrs, Func, OpErrors, OpId, Type, Value};
use tessera_layout::Layout;
use tessera_tile::TileOp;

/// Extents as layouts have them.
pub(crate) fn extents(ty: &Type) -> Vec<u32> {
    let extent = |d: i64| u32::try_from(d).unwrap_or(u32::MAX);
    ty.static_shape().unwrap_or_default().into_iter().map(extent).collect()
}

/// Whether a tile's layout, where it has one, is over the tile's own positions.
pub(crate) fn is_of_its_shape(ty: &Type) -> bool {
    ty.layout().is_none_or(|l| l.shape() == extents(ty))
}

/// The layout that an op which only rearranges, or reduces, gives its result. The op's own rules
/// on its axes hold.
#[deny(clippy::wildcard_enum_match_arm)]
pub(crate) fn follow(code: TileOp, layout: &Layout, attrs: &Attrs) -> Result<Arc<Layout>, String> {
    use TileOp::*;
    let axis = || attrs.get("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
    Ok(Arc::new(match code {
        Transpose => {
            let perm = attrs.get("perm").and_then(Attr::as_ints).unwrap_or_default();
            layout.transpose(&perm.iter().map(|&p| p as usize).collect::<Vec<_>>())
        }
        Expand => layout.expand(axis()),
        Reduce | ArgReduce | ReduceBy => layout.reduce(axis()),
        For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
        | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast
        | Bitcast | Reshape | Broadcast | Load | Store | Gather | Scatter | Accumulate
        | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce
        | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print | Assert | Scan | Ew(_)
        | Slice | Concat | Take | ScanBy | Sort | Histogram | Owned | Asm | AsmEffect => {
            return Err("expected an op whose result's layout follows from its operand's".into());
        }
    }))
}

#[deny(clippy::wildcard_enum_match_arm)]
pub(crate) fn check(func: &Func<Staged>, id: OpId, code: TileOp, errors: &mut OpErrors) {
    let op = &func.ops[id];
    // Another rule says so.
    if !op.operands.iter().chain(&op.results).all(|&v| is_of_its_shape(func.ty(v))) {
        return;
    }
    match code {
        TileOp::Ew(_)
        | TileOp::Select
        | TileOp::Cast
        | TileOp::Bitcast
        | TileOp::Philox
        | TileOp::Scan
        | TileOp::ScanBy
        | TileOp::Store
        | TileOp::Gather
        | TileOp::Scatter
        | TileOp::Accumulate
        | TileOp::Atomic
        | TileOp::Asm
        | TileOp::AsmEffect => {
            let all: Vec<_> = op.operands.iter().chain(&op.results).copied().collect();
            together(func, &all, errors);
        }
        TileOp::Broadcast => broadcast(func, id, errors),
        TileOp::Reshape => reshape(func, id, errors),
        // Inference says what the result's layout is.
        TileOp::Transpose | TileOp::Expand | TileOp::Reduce | TileOp::ArgReduce => {}
        // Any layout may be loaded into, and MMAs have layouts of their own for their operands.
        TileOp::Load | TileOp::Const | TileOp::Iota | TileOp::Mma => {}
        TileOp::For
        | TileOp::If
        | TileOp::While
        | TileOp::SlowPath
        | TileOp::Yield
        | TileOp::Return => {}
        TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin
        | TileOp::BufAlloc
        | TileOp::CopyAsync
        | TileOp::CopyCommit
        | TileOp::CopyWait
        | TileOp::Barrier
        | TileOp::GroupReduce
        | TileOp::GroupScan
        | TileOp::GroupBroadcast
        | TileOp::GroupShuffle
        | TileOp::Print
        | TileOp::Assert => {}
        TileOp::ReduceBy => reduce_by(func, id, errors),
        // They move elements from any layout to that of their results, which is one.
        TileOp::Slice | TileOp::Sort | TileOp::Histogram => together(func, &op.results, errors),
        // Not ops of Staged IR.
        TileOp::Concat | TileOp::Take | TileOp::Owned => {}
    }
}

/// Operands of one layout, and results of the one that it leaves.
fn reduce_by(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    together(func, &op.operands, errors);
    let Some(layout) = op.operands.first().and_then(|&v| func.ty(v).layout()) else { return };
    let Ok(wanted) = follow(TileOp::ReduceBy, layout, &op.attrs) else { return };
    let other =
        op.results.iter().map(|&v| func.ty(v)).find(|t| t.layout().is_some_and(|l| *l != wanted));
    if let Some(other) = other {
        errors.ty(format!("expected results of layout #{wanted}, got {other}"));
    }
}

/// All tiles among the values have one layout.
fn together(func: &Func<Staged>, values: &[Value], errors: &mut OpErrors) {
    let mut tiles = values.iter().map(|&v| func.ty(v)).filter(|t| t.is_tile());
    let Some(first) = tiles.next() else { return };
    if let Some(other) = tiles.find(|t| t.layout() != first.layout()) {
        errors.ty(format!("expected tiles of one layout, got {first} and {other}"));
    }
}

/// A tile is broadcast in place; a scalar is everywhere.
fn broadcast(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    if let (Some(had), Some(layout)) = (from.layout(), to.layout()) {
        let wanted = layout.broadcast_from(&extents(from));
        if **had != wanted {
            errors.ty(format!("expected an operand of layout #{wanted}, got {from}"));
        }
    }
}

/// The elements stay in their registers under another shape.
fn reshape(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    let (Some(had), Some(got)) = (from.layout(), to.layout()) else { return };
    match had.reshape(&extents(to)) {
        // Where elements cannot stay in their registers, they move to any layout.
        None => {}
        Some(wanted) if wanted != **got => {
            errors.ty(format!("expected a result of layout #{wanted}, got {to}"));
        }
        Some(_) => {}
    }
}
