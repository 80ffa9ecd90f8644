//! `ts.tile.group`: collective operations of a group's lanes.

use super::reduce::{combines, flag, operator};
use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::Val;
use tessera_diag::Code;
use tessera_ir::{Attr, OpSpec, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Lane "tile.group.sync" "()" Call(sync), "A barrier: all lanes of the group reach it before any goes on, and see each other's writes.";
    Lane "tile.group.reduce" "(x, op)" Call(reduce), "Combines the values of all lanes of the group; every lane gets the result.";
    Lane "tile.group.scan" "(x, op, exclusive=False)" Call(scan), "Combines the values of the lanes up to each lane; `exclusive` leaves out its own.";
    Lane "tile.group.broadcast" "(x, src)" Call(|e, a| take(e, a, TileOp::GroupBroadcast)), "The value of lane `src`, for every lane.";
    Lane "tile.group.shuffle" "(x, src)" Call(|e, a| take(e, a, TileOp::GroupShuffle)), "The value of lane `src`, which each lane chooses; zero where there is no such lane.";
    Lane "tile.group.any" "(p)" Call(|e, a| vote(e, a, ReduceOp::Or)), "Whether the condition holds in any lane of the group.";
    Lane "tile.group.all" "(p)" Call(|e, a| vote(e, a, ReduceOp::And)), "Whether the condition holds in every lane of the group.";
    Lane "tile.group.ballot" "(p)" Call(ballot), "The lanes of the group in which the condition holds, one bit each: a u32 of up to 32 lanes, a u64 of up to 64.";
    Lane "tile.group.match" "(x)" Call(match_), "The lanes of the group that have the same bits as this one, one bit each, as `ballot` gives them.";
};

fn predicate(e: &mut Elab<'_>, args: &Args) -> Option<Value> {
    let v = e.runtime(&args.get("p"))?;
    if e.ty(v).dtype() != DType::Bool {
        let what = e.describe(&Val::Rt(v));
        e.error_help(
            Code::E_TYPE,
            format!("expected a condition of dtype bool, got {what}"),
            "compare first: ts.tile.group.any(x > 0)",
        );
        return None;
    }
    Some(v)
}

fn vote(e: &mut Elab<'_>, args: &mut Args, op: ReduceOp) -> Val {
    match predicate(e, args) {
        Some(v) => Val::Rt(reduced(e, v, op)),
        None => Val::Poison,
    }
}

fn reduced(e: &mut Elab<'_>, v: Value, op: ReduceOp) -> Value {
    let ty = e.ty(v).clone();
    let spec = OpSpec::new(TileOp::GroupReduce, &[v]).attr("op", Attr::word(op.name()));
    e.b().value(spec.result(ty)).expect("the result type is given")
}

/// The number of lanes of a group, and the integer that has a bit for each; `None` (reported) where
/// there are more than 64.
fn mask_type(e: &mut Elab<'_>, what: &str) -> Option<(i64, DType)> {
    let lanes = e.decl.group_lanes();
    match lanes {
        Some(n) if n <= 32 => Some((n, DType::U32)),
        Some(n) if n <= 64 => Some((n, DType::U64)),
        _ => {
            let shown = lanes.map_or("a number that is not given".into(), |n| n.to_string());
            e.error_help(
                Code::E_UNSUPPORTED,
                format!("expected groups of at most 64 lanes for `{what}`, one bit each, got {shown}"),
                "say how many lanes form a group: `@ts.kernel(lanes=32)`; ts.tile.group.any, all and scan take any number",
            );
            None
        }
    }
}

/// The bits of the lanes in which a condition holds.
fn bits(e: &mut Elab<'_>, holds: Value, dtype: DType) -> Value {
    let own = e.b().value(OpSpec::new(TileOp::LocalId, &[]).result(Type::INDEX));
    let own = own.expect("the result type is given");
    let own = e.b().cast(own, dtype);
    let [one, zero] = [1, 0].map(|v| e.b().constant(Type::Scalar(dtype), Attr::Int(v)));
    let bit = e.b().ew(ScalarFn::Shl, &[one, own]);
    let bit = e.b().select(holds, bit, zero);
    reduced(e, bit, ReduceOp::Or)
}

fn ballot(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(holds) = predicate(e, args) else { return Val::Poison };
    let Some((_, dtype)) = mask_type(e, "ts.tile.group.ballot") else { return Val::Poison };
    Val::Rt(bits(e, holds, dtype))
}

