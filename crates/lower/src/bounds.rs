//! `tile-bounds`, bounds check elimination: each load, store and accumulation says for each axis
//! whether it is known to stay `inside` its memory, or has to be `checked`.
//!
//! Input: no implicit origins; the grid or domain is stated where it is known. Output: every block
//! access has `bounds`. `inside` follows from compile-time facts: constants, static dims, the
//! static `grid` or `domain` of the function, and loops with static bounds; or from the memory
//! having as many positions as the grid has groups, by name. A launch with another grid than the
//! function's needs this pass again.
//! Must not: change what is read or written, or trust sizes known only at run time.

use crate::facts::reach;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Changed, Dim, Op, OpId, Opcode, Pass, PassContext, Value};
use tessera_tile::{Tile, TileFunc, TileOp, interval_of};

pub struct Bounds;

impl Pass<Tile> for Bounds {
    fn name(&self) -> &'static str {
        "tile-bounds"
    }

    fn run(&self, func: &mut TileFunc, _context: &mut PassContext) -> Result<Changed, Diagnostics> {
        let mut changed = Changed::No;
        for id in func.walk() {
            if !matches!(func.ops[id].code, TileOp::Load | TileOp::Store | TileOp::Accumulate) {
                continue;
            }
            let bounds = bounds_of(func, id);
            let op = &mut func.ops[id];
            if op.attr("bounds") != Some(&bounds) {
                op.attrs.set("bounds", bounds);
                let names: Vec<_> = op.code.info().attrs.iter().map(|a| a.name).collect();
                op.attrs.arrange(&names);
                changed = Changed::Yes;
            }
        }
        Ok(changed)
    }
}

fn bounds_of(func: &TileFunc, id: OpId) -> Attr {
    let op = &func.ops[id];
    let shape = func.ty(op.operands[0]).shape();
    let axes = op.group("at").iter().zip(shape).enumerate();
    Attr::words(axes.map(|(axis, (&at, dim))| {
        let start = interval_of(func, at);
        let end = start.hi.and_then(|h| h.checked_add(reach(op, axis)?));
        let inside = start.lo.is_some_and(|lo| lo >= 0)
            && end.zip(dim.as_static()).is_some_and(|(end, size)| end <= size);
        if inside || counts_groups(func, op, axis, at, dim) { "inside" } else { "checked" }
    }))
}

/// Whether one position is accessed along an axis, a group's coordinate, and the function's grid
/// has as many of these as the memory has positions: `x[row, :]` for every row.
fn counts_groups(func: &TileFunc, op: &Op<Tile>, axis: usize, at: Value, dim: &Dim) -> bool {
    let program = func.def(at).filter(|def| def.code == TileOp::ProgramId);
    let Some(of_grid) = program.and_then(|def| def.attr("axis")?.as_int()) else { return false };
    let grid = func.attrs.get("grid").and_then(Attr::as_exprs).unwrap_or_default();
    let extent = grid.get(of_grid as usize).cloned().map(Dim::from);
    reach(op, axis) == Some(1) && extent.as_ref() == Some(dim)
}
