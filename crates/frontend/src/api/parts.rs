//! Tiles in parts: concatenation, splitting, turning around, elements by position.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.concat" "(tiles, axis=0)" Call(concat), "Tiles one after another along an axis: a tuple of tiles whose other extents agree.";
    Group "tile.stack" "(tiles, axis=0)" Call(stack), "Tiles of one shape as a tile with one more axis.";
    Group "tile.split" "(x, sections, axis=0)" Call(split), "A tuple of parts: `sections` equal ones, or those between the positions of a tuple, as NumPy's.";
    Group "tile.flip" "(x, axis=None)" Call(flip), "The elements in reverse along an axis, or along all.";
    Group "tile.roll" "(x, shift, axis=None)" Call(roll), "The elements moved by `shift` along an axis, or along each of a tuple of axes; those that leave at one end enter at the other. Without an axis, in row-major order.";
    Group "tile.take_along_axis" "(x, indices, axis)" Call(take_along_axis), "Elements by a tile of positions along an axis, which has the rank of `x`; a position outside gives zero. `x[ids]` takes whole rows.";
};

/// An axis of a tile of this rank, from 0 or from -1 at the end.
pub fn axis_of(e: &mut Elab<'_>, v: &Val, rank: usize) -> Option<usize> {
    let rank = rank as i64;
    if let Val::Tuple(items) = v {
        if let [one] = &items[..] {
            return axis_of(e, one, rank as usize);
        }
        let n = items.len();
        e.error_help(
            Code::E_ARGUMENT,
            format!("expected one axis, got a tuple of {n}"),
            "call the function for one axis after another, or reshape the tile so that the axes are one",
        );
        return None;
    }
    match v.as_const_int().filter(|a| (-rank..rank).contains(a)) {
        Some(a) => Some(a.rem_euclid(rank) as usize),
        None => {
            let what = e.describe(v);
            e.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected an axis below {rank}, got {what}"),
                format!(
                    "axes count from 0, or from -1 at the end: `axis=-1` is the last of {rank}"
                ),
            );
            None
        }
    }
}

/// The operand as a tile.
pub fn tile_of(e: &mut Elab<'_>, v: &Val, what: &str) -> Option<Value> {
    let value = e.runtime(v)?;
    if e.ty(value).rank() == 0 {
        let got = e.describe(&Val::Rt(value));
        e.error_help(
            Code::E_TYPE,
            format!("expected a tile {what}, got {got}"),
            "a slice is a tile: x[start:start + 16]",
        );
        return None;
    }
    Some(value)
}

/// The tiles of a tuple, in the dtype that all promote to.
fn tiles_of(e: &mut Elab<'_>, args: &Args, what: &str) -> Option<Vec<Value>> {
    let items = match args.get("tiles") {
        Val::Tuple(items) if !items.is_empty() => items,
        other => {
            let got = e.describe(&other);
            e.error_help(
                Code::E_TYPE,
                format!("expected a tuple of tiles {what}, got {got}"),
                "write the tiles in parentheses: ts.tile.concat((a, b), axis=0)",
            );
            return None;
        }
    };
    let values: Option<Vec<Value>> = items.iter().map(|v| tile_of(e, v, what)).collect();
    let values = values?;
    let dtype = e.ty(values[0]).dtype();
    if let Some(&other) = values.iter().find(|&&v| e.ty(v).dtype() != dtype) {
        let got = e.ty(other).dtype();
        e.error_help(
            Code::E_TYPE,
            format!("expected tiles of one dtype {what}, got {dtype} and {got}"),
            format!("cast one of them: ts.tile.cast(t, ts.{dtype})"),
        );
        return None;
    }
    Some(values)
}

fn concat(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(parts) = tiles_of(e, args, "to put together") else { return Val::Poison };
    let rank = e.ty(parts[0]).rank();
    let given = args.get("axis");
    let given = if given == Val::None { Val::int(0) } else { given };
    let Some(axis) = axis_of(e, &given, rank) else { return Val::Poison };
    joined(e, &parts, axis)
}

pub fn joined(e: &mut Elab<'_>, parts: &[Value], axis: usize) -> Val {
    let first = e.ty(parts[0]).clone();
    let mut dims = first.shape().to_vec();
    let mut extent = Some(0);
    for &part in parts {
        let ty = e.ty(part).clone();
        let agrees = ty.rank() == first.rank()
            && (0..first.rank()).all(|d| d == axis || ty.shape()[d].may_equal(&dims[d]));
        if !agrees {
            let shown = (show_shape(first.shape()), show_shape(ty.shape()));
            return e.error_help(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected tiles that agree but for axis {axis}, got {} and {}",
                    shown.0, shown.1
                ),
                "reshape or slice one of them first",
            );
        }
        extent = extent
            .zip(ty.shape()[axis].as_static())
            .and_then(|(a, b): (i64, i64)| a.checked_add(b));
    }
    dims[axis] = extent.map_or(Dim::Any, Dim::Static);
    if let [only] = parts {
        return Val::Rt(*only);
    }
    let spec = OpSpec::new(TileOp::Concat, &[])
        .group("parts", parts)
        .attr("axis", Attr::Int(axis as i64))
        .result(Type::value(dims, first.dtype()));
    e.b().value(spec).map_or(Val::Poison, Val::Rt)
}

