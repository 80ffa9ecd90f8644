//! Masks of score-like tiles: positions outside a tensor, and positions after the diagonal.

use super::{Args, Handler::*, Rows, create, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, Val};
use tessera_diag::Code;
use tessera_ir::Value;
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::TileBuild;

pub const ROWS: Rows = rows! {
    Group "tile.bounds_mask" "(x, rows=None, cols=None, value=None)" Call(bounds_mask),
        "Replaces elements at row `rows` and after, and at column `cols` and after, by `value` (`-inf`): for a tile at `k0` of a dimension `S`, `cols=S - k0`.";
    Group "tile.causal_mask" "(scores, q_start, kv_start, value=None, offset=0)" Call(causal_mask),
        "Keeps element (i, j) where `kv_start + j <= q_start + i + offset`; others become `value` (`-inf`).";
    Group "tile.apply_causal_mask" "(scores, q_start, kv_start, value=None, offset=0)" Call(causal_mask),
        "Another name for `causal_mask`.";
};

/// The tile in its compute dtype, and the value that masked elements take.
fn operands(e: &mut Elab<'_>, args: &Args, name: &str) -> Option<(Value, Val)> {
    let x = e.runtime(&args.get(name))?;
    let dtype = e.ty(x).dtype().compute();
    let x = e.b().cast(x, dtype);
    let value = match args.get("value") {
        Val::None if dtype.is_float() => Val::Const(Const::Float(f64::NEG_INFINITY)),
        Val::None => {
            e.error_help(
                Code::E_ARGUMENT,
                format!("expected `value` for a tile of dtype {dtype}, which has no infinity"),
                "say what the masked elements become: value=0",
            );
            return None;
        }
        v => v,
    };
    Some((x, value))
}

/// `0 … n-1` along one axis of a rank-`rank` tile, as 64-bit positions.
fn positions(e: &mut Elab<'_>, x: Value, axis: usize) -> Option<Val> {
    let shape = e.ty(x).shape().to_vec();
    let Val::Rt(mut iota) = create::iota(e, 0, &shape[axis]) else { return None };
    iota = e.b().cast(iota, DType::I64);
    for other in 0..shape.len() {
        if other != axis {
            iota = e.b().expand(iota, other);
        }
    }
    Some(Val::Rt(iota))
}

fn bounds_mask(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some((x, value)) = operands(e, args, "x") else { return Val::Poison };
    let rank = e.ty(x).rank();
    let mut keep: Option<Val> = None;
    for (name, from_end) in [("rows", 2), ("cols", 1)] {
        if !args.has(name) {
            continue;
        }
        let Some(axis) = rank.checked_sub(from_end) else {
            return e.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected a tile of rank {from_end} or more for `{name}`"), "`cols` bounds the last axis and `rows` the one before it: a rank-1 tile has `cols` alone");
        };
        let Some(at) = positions(e, x, axis) else { return Val::Poison };
        let inside = e.binary(ScalarFn::Lt, at, args.get(name));
        keep = Some(match keep {
            None => inside,
            Some(before) => e.apply(ScalarFn::And, &[before, inside]),
        });
    }
    match keep {
        None => e.error_help(
            Code::E_ARGUMENT,
            "expected `rows=` or `cols=`",
            "for a tile at k0 of a dimension S write cols=S - k0",
        ),
        Some(Val::Rt(c)) => e.select(c, Val::Rt(x), value),
        Some(_) => Val::Poison,
    }
}

fn causal_mask(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some((x, value)) = operands(e, args, "scores") else { return Val::Poison };
    if e.ty(x).rank() != 2 {
        let what = e.describe(&Val::Rt(x));
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected scores of rank 2, got {what}"),
            "scores have a row for each query and a column for each key",
        );
    }
    let (Some(rows), Some(cols)) = (positions(e, x, 0), positions(e, x, 1)) else {
        return Val::Poison;
    };
    let q = e.binary(ScalarFn::Add, rows, args.get("q_start"));
    let q = match args.get("offset") {
        Val::None | Val::Const(Const::Int(0)) => q,
        offset => e.binary(ScalarFn::Add, q, offset),
    };
    let k = e.binary(ScalarFn::Add, cols, args.get("kv_start"));
    match e.binary(ScalarFn::Le, k, q) {
        Val::Rt(c) => e.select(c, Val::Rt(x), value),
        _ => Val::Poison,
    }
}
