//! Conversion, selection and rearrangement of tiles.

use super::{Args, Handler::*, Rows, create, rows};
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type};
use tessera_numerics::DType;
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Any "tile.cast" "(x, dtype)" Call(cast), "Converts to a dtype: rounds to nearest even, saturates for fp8, fp6 and fp4 (a NaN becomes the largest number of fp6 and fp4, which have none); float to integer truncates.";
    Any "tile.bitcast" "(x, dtype)" Call(bitcast), "The same bits as another dtype of the same width.";
    Any "tile.where" "(cond, a, b)" Call(where_), "Takes `a` where the condition holds and `b` elsewhere.";
    Any "tile.select" "(cond, a, b)" Call(where_), "Another name for `where`.";
    Group "tile.transpose" "(x, axes=None)" Call(transpose), "Permutes the axes of a tile: axis `i` of the result is axis `axes[i]`; without `axes` their order is reversed.";
    Group "tile.reshape" "(x, shape)" Call(reshape), "The same elements in row-major order under another shape; one extent may be -1, which the others decide.";
    Group "tile.broadcast" "(x, shape)" Call(broadcast), "Stretches a scalar, or axes of extent 1, to a shape.";
    Group "tile.expand_dims" "(x, axis)" Call(expand_dims), "Inserts an axis of extent 1.";
    Any "cdiv" "(a, b)" Call(cdiv), "`ceil(a / b)` of integers: how many tiles of extent `b` cover `a`.";
};

fn cast(e: &mut Elab<'_>, args: &mut Args) -> Val {
    if let Val::Drawn(how) = args.get("dtype") {
        return super::rounding::cast_drawn(e, &args.get("x"), &how);
    }
    let Some(dtype) = create::dtype_of(e, args, "dtype", DType::F32) else { return Val::Poison };
    let policy = match args.get("dtype") {
        Val::Const(Const::DType(t)) => Some(t),
        _ => None,
    };
    let Some(v) = e.cast_source(&args.get("x"), dtype) else { return Val::Poison };
    if e.ty(v).dtype() == dtype && !e.weak.contains_key(&v) {
        return Val::Rt(v);
    }
    let ty = e.ty(v).with_dtype(dtype);
    let mut spec = OpSpec::new(TileOp::Cast, &[v]).result(ty);
    if let Some(mode) = policy.and_then(|p| p.round) {
        spec = spec.attr("round", Attr::word(mode.name()));
    }
    if let Some(sat) = policy.and_then(|p| p.saturate) {
        spec = spec.attr("saturate", Attr::Bool(sat));
    }
    finish(e, spec)
}

fn finish(e: &mut Elab<'_>, spec: OpSpec<tessera_tile::Tile>) -> Val {
    match e.b().value(spec) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}

fn bitcast(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(dtype) = create::dtype_of(e, args, "dtype", DType::I32) else { return Val::Poison };
    let Some(v) = e.runtime(&args.get("x")) else { return Val::Poison };
    let from = e.ty(v).dtype();
    if from.bits() != dtype.bits() {
        return e.error_help(
            Code::E_TYPE,
            format!(
                "expected a dtype of {} bits, got {dtype} of {} bits",
                from.bits(),
                dtype.bits()
            ),
            "ts.tile.cast converts the value to a dtype of another width",
        );
    }
    let ty = e.ty(v).with_dtype(dtype);
    finish(e, OpSpec::new(TileOp::Bitcast, &[v]).result(ty))
}

fn where_(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let cond = args.get("cond");
    if let Val::Const(Const::Bool(c)) = cond {
        return args.get(if c { "a" } else { "b" });
    }
    let Some(c) = e.runtime(&cond) else { return Val::Poison };
    if e.ty(c).dtype() != DType::Bool {
        let what = e.describe(&Val::Rt(c));
        return e.error_help(
            Code::E_TYPE,
            format!("expected a condition of dtype bool, got {what}"),
            "compare first: ts.tile.where(x > 0, a, b)",
        );
    }
    e.select(c, args.get("a"), args.get("b"))
}

fn transpose(e: &mut Elab<'_>, args: &mut Args) -> Val {
    if args.has("axes") {
        return permuted(e, args);
    }
    match e.runtime(&args.get("x")) {
        Some(v) if e.ty(v).rank() > 0 => e.transpose(v),
        Some(v) => Val::Rt(v),
        None => Val::Poison,
    }
}

fn permuted(e: &mut Elab<'_>, args: &Args) -> Val {
    let Some(v) = super::parts::tile_of(e, &args.get("x"), "to transpose") else {
        return Val::Poison;
    };
    let rank = e.ty(v).rank();
    let given = match args.get("axes") {
        Val::Tuple(items) => items,
        one => vec![one],
    };
    let axes: Option<Vec<usize>> =
        given.iter().map(|a| super::parts::axis_of(e, a, rank)).collect();
    let Some(axes) = axes else { return Val::Poison };
    let mut seen = axes.clone();
    seen.sort_unstable();
    if seen != (0..rank).collect::<Vec<_>>() {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected each of the {rank} axes once, got {axes:?}"),
            "write all axes in their new order: ts.tile.transpose(x, (1, 0))",
        );
    }
    let dims = axes.iter().map(|&a| e.ty(v).shape()[a].clone()).collect();
    let ty = Type::value(dims, e.ty(v).dtype());
    let perm = Attr::ints(axes.iter().map(|&a| a as i64));
    finish(e, OpSpec::new(TileOp::Transpose, &[v]).attr("perm", perm).result(ty))
}

