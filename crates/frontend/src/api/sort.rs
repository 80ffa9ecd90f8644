//! Sorting and counting.

use super::parts::{axis_of, tile_of};
use super::reduce::flag;
use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::Val;
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.sort" "(x, axis=-1, descending=False)" Call(|e, a| sort(e, a, 0)),
        "The elements in ascending order along an axis; equal elements keep their order, a NaN is above every number.";
    Group "tile.argsort" "(x, axis=-1, descending=False)" Call(|e, a| sort(e, a, 1)),
        "Where the elements of `ts.tile.sort` were, as i32.";
    Group "tile.topk" "(x, k, axis=-1)" Call(topk),
        "The `k` largest elements along an axis, largest first, and where they were, as i32: of equal elements the first. A NaN is above every number.";
    Group "tile.histogram" "(x, bins, mask=None)" Call(histogram),
        "How often each of the numbers 0 to `bins - 1` is in a tile of integers, as i32; other numbers, and those where the mask is false, count nowhere.";
    Group "tile.unique_count" "(x)" Call(unique_count),
        "How many different elements a tile has, as i32; all NaN are one.";
};

/// Sorted elements and their places, with the dtype that the elements had.
fn sorted(e: &mut Elab<'_>, x: Value, axis: usize, descending: bool) -> (Value, Value) {
    let dtype = e.ty(x).dtype();
    let compared = if dtype == DType::Bool { DType::Bool } else { dtype.compute() };
    let keys = e.b().cast(x, compared);
    let ty = e.ty(keys).clone();
    let mut spec = OpSpec::new(TileOp::Sort, &[keys])
        .attr("axis", Attr::Int(axis as i64))
        .results(vec![ty.clone(), ty.with_dtype(DType::I32)]);
    if descending {
        spec = spec.attr("descending", Attr::Bool(true));
    }
    let op = e.b().op(spec).expect("the result types are given");
    let (values, places) = (e.func.ops[op].results[0], e.func.ops[op].results[1]);
    (e.b().cast(values, dtype), places)
}

fn operand(e: &mut Elab<'_>, args: &Args) -> Option<(Value, usize)> {
    let x = tile_of(e, &args.get("x"), "to sort")?;
    let given = args.get("axis");
    let given = if given == Val::None { Val::int(-1) } else { given };
    let rank = e.ty(x).rank();
    Some((x, axis_of(e, &given, rank)?))
}

fn sort(e: &mut Elab<'_>, args: &mut Args, which: usize) -> Val {
    let Some((x, axis)) = operand(e, args) else { return Val::Poison };
    let Some(descending) = flag(e, args, "descending") else { return Val::Poison };
    let (values, places) = sorted(e, x, axis, descending);
    Val::Rt([values, places][which])
}

fn topk(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some((x, axis)) = operand(e, args) else { return Val::Poison };
    let Some(k) = e.extent(&args.get("k"), "the number of elements") else { return Val::Poison };
    let mut dims = e.ty(x).shape().to_vec();
    if let (Some(k), Some(size)) = (k.as_static(), dims[axis].as_static())
        && k > size
    {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected `k` to be at most the extent {size} of axis {axis}, got {k}"),
            "take fewer elements, or a larger tile",
        );
    }
    let (values, places) = sorted(e, x, axis, true);
    dims[axis] = k;
    let (start, step) = (vec![0; dims.len()], vec![1; dims.len()]);
    let values = e.slice_value(values, &start, &step, dims.clone());
    let places = e.slice_value(places, &start, &step, dims);
    Val::Tuple(vec![Val::Rt(values), Val::Rt(places)])
}

fn histogram(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(mut x) = tile_of(e, &args.get("x"), "to count") else { return Val::Poison };
    let Some(bins) = e.extent(&args.get("bins"), "the number of bins") else { return Val::Poison };
    if !e.ty(x).dtype().is_int() {
        let what = e.describe(&Val::Rt(x));
        return e.error_help(
            Code::E_TYPE,
            format!("expected a tile of integers to count, got {what}"),
            "the bin of each element is a number: ts.tile.cast((x - low) * scale, ts.i32)",
        );
    }
    if args.has("mask") {
        let Some(mask) = e.runtime(&args.get("mask")) else { return Val::Poison };
        if e.ty(mask).dtype() != DType::Bool {
            let what = e.describe(&Val::Rt(mask));
            return e.error_help(
                Code::E_TYPE,
                format!("expected a mask of dtype bool, got {what}"),
                "compare first: mask=x > 0",
            );
        }
        let wide = Val::Rt(e.b().cast(x, DType::I64));
        match e.select(mask, wide, Val::int(-1)) {
            Val::Rt(v) => x = v,
            other => return other,
        }
    }
    let flat = e.flattened(x);
    let spec = OpSpec::new(TileOp::Histogram, &[flat]).result(Type::value(vec![bins], DType::I32));
    e.b().value(spec).map_or(Val::Poison, Val::Rt)
}

fn unique_count(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(x) = tile_of(e, &args.get("x"), "to count") else { return Val::Poison };
    let flat = e.flattened(x);
    let Dim::Static(size) = e.ty(flat).shape()[0] else {
        return Val::Rt(e.b().constant(Type::Scalar(DType::I32), Attr::Int(0)));
    };
    if size < 2 {
        return Val::Rt(e.b().constant(Type::Scalar(DType::I32), Attr::Int(size)));
    }
    let (values, _) = sorted(e, flat, 0, false);
    let [left, right] = [0, 1]
        .map(|from| Val::Rt(e.slice_value(values, &[from], &[1], vec![Dim::Static(size - 1)])));
    let mut same = e.binary(ScalarFn::Eq, left.clone(), right.clone());
    if e.ty(values).dtype().is_float() {
        let nans = [left, right].map(|v| e.unary(ScalarFn::IsNan, v));
        let [a, b] = nans;
        let both = e.binary(ScalarFn::And, a, b);
        same = e.binary(ScalarFn::Or, same, both);
    }
    let Some(same) = e.runtime(&same) else { return Val::Poison };
    let Val::Rt(counts) = e.select(same, Val::int(0), Val::int(1)) else { return Val::Poison };
    let counts = e.b().cast(counts, DType::I32);
    let steps = e.b().reduce(counts, ReduceOp::Sum, 0);
    e.binary(ScalarFn::Add, Val::Rt(steps), Val::int(1))
}
