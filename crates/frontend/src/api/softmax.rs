//! Online softmax: the step that keeps a running maximum and sum. It is safe for rows that are
//! fully masked so far, whose maximum is still -inf.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, Val};
use tessera_diag::Code;
use tessera_numerics::{ReduceOp, ScalarFn};
use tessera_tile::TileBuild;

pub const ROWS: Rows = rows! {
    Group "tile.softmax_online" "(m, l, s)" Call(softmax_online),
        "One step of a streaming softmax over blocks of scores `s` (rows, columns), with the running row maximum `m` and sum `l`: gives `m, l, p, alpha` with the new maximum and sum, the weights `p`, and the factor `alpha` for what was accumulated before. A row that is masked so far gives zeros, not NaN.";
    Group "tile.softmax_accumulate" "(acc, alpha, p, v)" Call(softmax_accumulate),
        "`alpha[:, None] * acc + p @ v`, with `p` rounded to the dtype of `v`.";
    Group "tile.softmax_finish" "(acc, l)" Call(softmax_finish),
        "`acc / l[:, None]`, and zeros for rows that are wholly masked.";
};

const MINUS_INFINITY: Val = Val::Const(Const::Float(f64::NEG_INFINITY));

/// A tile of a rank, or an error.
fn tile(e: &mut Elab<'_>, args: &Args, name: &str, rank: usize) -> Option<Val> {
    let v = e.runtime(&args.get(name))?;
    if e.ty(v).rank() != rank {
        let what = e.describe(&Val::Rt(v));
        e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected `{name}` to be a tile of rank {rank}, got {what}"),
            "scores are (rows, columns); the running maximum and sum have one element for each row",
        );
        return None;
    }
    Some(Val::Rt(v))
}

fn column(e: &mut Elab<'_>, v: &Val) -> Val {
    match v {
        Val::Rt(v) => Val::Rt(e.b().expand(*v, 1)),
        _ => Val::Poison,
    }
}

fn reduce_rows(e: &mut Elab<'_>, v: &Val, op: ReduceOp) -> Val {
    match v {
        Val::Rt(v) => Val::Rt(e.b().reduce(*v, op, 1)),
        _ => Val::Poison,
    }
}

fn softmax_online(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (Some(m), Some(l), Some(s)) =
        (tile(e, args, "m", 1), tile(e, args, "l", 1), tile(e, args, "s", 2))
    else {
        return Val::Poison;
    };
    let s = e.binary(ScalarFn::Mul, s, Val::Const(Const::Float(1.0)));
    let block = reduce_rows(e, &s, ReduceOp::Max);
    let new = e.binary(ScalarFn::Maximum, m.clone(), block);
    let masked = e.binary(ScalarFn::Eq, new.clone(), MINUS_INFINITY);
    let Val::Rt(masked) = masked else { return Val::Poison };
    // With a finite reference -inf stays -inf, whose exponential is 0.
    let reference = e.select(masked, Val::Const(Const::Float(0.0)), new.clone());
    let back = e.binary(ScalarFn::Sub, m, reference.clone());
    let alpha = e.apply(ScalarFn::Exp, &[back]);
    let reference = column(e, &reference);
    let shifted = e.binary(ScalarFn::Sub, s, reference);
    let p = e.apply(ScalarFn::Exp, &[shifted]);
    let before = e.binary(ScalarFn::Mul, alpha.clone(), l);
    let here = reduce_rows(e, &p, ReduceOp::Sum);
    let sum = e.binary(ScalarFn::Add, before, here);
    Val::Tuple(vec![new, sum, p, alpha])
}

fn softmax_accumulate(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (Some(acc), Some(alpha), Some(p), Some(v)) = (
        tile(e, args, "acc", 2),
        tile(e, args, "alpha", 1),
        tile(e, args, "p", 2),
        tile(e, args, "v", 2),
    ) else {
        return Val::Poison;
    };
    let (Val::Rt(weights), Val::Rt(values)) = (&p, &v) else { return Val::Poison };
    let dtype = e.ty(*values).dtype();
    let weights = e.b().cast(*weights, dtype);
    let factor = column(e, &alpha);
    let kept = e.binary(ScalarFn::Mul, factor, acc);
    let product = super::mma::product(e, weights, *values);
    e.binary(ScalarFn::Add, kept, product)
}

fn softmax_finish(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (Some(acc), Some(l)) = (tile(e, args, "acc", 2), tile(e, args, "l", 1)) else {
        return Val::Poison;
    };
    let zero = Val::Const(Const::Float(0.0));
    let empty = e.binary(ScalarFn::Eq, l.clone(), zero.clone());
    let Val::Rt(empty) = empty else { return Val::Poison };
    let safe = e.select(empty, Val::Const(Const::Float(1.0)), l);
    let safe = column(e, &safe);
    let quotient = e.binary(ScalarFn::Div, acc, safe);
    let empty = e.b().expand(empty, 1);
    e.select(empty, zero, quotient)
}
