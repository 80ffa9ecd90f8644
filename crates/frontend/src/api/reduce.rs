//! Reductions and scans.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, Val};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.reduce" "(x, op, axis=None, keepdims=False)" Call(reduce),
        "Combines elements along an axis (all axes where none is given) with \"sum\", \"max\", \"min\", \"prod\", \"and\", \"or\" or \"xor\", or by an associative @ts.func, as `ts.tile.associative_scan` takes one, as a balanced tree over neighbours.";
    Group "tile.sum" "(x, axis=None, keepdims=False)" Call(|e, a| with(e, a, ReduceOp::Sum)), "The sum along an axis, or of all elements.";
    Group "tile.max" "(x, axis=None, keepdims=False, return_indices=False)" Call(|e, a| extremum(e, a, ReduceOp::Max)), "The maximum along an axis, or of all elements. NaN propagates. With `return_indices` also where it is.";
    Group "tile.min" "(x, axis=None, keepdims=False, return_indices=False)" Call(|e, a| extremum(e, a, ReduceOp::Min)), "The minimum along an axis, or of all elements. NaN propagates. With `return_indices` also where it is.";
    Group "tile.prod" "(x, axis=None, keepdims=False)" Call(|e, a| with(e, a, ReduceOp::Prod)), "The product along an axis, or of all elements.";
    Group "tile.mean" "(x, axis=None, keepdims=False)" Call(|e, a| mean(e, a, false)), "The mean along an axis, or of all elements.";
    Group "tile.row_sum" "(x)" Call(|e, a| rows_with(e, a, ReduceOp::Sum)), "The sum along the last axis.";
    Group "tile.row_max" "(x)" Call(|e, a| rows_with(e, a, ReduceOp::Max)), "The maximum along the last axis.";
    Group "tile.row_min" "(x)" Call(|e, a| rows_with(e, a, ReduceOp::Min)), "The minimum along the last axis.";
    Group "tile.row_prod" "(x)" Call(|e, a| rows_with(e, a, ReduceOp::Prod)), "The product along the last axis.";
    Group "tile.row_mean" "(x)" Call(|e, a| mean(e, a, true)), "The mean along the last axis.";
    Group "tile.argmax" "(x, axis=None)" Call(|e, a| arg(e, a, ReduceOp::Max)),
        "Where the maximum is, as i32: along an axis, or in row-major order over all elements. Of equal elements the first; NaN counts as the largest.";
    Group "tile.argmin" "(x, axis=None)" Call(|e, a| arg(e, a, ReduceOp::Min)),
        "Where the minimum is, as i32: along an axis, or in row-major order over all elements. Of equal elements the first; NaN counts as the smallest.";
    Group "tile.scan" "(x, op, axis=None, exclusive=False, reverse=False)" Call(scan),
        "Combines elements along an axis one after another and keeps every step; `exclusive` leaves out the element itself, `reverse` runs from the end. A rank-1 tile needs no axis. `op` is a name, or a function as `ts.tile.associative_scan` takes one.";
    Group "tile.cumsum" "(x, axis=None, exclusive=False, reverse=False)" Call(|e, a| scan_with(e, a, ReduceOp::Sum)), "The running sum along an axis.";
    Group "tile.cumprod" "(x, axis=None, exclusive=False, reverse=False)" Call(|e, a| scan_with(e, a, ReduceOp::Prod)), "The running product along an axis.";
    Group "tile.any" "(x, axis=None, keepdims=False)" Call(|e, a| truth(e, a, ReduceOp::Or)), "Whether any element holds.";
    Group "tile.all" "(x, axis=None, keepdims=False)" Call(|e, a| truth(e, a, ReduceOp::And)), "Whether every element holds.";
};

/// The axes to reduce, last first, so that the numbers of the remaining ones do not change.
fn axes(e: &mut Elab<'_>, args: &Args, rank: usize) -> Option<Vec<usize>> {
    let rank = rank as i64;
    match args.get("axis") {
        Val::None => Some((0..rank as usize).rev().collect()),
        Val::Tuple(items) => {
            let mut axes = Vec::new();
            for v in &items {
                let axis = super::parts::axis_of(e, v, rank as usize)?;
                if axes.contains(&axis) {
                    e.error_help(
                        Code::E_ARGUMENT,
                        format!("expected each axis once, got {axis} twice"),
                        "leave out one of them",
                    );
                    return None;
                }
                axes.push(axis);
            }
            axes.sort_unstable_by(|a, b| b.cmp(a));
            Some(axes)
        }
        v => {
            match v.as_const_int().filter(|a| (-rank..rank).contains(a)) {
                Some(a) => Some(vec![a.rem_euclid(rank) as usize]),
                None => {
                    let what = e.describe(&v);
                    e.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!("expected an axis below {rank}, got {what}"), format!("axes count from 0, or from -1 at the end: `axis=-1` is the last of {rank}"));
                    None
                }
            }
        }
    }
}

