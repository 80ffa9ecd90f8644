//! Calls of functions that the user passes in: an error names the line of the function.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::call::Given;
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, describe_type};
use crate::parsed::Parsed;
use ruff_text_size::Ranged;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Dim, Type, Value};
use tessera_numerics::DType;
use tessera_support::Entity;
use tessera_tile::TileOp;

pub const ROWS: Rows = rows! {
    Any "tile.pure" "(*values, like=None, dtype=None)" Call(pure),
        "Calls a function that was given to the kernel, with the values after it. It may change nothing. What it gives has the shape and dtype of `like`; with `dtype=` it is of that dtype and broadcasts to the shape of `like`.";
    Any "tile.value_and_grad" "(*values)" Call(value_and_grad),
        "Calls a function that was given to the kernel as `ts.tile.pure` does, with the values after it, the first of which is a float tile. Gives what it gives, of the shape and dtype of that tile, and its derivative by it. Each element must come of the element at its place alone.";
};

/// What a function gave, and which ops it is made of.
struct Called {
    name: Arc<str>,
    result: Val,
    /// The number of its first op, and where it stands.
    first: usize,
    definition: Loc,
}

fn pure(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let called = match call(e, std::mem::take(&mut args.rest)) {
        Ok(called) => called,
        Err(other) => return other,
    };
    let like = args.get("like");
    if like == Val::None {
        return called.result;
    }
    let Some(like) = e.runtime(&like) else { return Val::Poison };
    let dtype = match args.get("dtype") {
        Val::Const(Const::DType(t)) => Some(t.storage),
        _ => None,
    };
    fitting(e, called, like, dtype)
}

fn value_and_grad(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let mut given = std::mem::take(&mut args.rest);
    let call_site = e.loc.clone();
    let by = match given.get(1).map(|g| g.value.clone()) {
        Some(open @ (Val::Open(_) | Val::Poison)) => return Val::Tuple(vec![open.clone(), open]),
        Some(Val::Block(block)) => e.load_block(&block),
        Some(Val::Rt(v)) => Some(v),
        _ => None,
    };
    let Some(by) = by.filter(|&v| e.ty(v).dtype().is_float()) else {
        let what = given.get(1).map_or("nothing".into(), |g| e.describe(&g.value));
        return e.error_help(
            Code::E_TYPE,
            format!("expected a float tile to derive by, got {what}"),
            "cast it: ts.tile.cast(x, ts.f32)",
        );
    };
    given[1].value = Val::Rt(by);
    let called = match call(e, given) {
        Ok(called) => called,
        Err(open @ Val::Open(_)) => return Val::Tuple(vec![open.clone(), open]),
        Err(other) => return other,
    };
    let (name, first) = (called.name.clone(), called.first);
    let result = match fitting(e, called, by, None) {
        Val::Rt(v) => v,
        open @ Val::Open(_) => return Val::Tuple(vec![open.clone(), open]),
        other => return other,
    };
    match tessera_autodiff::value_and_grad(
        &mut e.func,
        e.block,
        first,
        (by, result),
        &name,
        &call_site,
    ) {
        Ok(grad) => Val::Tuple(vec![Val::Rt(result), Val::Rt(grad)]),
        Err(error) => e.report(error),
    }
}

/// Calls the first value with the others, and checks that it has no effects; `Err` is the value to
/// use after an error.
fn call(e: &mut Elab<'_>, given: Vec<Given>) -> Result<Called, Val> {
    let mut given = given.into_iter();
    let call_site = e.loc.clone();
    let target = given.next().map(|g| g.value);
    let given: Vec<Given> = given.collect();
    let first = e.func.ops.len();
    let (name, definition, result) = match target {
        Some(Val::Func(source)) => {
            let parsed = match Parsed::new(&source.file) {
                Ok(parsed) => parsed,
                Err(error) => return Err(e.report(error)),
            };
            let name: Arc<str> = Arc::from(source.name.as_str());
            let place = parsed.loc(parsed.def.name.range()).inside(&name, &call_site);
            if let Some(error) = arity(&parsed, given.len()) {
                return Err(e.report(error.at(place)));
            }
            (name, place, e.inline(&source, given))
        }
        Some(Val::Api(row)) => {
            (Arc::from(format!("ts.{}", row.name)), call_site, e.call_api(row, given))
        }
        Some(open @ (Val::Open(_) | Val::Poison)) => return Err(open),
        other => {
            let what = other.map_or("nothing".into(), |v| e.describe(&v));
            let why = format!("expected a function to call, got {what}");
            return Err(e.error_help(
                Code::E_TYPE,
                why,
                "annotate a parameter `f: ts.Fn` and give it a @ts.func",
            ));
        }
    };
    let result = match result {
        Val::Block(block) => e.load_block(&block).map_or(Val::Poison, Val::Rt),
        v => v,
    };
    let ops = e.func.ops.iter().filter(|(id, _)| id.index() >= first);
    let changes: Vec<Diagnostic> = ops
        .filter_map(|(_, op)| {
            let message = format!("expected `{name}` to change nothing, got {}", effect(op.code)?);
            let help =
                "it is called for every tile, as often as the kernel likes: give back values only";
            Some(Diagnostic::new(Code::E_PRIVILEGE, message).at(op.loc.clone()).help(help))
        })
        .collect();
    let reported = !changes.is_empty();
    for error in changes {
        e.report(error);
    }
    if reported || result == Val::Poison {
        return Err(Val::Poison);
    }
    Ok(Called { name, result, first, definition })
}

