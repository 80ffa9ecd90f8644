//! Tiles from nothing: constants and ranges.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, OpenKind, Val};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Shape, Type};
use tessera_numerics::DType;
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.zeros" "(shape, dtype=f32)" Call(zeros), "A tile of zeros.";
    Group "tile.ones" "(shape, dtype=f32)" Call(ones), "A tile of ones.";
    Group "tile.full" "(shape, value, dtype=f32)" Call(full), "A tile with one value everywhere; the value may be `-math.inf`.";
    Group "tile.fill" "(t, value)" Call(fill), "A tile of the shape and dtype of `t` with one value everywhere: tiles are values, so assign it.";
    Group "tile.alloc_register" "(shape, dtype=f32)" Call(zeros), "A tile of zeros, held by the group.";
    Group "tile.arange" "(start, stop=None)" Call(arange), "`start … stop - 1` (or `0 … start - 1`) as a rank-1 tile of i32.";
};

/// A shape argument: a tuple or one extent.
pub fn shape_of(e: &mut Elab<'_>, v: &Val) -> Option<Shape> {
    match v {
        Val::Tuple(items) => {
            items.iter().map(|v| e.extent(v, "each extent of the shape")).collect()
        }
        one => Some(vec![e.extent(one, "the shape")?]),
    }
}

/// A dtype argument; `default` where it was left out.
pub fn dtype_of(e: &mut Elab<'_>, args: &Args, name: &str, default: DType) -> Option<DType> {
    match args.get(name) {
        Val::None => Some(default),
        Val::Const(Const::DType(t)) => Some(t.storage),
        Val::Const(Const::Str(s)) => match DType::parse(&s) {
            Some(d) => Some(d),
            None => {
                e.error_help(
                    Code::E_UNSUPPORTED_DTYPE,
                    format!("expected a dtype, got {s:?}"),
                    "write a dtype such as ts.f32, ts.bf16 or ts.i32",
                );
                None
            }
        },
        other => {
            let what = e.describe(&other);
            e.error_help(
                Code::E_TYPE,
                format!("expected a dtype, got {what}"),
                "for example ts.f32 or ts.bf16",
            );
            None
        }
    }
}

fn filled(e: &mut Elab<'_>, args: &Args, value: &Val) -> Val {
    let Some(shape) = shape_of(e, &args.get("shape")) else { return Val::Poison };
    let Some(dtype) = dtype_of(e, args, "dtype", DType::F32) else { return Val::Poison };
    match value {
        Val::Const(c) => match e.literal(c, dtype) {
            Some(attr) => Val::Rt(e.b().constant(Type::value(shape, dtype), attr)),
            None => Val::Poison,
        },
        other => match e.convert(other, dtype, &shape) {
            Some(v) => Val::Rt(v),
            None => Val::Poison,
        },
    }
}

fn fill(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(t) = e.runtime(&args.get("t")) else { return Val::Poison };
    let ty = e.ty(t).clone();
    match e.convert(&args.get("value"), ty.dtype(), ty.shape()) {
        Some(v) => Val::Rt(v),
        None => Val::Poison,
    }
}

fn zeros(e: &mut Elab<'_>, args: &mut Args) -> Val {
    filled(e, args, &Val::int(0))
}

fn ones(e: &mut Elab<'_>, args: &mut Args) -> Val {
    filled(e, args, &Val::int(1))
}

fn full(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let value = args.get("value");
    filled(e, args, &value)
}

fn arange(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (start, stop) = match args.get("stop") {
        Val::None => (Val::int(0), args.get("start")),
        stop => (args.get("start"), stop),
    };
    let extent = e.binary(tessera_numerics::ScalarFn::Sub, stop, start.clone());
    let Some(extent) = e.extent(&extent, "the length of the range") else { return Val::Poison };
    let Some(start) = start.as_const_int() else {
        if matches!(start, Val::Open(OpenKind::Int)) {
            return iota(e, 0, &extent);
        }
        return e.error_help(
            Code::E_TYPE,
            "expected a range that begins at a compile-time integer",
            "add the start to the range: `start + ts.tile.arange(n)`",
        );
    };
    iota(e, start, &extent)
}

/// A range as a tile; its length may be open while checking.
pub fn iota(e: &mut Elab<'_>, start: i64, extent: &Dim) -> Val {
    let spec = OpSpec::new(TileOp::Iota, &[])
        .attr("start", Attr::Int(start))
        .result(Type::value(vec![extent.clone()], DType::I32));
    match e.b().value(spec) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}