/// The operand as a tile in the dtype it is reduced in.
fn operand(e: &mut Elab<'_>, args: &Args, op: ReduceOp) -> Option<Value> {
    let v = e.runtime(&args.get("x"))?;
    if e.ty(v).rank() == 0 {
        let what = e.describe(&Val::Rt(v));
        e.error_help(
            Code::E_TYPE,
            format!("expected a tile to reduce, got {what}"),
            "a slice is a tile: ts.tile.sum(x[start:start + 16])",
        );
        return None;
    }
    let dtype = e.ty(v).dtype();
    let logical = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
    let target = if dtype == DType::Bool && logical { DType::Bool } else { dtype.compute() };
    Some(e.b().cast(v, target))
}

fn apply(
    e: &mut Elab<'_>,
    args: &Args,
    op: ReduceOp,
    axes_of: impl Fn(&mut Elab<'_>, usize) -> Option<Vec<usize>>,
) -> Val {
    let Some(mut v) = operand(e, args, op) else { return Val::Poison };
    if !combines(e, op, v) {
        return Val::Poison;
    }
    let rank = e.ty(v).rank();
    let Some(axes) = axes_of(e, rank) else { return Val::Poison };
    let Some(keep) = flag(e, args, "keepdims") else { return Val::Poison };
    for &axis in &axes {
        v = e.b().reduce(v, op, axis);
    }
    Val::Rt(if keep { kept_axes(e, v, &axes) } else { v })
}

/// A result with the reduced axes put back, of extent 1.
pub fn kept_axes(e: &mut Elab<'_>, v: Value, axes: &[usize]) -> Value {
    let mut ascending = axes.to_vec();
    ascending.sort_unstable();
    let mut out = v;
    for axis in ascending {
        if e.ty(out).rank() == 0 {
            let one = Type::value(vec![Dim::Static(1)], e.ty(out).dtype());
            let spec = OpSpec::new(TileOp::Broadcast, &[out]).result(one);
            out = e.b().value(spec).expect("the result type is given");
            continue;
        }
        out = e.b().expand(out, axis);
    }
    out
}

/// The largest or smallest element, and where it is.
fn extremum(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    let Some(indices) = flag(e, args, "return_indices") else { return Val::Poison };
    let value = with(e, args, op);
    if !indices || value == Val::Poison {
        return value;
    }
    let rank = e.runtime(&args.get("x")).map_or(0, |v| e.ty(v).rank());
    let several = matches!(args.get("axis"), Val::Tuple(_));
    if several || (args.get("axis") == Val::None && rank > 1) {
        return e.error_help(
            Code::E_ARGUMENT,
            "expected one axis with `return_indices`",
            "say along which axis: ts.tile.max(x, axis=1, return_indices=True); ts.tile.argmax gives the place among all elements",
        );
    }
    let mut place = arg(e, args, op);
    if let (Val::Rt(v), Some(true)) = (&place, flag(e, args, "keepdims")) {
        let Some(axes) = axes(e, args, rank) else { return Val::Poison };
        place = Val::Rt(kept_axes(e, *v, &axes));
    }
    Val::Tuple(vec![value, place])
}

fn with(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    apply(e, args, op, |e, rank| axes(e, args, rank))
}

fn rows_with(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    apply(e, args, op, |_, rank| Some(vec![rank - 1]))
}

/// The operator that `op` names.
pub fn operator(e: &mut Elab<'_>, args: &Args) -> Option<ReduceOp> {
    let op = match args.get("op") {
        Val::Const(Const::Str(s)) => ReduceOp::from_name(&s),
        _ => None,
    };
    if op.is_none() {
        let what = e.describe(&args.get("op"));
        let names: Vec<String> = ReduceOp::ALL.iter().map(|r| format!("{:?}", r.name())).collect();
        e.error_help(
            Code::E_ARGUMENT,
            format!("expected one of {}, got {what}", names.join(" ")),
            "combine by one of these names or by a @ts.func; a mean is ts.tile.mean",
        );
    }
    op
}

/// A compile-time yes or no; no where it was left out.
pub fn flag(e: &mut Elab<'_>, args: &Args, name: &str) -> Option<bool> {
    match args.get(name) {
        Val::None | Val::Open(_) => Some(false),
        Val::Const(Const::Bool(b)) => Some(b),
        other => {
            let what = e.describe(&other);
            e.error_help(
                Code::E_ARGUMENT,
                format!("expected `{name}` to be True or False, got {what}"),
                format!(
                    "write `{name}=True` or leave it out; a value of run time cannot decide it"
                ),
            );
            None
        }
    }
}

/// Whether the operator takes the value; says so where it does not.
pub fn combines(e: &mut Elab<'_>, op: ReduceOp, v: Value) -> bool {
    let dtype = e.ty(v).dtype();
    let takes = op.combine().accepts(dtype);
    if !takes {
        e.error_help(
            Code::E_TYPE,
            format!("expected a dtype that \"{}\" combines, got {dtype}", op.name()), "cast it first: ts.tile.cast(x, ts.i32) for \"and\", \"or\" and \"xor\", a number for the others");
    }
    takes
}

fn reduce(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let f = args.get("op");
    if super::combine::is_function(&f) {
        return super::combine::reduce_by(e, args, &f);
    }
    match operator(e, args) {
        Some(op) => with(e, args, op),
        None => Val::Poison,
    }
}

fn scan(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let f = args.get("op");
    if super::combine::is_function(&f) {
        if super::parts::is_true(&args.get("exclusive")) {
            return e.error_help(
                Code::E_UNSUPPORTED,
                "expected no `exclusive` in a scan by a function: it has no identity to begin with",
                "scan, then move the results by one: ts.tile.concat((first, s[:-1]))",
            );
        }
        return super::combine::scan_by(e, args, &f);
    }
    match operator(e, args) {
        Some(op) => scan_with(e, args, op),
        None => Val::Poison,
    }
}

fn scan_with(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    let Some(v) = operand(e, args, op) else { return Val::Poison };
    let rank = e.ty(v).rank();
    if rank > 1 && !args.has("axis") {
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected `axis=` for a scan of a tile of rank {rank}"),
            "say along which axis: ts.tile.cumsum(x, axis=1)",
        );
    }
    let (Some(axes), Some(exclusive)) = (axes(e, args, rank), flag(e, args, "exclusive")) else {
        return Val::Poison;
    };
    if !combines(e, op, v) {
        return Val::Poison;
    }
    let Some(reverse) = flag(e, args, "reverse") else { return Val::Poison };
    let turned = |e: &mut Elab<'_>, v: Value| match reverse {
        true => super::parts::flipped(e, v, &[axes[0]]),
        false => v,
    };
    let v = turned(e, v);
    let mut spec = OpSpec::new(TileOp::Scan, &[v])
        .attr("op", Attr::word(op.name()))
        .attr("axis", Attr::Int(axes[0] as i64))
        .result(e.ty(v).clone());
    if exclusive {
        spec = spec.attr("exclusive", Attr::Bool(true));
    }
    match e.b().value(spec) {
        Ok(v) => Val::Rt(turned(e, v)),
        Err(_) => Val::Poison,
    }
}