/// A shape of which one extent may be -1: as many elements as are left.
fn shape_with_rest(e: &mut Elab<'_>, v: &Val, of: &[Dim]) -> Option<tessera_ir::Shape> {
    let items = match v {
        Val::Tuple(items) => items.clone(),
        one => vec![one.clone()],
    };
    let Some(open) = items.iter().position(|v| v.as_const_int() == Some(-1)) else {
        return create::shape_of(e, v);
    };
    if items.iter().filter(|v| v.as_const_int() == Some(-1)).count() > 1 {
        e.error_help(
            Code::E_SHAPE_MISMATCH,
            "expected -1 once in a shape, got it again",
            "write the other extent out",
        );
        return None;
    }
    let mut shape = Vec::new();
    for (place, v) in items.iter().enumerate() {
        shape.push(if place == open { Dim::Any } else { e.extent(v, "each extent of the shape")? });
    }
    let whole = of.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_static()?));
    let mut rest = shape.iter().enumerate().filter(|(i, _)| *i != open).map(|(_, d)| d);
    let others = rest.try_fold(1i64, |n, d| n.checked_mul(d.as_static()?));
    if let (Some(whole), Some(others)) = (whole, others) {
        if others == 0 || whole % others != 0 {
            e.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected extents that divide {whole} elements, got {others} beside -1"),
                "a reshape keeps the elements: the product of the extents must stay the same",
            );
            return None;
        }
        shape[open] = Dim::Static(whole / others);
    }
    Some(shape)
}

fn reshape(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(v) = e.runtime(&args.get("x")) else { return Val::Poison };
    let of = e.ty(v).shape().to_vec();
    let Some(shape) = shape_with_rest(e, &args.get("shape"), &of) else { return Val::Poison };
    let ty = e.ty(v).clone();
    if ty.rank() == 0 {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            "expected a tile to reshape, got a scalar",
            "make a tile of it: ts.tile.full(shape, value, dtype)",
        );
    }
    let count = |s: &[Dim]| s.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_static()?));
    if let (Some(a), Some(b)) = (count(ty.shape()), count(&shape))
        && a != b
    {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected a shape of {a} elements, got {} of {b}", show_shape(&shape)),
            "a reshape keeps the elements: the product of the extents must stay the same",
        );
    }
    finish(e, OpSpec::new(TileOp::Reshape, &[v]).result(Type::value(shape, ty.dtype())))
}

fn broadcast(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(shape) = create::shape_of(e, &args.get("shape")) else { return Val::Poison };
    let Some(v) = e.runtime(&args.get("x")) else { return Val::Poison };
    let from = e.ty(v).shape().to_vec();
    let fits = from.is_empty()
        || (from.len() == shape.len()
            && from.iter().zip(&shape).all(|(a, b)| a.is_one() || a.may_equal(b)));
    if !fits {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected a scalar or extents of 1 or the shape's, got {} to {}",
                show_shape(&from),
                show_shape(&shape)
            ),
            "put in axes of extent 1 first: x[:, None] or x[None, :]",
        );
    }
    Val::Rt(e.b().broadcast(v, shape))
}

fn expand_dims(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(v) = e.runtime(&args.get("x")) else { return Val::Poison };
    let rank = e.ty(v).rank() as i64;
    match args.get("axis").as_const_int().filter(|a| (-rank - 1..=rank).contains(a)) {
        Some(a) if rank > 0 => Val::Rt(e.b().expand(v, a.rem_euclid(rank + 1) as usize)),
        _ => e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected an axis from 0 to {rank} of a tile"),
            "write a compile-time integer, or x[:, None] and x[None, :]",
        ),
    }
}

fn cdiv(e: &mut Elab<'_>, args: &mut Args) -> Val {
    use tessera_ir::{DimExpr, DimOp};
    use tessera_numerics::ScalarFn;
    let expr = |v: &Val| match v {
        Val::Dim(d) => Some(d.clone()),
        v => v.as_const_int().map(DimExpr::Const),
    };
    let (a, b) = (args.get("a"), args.get("b"));
    if let (Some(x), Some(y)) = (expr(&a), expr(&b)) {
        return match DimExpr::bin(DimOp::CeilDiv, x, y) {
            DimExpr::Const(v) => Val::int(v),
            d => Val::Dim(d),
        };
    }
    let neg = e.unary(ScalarFn::Neg, a);
    let quotient = e.binary(ScalarFn::FloorDiv, neg, b);
    e.unary(ScalarFn::Neg, quotient)
}