fn stack(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(parts) = tiles_of(e, args, "to stack") else { return Val::Poison };
    let rank = e.ty(parts[0]).rank();
    let given = args.get("axis");
    let given = if given == Val::None { Val::int(0) } else { given };
    let Some(axis) = axis_of(e, &given, rank + 1) else { return Val::Poison };
    let shape = e.ty(parts[0]).shape().to_vec();
    let differs = |e: &Elab<'_>, v: Value| {
        let got = e.ty(v).shape();
        got.len() != rank || got.iter().zip(&shape).any(|(a, b)| !a.may_equal(b))
    };
    if let Some(&other) = parts.iter().find(|&&v| differs(e, v)) {
        let shown = (show_shape(&shape), show_shape(e.ty(other).shape()));
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected tiles of one shape to stack, got {} and {}", shown.0, shown.1),
            "ts.tile.concat puts tiles of different extents together along an axis",
        );
    }
    let parts: Vec<Value> = parts.into_iter().map(|p| e.b().expand(p, axis)).collect();
    joined(e, &parts, axis)
}

/// The part of a tile from one position of an axis to another.
fn part(e: &mut Elab<'_>, x: Value, axis: usize, from: i64, extent: Dim) -> Value {
    let mut dims = e.ty(x).shape().to_vec();
    dims[axis] = extent;
    let mut start = vec![0; dims.len()];
    start[axis] = from;
    let step = vec![1; dims.len()];
    e.slice_value(x, &start, &step, dims)
}

fn split(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(x) = tile_of(e, &args.get("x"), "to split") else { return Val::Poison };
    let rank = e.ty(x).rank();
    let given = args.get("axis");
    let given = if given == Val::None { Val::int(0) } else { given };
    let Some(axis) = axis_of(e, &given, rank) else { return Val::Poison };
    let size = e.ty(x).shape()[axis].as_static();
    let sections = args.get("sections");
    let places: Option<Vec<i64>> = match &sections {
        Val::Tuple(items) => items.iter().map(Val::as_const_int).collect(),
        v => match (v.as_const_int().filter(|n| *n > 0), size) {
            (Some(n), Some(size)) if size % n == 0 => {
                Some((1..n).map(|i| i * (size / n)).collect())
            }
            (Some(n), Some(size)) => {
                return e.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!("expected an axis of {n} equal parts, got extent {size}"),
                    "give the positions where the parts begin: ts.tile.split(x, (4, 12))",
                );
            }
            // While checking, nothing but the number of parts is known.
            (Some(n), None) => {
                let parts = (0..n).map(|_| Val::Rt(part(e, x, axis, 0, Dim::Any))).collect();
                return Val::Tuple(parts);
            }
            (None, _) => None,
        },
    };
    let Some(places) = places else {
        let what = e.describe(&sections);
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected a number of equal parts or a tuple of positions, got {what}"),
            "write ts.tile.split(x, 2) or ts.tile.split(x, (4, 12)), with compile-time integers",
        );
    };
    let Some(size) = size else {
        let parts = (0..=places.len()).map(|_| Val::Rt(part(e, x, axis, 0, Dim::Any))).collect();
        return Val::Tuple(parts);
    };
    let mut bounds = vec![0];
    bounds.extend(&places);
    bounds.push(size);
    if bounds.windows(2).any(|w| w[1] < w[0]) {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected ascending positions from 0 to {size} to split at, got {places:?}"),
            "each part begins where the one before it ends",
        );
    }
    let parts =
        bounds.windows(2).map(|w| Val::Rt(part(e, x, axis, w[0], Dim::Static(w[1] - w[0]))));
    Val::Tuple(parts.collect())
}

/// A tile with the elements in reverse along these axes.
pub fn flipped(e: &mut Elab<'_>, x: Value, axes: &[usize]) -> Value {
    let dims = e.ty(x).shape().to_vec();
    let (mut start, mut step) = (vec![0; dims.len()], vec![1; dims.len()]);
    for &axis in axes {
        start[axis] = dims[axis].as_static().map_or(0, |n| (n - 1).max(0));
        step[axis] = -1;
    }
    e.slice_value(x, &start, &step, dims)
}

fn flip(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(x) = tile_of(e, &args.get("x"), "to flip") else { return Val::Poison };
    let rank = e.ty(x).rank();
    let axes = match args.get("axis") {
        Val::None => Some((0..rank).collect()),
        Val::Tuple(items) => items.iter().map(|v| axis_of(e, v, rank)).collect(),
        v => axis_of(e, &v, rank).map(|a| vec![a]),
    };
    let Some(axes): Option<Vec<usize>> = axes else { return Val::Poison };
    Val::Rt(flipped(e, x, &axes))
}

