//! Random numbers from a seed and a counter, and dropout.

use super::{Args, Handler::*, Rows, create, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, Val};
use tessera_diag::Code;
use tessera_ir::{Attr, OpSpec, Value};
use tessera_numerics::{DType, Dropout, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Any "tile.philox" "(seed, counter)" Call(philox), "One random uint32 for each counter (Philox4x32-10): the same for the same seed and counter, everywhere.";
    Any "tile.philox4" "(seed, counter)" Call(philox4), "All four random uint32 words for each counter.";
    Group "tile.dropout" "(x, p, seed, at=None, shape=None)" Call(dropout),
        "Sets elements to zero with probability `p` and scales the others by 1/(1-p). What is dropped depends on the seed and the element's place in the whole tensor: `at` is where the tile begins, `shape` the tensor's shape.";
};

fn word(e: &mut Elab<'_>, seed: Value, counter: Value, word: i64) -> Val {
    let ty = e.ty(counter).with_dtype(DType::U32);
    let mut spec = OpSpec::new(TileOp::Philox, &[seed, counter]).result(ty);
    if word != 0 {
        spec = spec.attr("word", Attr::Int(word));
    }
    e.b().value(spec).map_or(Val::Poison, Val::Rt)
}

fn operands(e: &mut Elab<'_>, args: &Args) -> Option<(Value, Value)> {
    let seed = e.index_value(&args.get("seed"))?;
    let counter = e.runtime(&args.get("counter"))?;
    if !e.ty(counter).dtype().is_int() {
        let what = e.describe(&args.get("counter"));
        e.error_help(
            Code::E_TYPE,
            format!("expected a counter of integers, got {what}"),
            "count elements: ts.tile.philox(seed, start + ts.tile.arange(16))",
        );
        return None;
    }
    Some((seed, e.b().cast(counter, DType::I64)))
}

fn philox(e: &mut Elab<'_>, args: &mut Args) -> Val {
    match operands(e, args) {
        Some((seed, counter)) => word(e, seed, counter, 0),
        None => Val::Poison,
    }
}

fn philox4(e: &mut Elab<'_>, args: &mut Args) -> Val {
    match operands(e, args) {
        Some((seed, counter)) => Val::Tuple((0..4).map(|w| word(e, seed, counter, w)).collect()),
        None => Val::Poison,
    }
}

/// A tuple with an item for each axis; one item may stand without its tuple.
fn per_axis(e: &mut Elab<'_>, args: &Args, name: &str, rank: usize) -> Option<Vec<Val>> {
    let items = match args.get(name) {
        Val::Tuple(items) => items,
        one => vec![one],
    };
    if items.len() != rank {
        e.error_help(
            Code::E_ARGUMENT,
            format!(
                "expected `{name}` to give {rank} integers, one for each axis of the tile, got {}",
                items.len()
            ),
            "write a tuple: at=(m0, n0), shape=(M, N)",
        );
        return None;
    }
    Some(items)
}

/// Where each element is in the whole tensor, in row-major order.
fn coordinates(e: &mut Elab<'_>, args: &Args, x: Value) -> Option<Val> {
    let tile = e.ty(x).shape().to_vec();
    let rank = tile.len();
    let grouped = e
        .func
        .walk()
        .into_iter()
        .any(|id| matches!(e.func.ops[id].code, TileOp::ProgramId | TileOp::Origin));
    if grouped && !args.has("at") {
        e.error_help(
            Code::E_ARGUMENT,
            "expected `at=`: without it every group would drop the same elements of its tile",
            "say where the tile is: ts.tile.dropout(x, p, seed, at=(m0, n0), shape=(M, N))",
        );
        return None;
    }
    let at = match args.has("at") {
        true => per_axis(e, args, "at", rank)?,
        false => vec![Val::int(0); rank],
    };
    let shape = match (args.has("shape"), args.has("at")) {
        (true, _) => per_axis(e, args, "shape", rank)?,
        (false, true) if rank > 1 => {
            e.error_help(
                Code::E_ARGUMENT,
                "expected `shape=` beside `at=`: the place of an element follows from the tensor's shape",
                "give the shape of the whole tensor: ts.tile.dropout(x, p, seed, at=(m0, n0), shape=(M, N))",
            );
            return None;
        }
        (false, _) => tile.iter().map(crate::elab::names::dim_val).collect(),
    };
    let mut out: Option<Val> = None;
    for axis in 0..rank {
        let Val::Rt(mut along) = create::iota(e, 0, &tile[axis]) else { return None };
        along = e.b().cast(along, DType::I64);
        for other in (0..rank).filter(|o| *o != axis) {
            along = e.b().expand(along, other);
        }
        let here = e.binary(ScalarFn::Add, Val::Rt(along), at[axis].clone());
        out = Some(match out {
            None => here,
            Some(before) => {
                let rows = e.binary(ScalarFn::Mul, before, shape[axis].clone());
                e.binary(ScalarFn::Add, rows, here)
            }
        });
    }
    out
}

fn dropout(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(x) = e.runtime(&args.get("x")) else { return Val::Poison };
    let dtype = e.ty(x).dtype().compute();
    let what = e.describe(&Val::Rt(x));
    if e.ty(x).rank() == 0 || !dtype.is_float() {
        return e.error_help(
            Code::E_TYPE,
            format!("expected a tile of floats, got {what}"),
            "cast it: ts.tile.cast(x, ts.f32)",
        );
    }
    let x = e.b().cast(x, dtype);
    let (Some(seed), Some(Val::Rt(at))) =
        (e.index_value(&args.get("seed")), coordinates(e, args, x))
    else {
        return Val::Poison;
    };
    // Thresholds up to 2^32 are compared in 64 bits.
    let (threshold, scale) = match args.get("p") {
        Val::Const(c @ (Const::Int(_) | Const::Float(_))) => {
            let p = match c {
                Const::Int(v) => v as f64,
                Const::Float(v) => v,
                _ => f64::NAN,
            };
            let Some(rule) = Dropout::new(p) else {
                return e.error_help(
                    Code::E_ARGUMENT,
                    format!("expected a probability from 0 to 1, got {p:?}"),
                    "it is the probability that an element becomes zero: 0.1",
                );
            };
            (Val::int(rule.threshold as i64), Val::Const(Const::Float(rule.scale.into())))
        }
        p => {
            let Some(p) = e.convert(&p, DType::F64, &[]) else { return Val::Poison };
            let scaled =
                e.binary(ScalarFn::Mul, Val::Rt(p), Val::Const(Const::Float(4294967296.0)));
            let Val::Rt(rounded) = e.apply(ScalarFn::Round, &[scaled]) else { return Val::Poison };
            let threshold = e.b().cast(rounded, DType::I64);
            let left = e.binary(ScalarFn::Sub, Val::Const(Const::Float(1.0)), Val::Rt(p));
            let Val::Rt(scale) = e.binary(ScalarFn::Div, Val::Const(Const::Float(1.0)), left)
            else {
                return Val::Poison;
            };
            (Val::Rt(threshold), Val::Rt(e.b().cast(scale, DType::F32)))
        }
    };
    let Val::Rt(bits) = word(e, seed, at, 0) else { return Val::Poison };
    let bits = e.b().cast(bits, DType::I64);
    let keep = e.binary(ScalarFn::Ge, Val::Rt(bits), threshold);
    let kept = e.binary(ScalarFn::Mul, Val::Rt(x), scale);
    match keep {
        Val::Rt(keep) => e.select(keep, kept, Val::Const(Const::Float(0.0))),
        _ => Val::Poison,
    }
}
