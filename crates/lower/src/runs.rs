//! Gathers at consecutive positions become block loads, which are wide.
//!
//! `documents[k]` with `k` the positions `k0 … k0 + 127` is `documents[k0:k0 + 128]`; `bias[h, q,
//! k]` is a block of a matrix. Functions that users pass to kernels contain such gathers, because
//! they are given positions and not starts. In both forms elements outside read as zero.

use crate::facts::int_const;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// The most ops of one query.
const DEPTH: u32 = 16;

/// Positions along one axis of memory.
#[derive(Clone, Debug, Default, PartialEq)]
struct Positions {
    /// Scalars and a constant that the positions begin at: their sum.
    start: Vec<Value>,
    offset: i64,
    /// The axis of the tile along which they count up, and the number; one position where there is
    /// none.
    run: Option<(usize, i64)>,
}

/// Rewrites a gather as a load, where it is one; returns whether it did.
pub fn gathered(rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Gather || !op.group("other").is_empty() {
        return false;
    }
    let Some(shape) = func.ty(op.result()).static_shape() else { return false };
    let at: Option<Vec<Positions>> =
        op.group("at").iter().map(|&v| positions(func, v, DEPTH)).collect();
    let Some(at) = at else { return false };
    let axes: Vec<usize> = at.iter().filter_map(|p| p.run.map(|(axis, _)| axis)).collect();
    let whole = at.iter().all(|p| p.run.is_none_or(|(axis, n)| shape.get(axis) == Some(&n)));
    // Axes of memory in the order of the tile's: no transposition.
    if axes.is_empty() || !axes.is_sorted_by(|a, b| a < b) || !whole {
        return false;
    }
    let bounds = if op.attr("inbounds").is_some() { "inside" } else { "checked" };
    let mem = rw.get(op.operands[0]);
    let starts: Vec<Vec<Value>> =
        at.iter().map(|p| p.start.iter().map(|&v| rw.get(v)).collect()).collect();
    let mut build = rw.builder(into, op.loc.clone());
    let starts: Vec<Value> = starts
        .into_iter()
        .zip(&at)
        .map(|(scalars, p)| {
            let offset = (p.offset != 0 || scalars.is_empty()).then(|| build.index(p.offset));
            let all = scalars.into_iter().chain(offset);
            all.reduce(|a, b| build.ew(ScalarFn::Add, &[a, b])).expect("there is one")
        })
        .collect();
    let extent: Vec<i64> = at.iter().map(|p| p.run.map_or(0, |(_, n)| n)).collect();
    let ty =
        Type::value(tessera_tile::ops::memory::block_shape(&extent), func.ty(op.result()).dtype());
    let spec = OpSpec::new(TileOp::Load, &[mem])
        .group("at", &starts)
        .attr("extent", Attr::ints(extent.iter().copied()))
        .attr("bounds", Attr::words(extent.iter().map(|_| bounds)))
        .result(ty);
    let mut value = build.value(spec).expect("the type is given");
    for axis in (0..shape.len()).filter(|axis| !axes.contains(axis)) {
        value = build.expand(value, axis);
    }
    let wanted = func.ty(op.result());
    if build.func.ty(value) != wanted {
        value = build.broadcast(value, wanted.shape().to_vec());
    }
    rw.new.values[value].name = func.values[op.result()].name.clone();
    rw.set(op.result(), value);
    true
}

/// 64-bit positions as a start and a run.
fn positions(func: &TileFunc, v: Value, depth: u32) -> Option<Positions> {
    let depth = depth.checked_sub(1)?;
    let ty = func.ty(v);
    if let Type::Scalar(dtype) = ty {
        // Narrower positions could have wrapped.
        return match int_const(func, v) {
            Some(offset) => Some(Positions { offset, ..Positions::default() }),
            None if *dtype == DType::I64 => {
                Some(Positions { start: vec![v], ..Positions::default() })
            }
            None => None,
        };
    }
    let op = func.def(v)?;
    let of = |i: usize| positions(func, op.operands[i], depth);
    match op.code {
        TileOp::Iota => {
            let offset = op.attr("start").and_then(Attr::as_int)?;
            let n = ty.shape().first()?.as_static()?;
            Some(Positions { start: Vec::new(), offset, run: (n > 1).then_some((0, n)) })
        }
        TileOp::Cast if widens(func, op.operands[0], v) => of(0),
        // Only axes of one position are broadcast, along which nothing counts.
        TileOp::Broadcast => of(0),
        TileOp::Expand => {
            let axis = usize::try_from(op.attr("axis").and_then(Attr::as_int)?).ok()?;
            let mut found = of(0)?;
            if let Some((at, _)) = &mut found.run
                && *at >= axis
            {
                *at += 1;
            }
            Some(found)
        }
        TileOp::Ew(ScalarFn::Add) if ty.dtype() == DType::I64 => {
            let (a, b) = (of(0)?, of(1)?);
            let run = match (a.run, b.run) {
                (Some(_), Some(_)) => return None,
                (a, b) => a.or(b),
            };
            let start = a.start.into_iter().chain(b.start).collect();
            Some(Positions { start, offset: a.offset.checked_add(b.offset)?, run })
        }
        _ => None,
    }
}

/// Whether a cast keeps every position: to as many bits or more.
fn widens(func: &TileFunc, from: Value, to: Value) -> bool {
    let (from, to) = (func.ty(from).dtype(), func.ty(to).dtype());
    matches!((from, to), (DType::I32 | DType::I64, DType::I64))
}
