//! `ts.tile.group`: collective operations of a group's lanes.

use super::reduce::{combines, flag, operator};
use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::Val;
use tessera_diag::Code;
use tessera_ir::{Attr, OpSpec, Value};
use tessera_numerics::{DType, ReduceOp};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Lane "tile.group.sync" "()" Call(sync), "A barrier: all lanes of the group reach it before any goes on, and see each other's writes.";
    Lane "tile.group.reduce" "(x, op)" Call(reduce), "Combines the values of all lanes of the group; every lane gets the result.";
    Lane "tile.group.scan" "(x, op, exclusive=False)" Call(scan), "Combines the values of the lanes up to each lane; `exclusive` leaves out its own.";
    Lane "tile.group.broadcast" "(x, src)" Call(|e, a| take(e, a, TileOp::GroupBroadcast)), "The value of lane `src`, for every lane.";
    Lane "tile.group.shuffle" "(x, src)" Call(|e, a| take(e, a, TileOp::GroupShuffle)), "The value of lane `src`, which each lane chooses; zero where there is no such lane.";
};

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
