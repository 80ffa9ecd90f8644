//! The axes of a lane kernel. Lanes have one to three axes, and the last is the fastest: lane
//! `(r, c)` of a group of `lanes = [16, 32]` has the number `32 r + c` in it. The groups form a grid
//! with an axis for each, and lane `(i, j)` of the launch exists where `i` and `j` are below the
//! extents of `domain`.

use crate::TileFunc;
use crate::{Tile, TileOp};
use tessera_diag::Code;
use tessera_ir::{Attr, DimExpr, Level, Op, OpErrors, OpId};

/// The most axes that lanes have.
pub const MOST_LANE_AXES: usize = 3;

/// The extents of a group along each axis of its lanes; empty where the kernel does not say.
pub fn lane_extents(func: &TileFunc) -> Vec<i64> {
    match func.attrs.get("lanes") {
        Some(Attr::Int(n)) => vec![*n],
        Some(list) => list.as_ints().unwrap_or_default(),
        None => Vec::new(),
    }
}

/// How many axes the lanes have.
pub fn lane_axes(func: &TileFunc) -> usize {
    lane_extents(func).len().max(1)
}

/// The lanes of a group, where the kernel says how many.
pub fn lanes_of(func: &TileFunc) -> Option<i64> {
    let extents = lane_extents(func);
    (!extents.is_empty()).then(|| extents.iter().product())
}

/// How many lanes there are along each axis, where the kernel says or it was inferred.
pub fn domain_of(func: &TileFunc) -> Option<Vec<DimExpr>> {
    func.attrs.get("domain").and_then(Attr::as_extents)
}

/// The attribute `lanes`: one number, or a list of several.
pub fn lanes_attr(extents: &[i64]) -> Attr {
    Attr::extents(extents.iter().map(|&n| DimExpr::Const(n)))
}

/// The axis that a lane id is along; none of one that counts through all axes.
pub fn lane_axis<L: Level>(op: &Op<L>) -> Option<usize> {
    op.attr("axis").and_then(Attr::as_int).and_then(|a| usize::try_from(a).ok())
}

/// The groups along each axis, and the extents of the domain, for lanes in groups of `lanes`.
pub fn lane_grid(lanes: &[i64], domain: &[i64]) -> ([i64; 3], [i64; 3]) {
    let (mut grid, mut extents) = ([1; 3], [1; 3]);
    for (axis, (&n, &by)) in domain.iter().zip(lanes).enumerate().take(3) {
        extents[axis] = n;
        grid[axis] = n / by.max(1) + i64::from(n % by.max(1) != 0);
    }
    (grid, extents)
}

pub(crate) fn verify_lanes(func: &TileFunc, errors: &mut OpErrors) {
    let extents = lane_extents(func);
    if extents.len() > MOST_LANE_AXES {
        let got = extents.len();
        errors.structure(format!("expected lanes along 1 to {MOST_LANE_AXES} axes, got {got}"));
    }
    let axes = extents.len().max(1);
    if let Some(domain) = domain_of(func)
        && domain.len() != axes
    {
        let got = domain.len();
        errors.structure(format!(
            "expected `domain` to have an extent for each of {axes} axes of `lanes`, got {got}"
        ));
    }
}

/// An axis of the lanes. The number over the whole launch has no meaning where there are several.
pub(crate) fn verify_lane_id(func: &tessera_ir::Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let axes = lane_axes(func);
    match op.attr("axis").and_then(Attr::as_int) {
        Some(axis) if !(0..axes as i64).contains(&axis) => {
            let most = axes - 1;
            errors.shape(format!("expected an axis of the lanes from 0 to {most}, got {axis}"));
        }
        None if op.code == TileOp::LinearId && axes > 1 => errors.push(
            Code::E_ARGUMENT,
            format!("expected the axis of a lane id: the lanes have {axes} axes"),
        ),
        _ => {}
    }
}
