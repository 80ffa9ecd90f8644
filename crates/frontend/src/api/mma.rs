//! The matrix product.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{OpSpec, Type, Value};
use tessera_numerics::DType;
use tessera_tile::ops::mma::{LEGAL, accumulator};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.mma" "(a, b, accumulator=None, transpose_a=False, transpose_b=False, accum=None, precision=None)" Call(mma),
        "The product of tiles `(M, K)` and `(K, N)`, added to `accumulator`: a tile, or a dtype for a fresh one (f32 by default, i32 for integers).";
    Group "tile.dot" "(a, b, accumulator=None, transpose_a=False, transpose_b=False, accum=None, precision=None)" Call(mma),
        "Another name for `mma`.";
};

fn operand(e: &mut Elab<'_>, args: &Args, name: &str, transpose: &str) -> Option<Value> {
    let v = e.runtime(&args.get(name))?;
    let ty = e.ty(v).clone();
    if ty.rank() != 2 {
        let what = e.describe(&Val::Rt(v));
        e.report(
            Diagnostic::new(
                Code::E_SHAPE_MISMATCH,
                format!("expected a tile of rank 2 for `{name}`, got {what}"),
            )
            .at(args.loc(name)),
        );
        return None;
    }
    match args.get(transpose) {
        Val::Const(Const::Bool(true)) => match e.transpose(v) {
            Val::Rt(v) => Some(v),
            _ => None,
        },
        _ => Some(v),
    }
}

fn mma(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (Some(a), Some(b)) =
        (operand(e, args, "a", "transpose_a"), operand(e, args, "b", "transpose_b"))
    else {
        return Val::Poison;
    };
    let (k, kb) = (e.ty(a).shape()[1].clone(), e.ty(b).shape()[0].clone());
    if !k.may_equal(&kb) {
        let (sa, sb) = (show_shape(e.ty(a).shape()), show_shape(e.ty(b).shape()));
        return e.error(
            Code::E_SHAPE_MISMATCH,
            format!("expected shapes (M, K) and (K, N), got {sa} and {sb}: {k} is not {kb}"),
        );
    }
    let Some((a, b)) = legal_operands(e, args, a, b) else { return Val::Poison };
    let (m, n) = (e.ty(a).shape()[0].clone(), e.ty(b).shape()[1].clone());
    let default = accumulator(e.ty(a).dtype(), e.ty(b).dtype()).unwrap_or(DType::F32);
    let given = if args.has("accumulator") { args.get("accumulator") } else { args.get("accum") };
    let acc = match given {
        Val::None => None,
        Val::Const(Const::DType(t)) if t.storage == default => None,
        Val::Const(Const::DType(t)) => {
            return e.error_help(
                Code::E_TYPE,
                format!(
                    "expected an accumulator of dtype {default} for {} operands, got {}",
                    e.ty(a).dtype(),
                    t.storage
                ),
                format!("accumulate in {default} and cast the result"),
            );
        }
        other => match e.runtime(&other) {
            Some(v) => Some(v),
            None => return Val::Poison,
        },
    };
    let acc = match acc {
        Some(v) => {
            let ty = e.ty(v).clone();
            let fits = ty.rank() == 2 && ty.shape()[0].may_equal(&m) && ty.shape()[1].may_equal(&n);
            if !fits {
                let what = e.describe(&Val::Rt(v));
                return e.error(
                    Code::E_SHAPE_MISMATCH,
                    format!("expected an accumulator of shape ({m}, {n}), got {what}"),
                );
            }
            if ty.dtype() != default {
                return e.error_help(
                    Code::E_TYPE,
                    format!("expected an accumulator of dtype {default}, got {}", ty.dtype()),
                    format!("begin with ts.tile.zeros(shape, ts.{default})"),
                );
            }
            v
        }
        None => {
            let zero =
                Elab::const_attr(&Const::Int(0), default).unwrap_or(tessera_ir::Attr::Float(0.0));
            e.b().constant(Type::Tile { shape: vec![m, n], dtype: default }, zero)
        }
    };
    let ty = e.ty(acc).clone();
    match e.b().value(OpSpec::new(TileOp::Mma, &[a, b, acc]).result(ty)) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}

/// A plain product of two tiles that fit, for functions made of one.
pub(super) fn product(e: &mut Elab<'_>, a: Value, b: Value) -> Val {
    let (ta, tb) = (e.ty(a).clone(), e.ty(b).clone());
    let (k, kb) = (&ta.shape()[1], &tb.shape()[0]);
    if !k.may_equal(kb) {
        let (sa, sb) = (show_shape(ta.shape()), show_shape(tb.shape()));
        return e.error(
            Code::E_SHAPE_MISMATCH,
            format!("expected shapes (M, K) and (K, N), got {sa} and {sb}: {k} is not {kb}"),
        );
    }
    let Some(dtype) = accumulator(ta.dtype(), tb.dtype()) else {
        return e.error(
            Code::E_TYPE,
            format!("expected a dtype that products are made of, got {}", tb.dtype()),
        );
    };
    let zero = Elab::const_attr(&Const::Int(0), dtype).unwrap_or(tessera_ir::Attr::Float(0.0));
    let ty = Type::Tile { shape: vec![ta.shape()[0].clone(), tb.shape()[1].clone()], dtype };
    let acc = e.b().constant(ty.clone(), zero);
    match e.b().value(OpSpec::new(TileOp::Mma, &[a, b, acc]).result(ty)) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}

/// Operands of one legal row. A mismatch is reported with the cast to write, and elaboration goes
/// on as if it stood there.
fn legal_operands(e: &mut Elab<'_>, args: &Args, a: Value, b: Value) -> Option<(Value, Value)> {
    let (ta, tb) = (e.ty(a).dtype(), e.ty(b).dtype());
    if LEGAL.iter().any(|row| (row.0, row.1) == (ta, tb)) {
        return Some((a, b));
    }
    // The wider operand is the one to cast: the other came from memory as it is.
    let (wide, narrow, target) = if ta.bits() >= tb.bits() { ("a", tb, a) } else { ("b", ta, b) };
    let castable = LEGAL.iter().any(|row| (row.0, row.1) == (narrow, narrow));
    let text = args.text(wide);
    let d =
        Diagnostic::new(Code::E_TYPE, format!("expected operands of one dtype, got {ta} x {tb}"));
    if !castable {
        let rows: Vec<String> = LEGAL.iter().map(|r| format!("{} x {}", r.0, r.1)).collect();
        e.report(d.note(format!("legal pairs: {}", rows.join(", "))));
        return None;
    }
    e.report(d.help(format!("cast it: ts.tile.cast({text}, ts.{narrow})")));
    let cast = e.b().cast(target, narrow);
    Some(if wide == "a" { (cast, b) } else { (a, cast) })
}