/// Each lane compares its bits with those of every lane, one after another.
fn match_(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(v) = e.runtime(&args.get("x")) else { return Val::Poison };
    let Some((lanes, mask)) = mask_type(e, "ts.tile.group.match") else { return Val::Poison };
    let from = e.ty(v).dtype();
    let v = match from {
        DType::F32 => word(e, v, DType::U32),
        DType::F64 => word(e, v, DType::U64),
        DType::Bool => e.b().cast(v, DType::I32),
        other => e.b().cast(v, other.compute()),
    };
    if e.ty(v).dtype().is_float() {
        let what = e.describe(&Val::Rt(v));
        return e.error_help(
            Code::E_TYPE,
            format!("expected a number of 32 or 64 bits to compare, got {what}"),
            "cast it: ts.tile.cast(x, ts.f32)",
        );
    }
    let yes = e.b().constant(Type::BOOL, Attr::Bool(true));
    let present = bits(e, yes, mask);
    let zero = e.b().constant(Type::Scalar(mask), Attr::Int(0));
    let bounds = [0, lanes, 1].map(|v| e.b().index(v));
    let spec =
        OpSpec::new(TileOp::For, &bounds).group("init", &[zero]).results(vec![Type::Scalar(mask)]);
    let op = e.b().op(spec).expect("the result type is given");
    let region = e.func.ops[op].regions[0];
    let lane = e.func.add_arg(region, Type::INDEX, None);
    let found = e.func.add_arg(region, Type::Scalar(mask), None);
    let outer = std::mem::replace(&mut e.block, region);
    let ty = e.ty(v).clone();
    let spec = OpSpec::new(TileOp::GroupBroadcast, &[v, lane]).result(ty);
    let other = e.b().value(spec).expect("the result type is given");
    let same = e.b().ew(ScalarFn::Eq, &[v, other]);
    let place = e.b().cast(lane, mask);
    let [one, none] = [1, 0].map(|v| e.b().constant(Type::Scalar(mask), Attr::Int(v)));
    let bit = e.b().ew(ScalarFn::Shl, &[one, place]);
    let bit = e.b().select(same, bit, none);
    let next = e.b().ew(ScalarFn::Or, &[found, bit]);
    e.b().yield_(&[next]);
    e.block = outer;
    let all = e.func.ops[op].results[0];
    Val::Rt(e.b().ew(ScalarFn::And, &[all, present]))
}

fn word(e: &mut Elab<'_>, v: Value, dtype: DType) -> Value {
    let spec = OpSpec::new(TileOp::Bitcast, &[v]).result(Type::Scalar(dtype));
    e.b().value(spec).expect("the result type is given")
}

/// `g.size` and `g.rank`.
pub fn property(e: &mut Elab<'_>, name: &str) -> Option<Val> {
    let code = match name {
        "size" => TileOp::GroupSize,
        "rank" => TileOp::LocalId,
        _ => return None,
    };
    let spec = OpSpec::new(code, &[]).result(tessera_ir::Type::INDEX);
    Some(e.b().value(spec).map_or(Val::Poison, Val::Rt))
}

fn sync(e: &mut Elab<'_>, _: &mut Args) -> Val {
    let _ = e.b().op(OpSpec::new(TileOp::Barrier, &[]));
    Val::None
}

fn combined(e: &mut Elab<'_>, args: &Args) -> Option<(Value, ReduceOp)> {
    let op = operator(e, args)?;
    let v = e.runtime(&args.get("x"))?;
    let dtype = e.ty(v).dtype();
    let logical = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
    let keeps = dtype == DType::Bool && logical;
    let v = e.b().cast(v, if keeps { DType::Bool } else { dtype.compute() });
    combines(e, op, v).then_some((v, op))
}

fn reduce(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some((v, op)) = combined(e, args) else { return Val::Poison };
    let spec = OpSpec::new(TileOp::GroupReduce, &[v]).attr("op", Attr::word(op.name()));
    let ty = e.ty(v).clone();
    e.b().value(spec.result(ty)).map_or(Val::Poison, Val::Rt)
}

fn scan(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (Some((v, op)), Some(exclusive)) = (combined(e, args), flag(e, args, "exclusive")) else {
        return Val::Poison;
    };
    let mut spec = OpSpec::new(TileOp::GroupScan, &[v]).attr("op", Attr::word(op.name()));
    if exclusive {
        spec = spec.attr("exclusive", Attr::Bool(true));
    }
    let ty = e.ty(v).clone();
    e.b().value(spec.result(ty)).map_or(Val::Poison, Val::Rt)
}

fn take(e: &mut Elab<'_>, args: &mut Args, code: TileOp) -> Val {
    let (Some(v), Some(src)) = (e.runtime(&args.get("x")), e.index_value(&args.get("src"))) else {
        return Val::Poison;
    };
    if let Some(i) = args.get("src").as_const_int()
        && i < 0
    {
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected a lane of 0 or more, got {i}"),
            "lanes count from 0 to ts.tile.group.size - 1",
        );
    }
    let ty = e.ty(v).clone();
    e.b().value(OpSpec::new(code, &[v, src]).result(ty)).map_or(Val::Poison, Val::Rt)
}