fn arg(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    let Some(mut v) = operand(e, args, op) else { return Val::Poison };
    let rank = e.ty(v).rank();
    let Some(axes) = axes(e, args, rank) else { return Val::Poison };
    let mut axis = axes[0];
    if axes.len() > 1 {
        // Over all elements in row-major order.
        let ty = e.ty(v).clone();
        let whole = |s: &[i64]| s.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        let count = ty.static_shape().and_then(|s| whole(&s)).map_or(Dim::Any, Dim::Static);
        let flat = Type::value(vec![count], ty.dtype());
        match e.b().value(OpSpec::new(TileOp::Reshape, &[v]).result(flat)) {
            Ok(flat) => v = flat,
            Err(_) => return Val::Poison,
        }
        axis = 0;
    }
    if !combines(e, op, v) {
        return Val::Poison;
    }
    let mut shape = e.ty(v).shape().to_vec();
    shape.remove(axis);
    let spec = OpSpec::new(TileOp::ArgReduce, &[v])
        .attr("op", Attr::word(op.name()))
        .attr("axis", Attr::Int(axis as i64))
        .result(Type::value(shape, DType::I32));
    e.b().value(spec).map_or(Val::Poison, Val::Rt)
}

fn mean(e: &mut Elab<'_>, args: &mut Args, last: bool) -> Val {
    let Some(x) = operand(e, args, ReduceOp::Sum) else { return Val::Poison };
    let shape = e.ty(x).shape().to_vec();
    let reduced = if last { Some(vec![shape.len() - 1]) } else { axes(e, args, shape.len()) };
    let Some(reduced) = reduced else { return Val::Poison };
    let mut count = Val::int(1);
    for &axis in &reduced {
        let extent = match &shape[axis] {
            Dim::Static(v) => Val::int(*v),
            other => crate::elab::names::dim_val(other),
        };
        count = e.binary(ScalarFn::Mul, count, extent);
    }
    let total = if last { rows_with(e, args, ReduceOp::Sum) } else { with(e, args, ReduceOp::Sum) };
    // A mean counts every element, so padding counts too: even zeros of it are refused.
    if let Val::Rt(mut v) = total {
        // Axes that were put back are behind the reductions.
        while let Some(op) = e.func.def(v).filter(|op| op.code != TileOp::Reduce) {
            v = op.operands[0];
        }
        for _ in &reduced {
            let Some(id) = e.func.def_id(v) else { break };
            e.func.ops[id].attrs.set("whole", tessera_ir::Attr::Bool(true));
            v = e.func.ops[id].operands[0];
        }
    }
    e.binary(ScalarFn::Div, total, count)
}

fn truth(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    let Some(v) = e.runtime(&args.get("x")) else { return Val::Poison };
    if e.ty(v).dtype() != DType::Bool {
        let what = e.describe(&Val::Rt(v));
        return e.error_help(
            Code::E_TYPE,
            format!("expected a tile of bools, got {what}"),
            "compare first: ts.tile.any(x > 0)",
        );
    }
    with(e, args, op)
}