/// The error for a function that does not take this number of values.
fn arity(parsed: &Parsed, count: usize) -> Option<Diagnostic> {
    let names: Vec<&str> = parsed.def.parameters.iter().map(|p| p.name().as_str()).collect();
    let needed = parsed.def.parameters.iter().filter(|p| p.default().is_none()).count();
    if (needed..=names.len()).contains(&count) {
        return None;
    }
    let got = format!("`{}({})`", parsed.def.name, names.join(", "));
    let message = format!("expected a function of {count} values, got {got}");
    let help = match names.get(count) {
        Some(name) => format!(
            "it is called with {count}; give `{name}` an array with `ts.bind({}, {name}=array)`, or a default",
            parsed.def.name
        ),
        None => format!("it is called with {count}, whether it uses them or not"),
    };
    Some(Diagnostic::new(Code::E_ARGUMENT, message).help(help))
}

/// The result, if it is as it must be; else an error where it was made.
fn fitting(e: &mut Elab<'_>, called: Called, like: Value, dtype: Option<DType>) -> Val {
    let Called { name, result, first, definition } = called;
    let wanted = e.ty(like).clone();
    let made = match &result {
        Val::Rt(v) => Some(*v),
        Val::Open(_) => return result,
        // A number where a tile of another dtype is expected: it is broadcast.
        Val::Const(Const::Bool(_)) if dtype == Some(DType::Bool) => return result,
        _ => None,
    };
    let fits = made.is_some_and(|v| {
        let ty = e.ty(v);
        match dtype {
            Some(dtype) => ty.dtype() == dtype && stretches(ty.shape(), wanted.shape()),
            None => ty.dtype() == wanted.dtype() && same(ty.shape(), wanted.shape()),
        }
    });
    if fits {
        return result;
    }
    let got = e.describe(&result);
    let of_shape = made.is_none_or(|v| match dtype {
        Some(_) => !stretches(e.ty(v).shape(), wanted.shape()),
        None => !same(e.ty(v).shape(), wanted.shape()),
    });
    let expected = match dtype {
        Some(dtype) => format!("values of dtype {dtype} that broadcast to {}", shown(&wanted)),
        None => describe_type(&wanted),
    };
    let code = if of_shape && made.is_some() { Code::E_SHAPE_MISMATCH } else { Code::E_TYPE };
    // An argument that is returned unchanged has no location in the function.
    let place = made.and_then(|v| e.func.def_id(v)).filter(|id| id.index() >= first);
    let place = place.map_or(definition, |id| e.func.ops[id].loc.clone());
    let message = format!("expected `{name}` to give {expected}, got {got}");
    let help = match (made, code) {
        (None, _) => "return one tile".to_string(),
        (_, Code::E_SHAPE_MISMATCH) => {
            "give back a value for each element of the tile it was given, at its place".to_string()
        }
        _ => match dtype {
            Some(DType::Bool) => "return a comparison: it says which places are taken".to_string(),
            _ => format!("cast it: `ts.tile.cast(x, ts.{})`", dtype.unwrap_or(wanted.dtype())),
        },
    };
    e.report(Diagnostic::new(code, message).at(place).help(help))
}

fn shown(ty: &Type) -> String {
    let extents: Vec<String> = ty.shape().iter().map(|d| d.to_string()).collect();
    format!("({})", extents.join(", "))
}

/// Extents that are not known yet agree with all.
fn agree(a: &Dim, b: &Dim) -> bool {
    match (a.as_static(), b.as_static()) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

fn same(a: &[Dim], b: &[Dim]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b))
}

fn stretches(a: &[Dim], b: &[Dim]) -> bool {
    let one = |d: &Dim| d.as_static() == Some(1);
    a.len() <= b.len() && a.iter().rev().zip(b.iter().rev()).all(|(a, b)| one(a) || agree(a, b))
}

/// The side effect of an op, in words.
#[deny(clippy::wildcard_enum_match_arm)]
fn effect(code: TileOp) -> Option<&'static str> {
    match code {
        TileOp::Store | TileOp::Scatter => Some("a store"),
        TileOp::Accumulate => Some("a sum into memory"),
        TileOp::Atomic => Some("an atomic operation"),
        TileOp::BufAlloc => Some("a shared buffer"),
        TileOp::CopyAsync | TileOp::CopyCommit | TileOp::CopyWait => Some("a copy"),
        TileOp::Barrier => Some("a barrier"),
        // Loops and branches have the effects of their bodies; prints and assertions change
        // nothing.
        TileOp::For
        | TileOp::If
        | TileOp::While
        | TileOp::SlowPath
        | TileOp::Yield
        | TileOp::Return
        | TileOp::Print
        | TileOp::Assert
        | TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin
        | TileOp::Const
        | TileOp::Iota
        | TileOp::Ew(_)
        | TileOp::Select
        | TileOp::Cast
        | TileOp::Bitcast
        | TileOp::Broadcast
        | TileOp::Expand
        | TileOp::Transpose
        | TileOp::Load
        | TileOp::Gather
        | TileOp::Reshape
        | TileOp::Philox
        | TileOp::Mma
        | TileOp::GroupReduce
        | TileOp::GroupScan
        | TileOp::GroupBroadcast
        | TileOp::GroupShuffle
        | TileOp::Reduce
        | TileOp::Scan
        | TileOp::ArgReduce
        | TileOp::Slice
        | TileOp::Concat
        | TileOp::Take
        | TileOp::ReduceBy
        | TileOp::ScanBy
        | TileOp::Sort
        | TileOp::Histogram
        | TileOp::Owned
        | TileOp::Asm
        | TileOp::AsmEffect => None,
    }
}