fn roll(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(x) = tile_of(e, &args.get("x"), "to roll") else { return Val::Poison };
    let ty = e.ty(x).clone();
    let (axes, shifts) = match (args.get("axis"), args.get("shift")) {
        (Val::Tuple(axes), Val::Tuple(shifts)) => (axes, shifts),
        (Val::Tuple(axes), shift) => {
            let shifts = vec![shift; axes.len()];
            (axes, shifts)
        }
        (axis, Val::Tuple(shifts)) => (vec![axis], shifts),
        (axis, shift) => (vec![axis], vec![shift]),
    };
    if axes.len() != shifts.len() {
        let (n, m) = (axes.len(), shifts.len());
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected one shift for each axis, got {m} shifts for {n} of them"),
            "write ts.tile.roll(x, (1, 2), axis=(0, 1)), or one shift for all axes",
        );
    }
    if axes == [Val::None] {
        let flat = e.flattened(x);
        let Some(v) = rolled(e, flat, 0, &shifts[0]) else { return Val::Poison };
        if ty.rank() == 1 {
            return Val::Rt(v);
        }
        let spec = OpSpec::new(TileOp::Reshape, &[v]).result(ty);
        return e.b().value(spec).map_or(Val::Poison, Val::Rt);
    }
    let mut out = x;
    for (axis, shift) in axes.iter().zip(&shifts) {
        let Some(axis) = axis_of(e, axis, ty.rank()) else { return Val::Poison };
        let Some(v) = rolled(e, out, axis, shift) else { return Val::Poison };
        out = v;
    }
    Val::Rt(out)
}

/// A tile moved along one axis, by any integer.
fn rolled(e: &mut Elab<'_>, x: Value, axis: usize, shift: &Val) -> Option<Value> {
    let extent = e.ty(x).shape()[axis].clone();
    let known = match shift {
        Val::Const(Const::Int(shift)) => Some(*shift),
        other => other.as_const_int().map(i128::from),
    };
    if let (Some(shift), Some(size)) = (known, extent.as_static().filter(|n| *n > 0)) {
        let by = shift.rem_euclid(size.into()) as i64;
        if by == 0 {
            return Some(x);
        }
        let end = part(e, x, axis, size - by, Dim::Static(by));
        let front = part(e, x, axis, 0, Dim::Static(size - by));
        return match joined(e, &[end, front], axis) {
            Val::Rt(v) => Some(v),
            _ => None,
        };
    }
    // position - shift, modulo the extent. The shift is reduced in its own type, which holds it.
    e.index_value(shift)?;
    let size = crate::elab::names::dim_val(&extent);
    let shift = e.binary(ScalarFn::Mod, shift.clone(), size.clone());
    let shift = e.index_value(&shift)?;
    let Val::Rt(counted) = super::iota(e, &extent) else { return None };
    let counted = Val::Rt(e.b().cast(counted, DType::I64));
    let from = e.binary(ScalarFn::Sub, counted, Val::Rt(shift));
    let Val::Rt(index) = e.binary(ScalarFn::Mod, from, size) else { return None };
    e.take_rows(x, index, axis)
}

fn take_along_axis(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(x) = tile_of(e, &args.get("x"), "to take elements of") else { return Val::Poison };
    let Some(index) = tile_of(e, &args.get("indices"), "of positions") else { return Val::Poison };
    let (of, at) = (e.ty(x).clone(), e.ty(index).clone());
    let Some(axis) = axis_of(e, &args.get("axis"), of.rank()) else { return Val::Poison };
    if !at.dtype().is_int() {
        let what = e.describe(&Val::Rt(index));
        return e.error_help(
            Code::E_TYPE,
            format!("expected positions of an integer dtype, got {what}"),
            "cast them: ts.tile.cast(ids, ts.i32)",
        );
    }
    let agrees = at.rank() == of.rank()
        && (0..of.rank()).all(|d| {
            d == axis || at.shape()[d].may_equal(&of.shape()[d]) || at.shape()[d].is_one()
        });
    if !agrees {
        let shown = (show_shape(of.shape()), show_shape(at.shape()));
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected positions that agree with {} but for axis {axis}, got {}",
                shown.0, shown.1
            ),
            "`x[ids]` takes whole rows by positions of rank 1",
        );
    }
    let mut dims = of.shape().to_vec();
    dims[axis] = at.shape()[axis].clone();
    let index = e.b().broadcast(index, dims);
    e.take_value(x, index, axis).map_or(Val::Poison, Val::Rt)
}

/// Whether a value is true at compile time.
pub fn is_true(v: &Val) -> bool {
    matches!(v, Val::Const(Const::Bool(true)))
}
