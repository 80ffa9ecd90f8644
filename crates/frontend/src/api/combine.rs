//! Reductions and scans by a function of the user's.

use super::parts::{axis_of, tile_of};
use super::reduce::flag;
use super::{Args, Handler::*, Rows, rows};
use crate::elab::call::Given;
use crate::elab::val::Val;
use crate::elab::{Elab, show_shape};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.associative_scan" "(x, f, axis=None, reverse=False)" Call(associative_scan),
        "The running combination of a tile, or of a tuple of tiles, by an associative @ts.func: `f(a, b)`, or of n tiles `f(a1, …, an, b1, …, bn)`. `reverse` runs from the end: what it has combined so far is the first argument, `f(f(c, b), a)`.";
};

fn associative_scan(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let f = args.get("f");
    if !is_function(&f) {
        let what = e.describe(&f);
        return e.error_help(
            Code::E_TYPE,
            format!("expected a @ts.func that combines, got {what}"),
            "write a function of two elements and decorate it with @ts.func; ts.tile.scan takes names such as \"sum\"",
        );
    }
    scan_by(e, args, &f)
}

pub fn is_function(v: &Val) -> bool {
    matches!(v, Val::Func(_) | Val::Api(_))
}

/// The tiles of an argument: one, or a tuple of them, all of one shape.
fn tiles(e: &mut Elab<'_>, args: &Args) -> Option<(Vec<Value>, bool)> {
    let (items, several) = match args.get("x") {
        Val::Tuple(items) if !items.is_empty() => (items, true),
        one => (vec![one], false),
    };
    let values: Option<Vec<Value>> = items.iter().map(|v| tile_of(e, v, "to combine")).collect();
    let values = values?;
    let of = |e: &Elab<'_>, v: Value| e.ty(v).shape().to_vec();
    let first = of(e, values[0]);
    let fits = |a: &Dim, b: &Dim| a.is_one() || b.is_one() || a.may_equal(b);
    let differs = values.iter().map(|&v| of(e, v)).find(|other| {
        other.len() != first.len() || !first.iter().zip(other).all(|(a, b)| fits(a, b))
    });
    if let Some(other) = differs {
        e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected tiles of one shape to combine, got {} and {}",
                show_shape(&first),
                show_shape(&other)
            ),
            "the function takes an element of each tile at the same position: slice the longer \
             tile, or broadcast the other with ts.tile.broadcast",
        );
        return None;
    }
    Some((e.unify_shapes(&values)?, several))
}

pub fn reduce_by(e: &mut Elab<'_>, args: &mut Args, f: &Val) -> Val {
    let Some((mut values, several)) = tiles(e, args) else { return Val::Poison };
    let rank = e.ty(values[0]).rank();
    let Some(keep) = flag(e, args, "keepdims") else { return Val::Poison };
    let axes = match args.get("axis") {
        // All elements in row-major order.
        Val::None if rank == 1 => vec![0],
        Val::None => {
            values = values.into_iter().map(|v| e.flattened(v)).collect();
            vec![0]
        }
        v => match axis_of(e, &v, rank) {
            Some(axis) => vec![axis],
            None => return Val::Poison,
        },
    };
    let axis = axes[0];
    let mut dims = e.ty(values[0]).shape().to_vec();
    dims.remove(axis);
    let results = values.iter().map(|&v| Type::value(dims.clone(), e.ty(v).dtype())).collect();
    let spec = OpSpec::new(TileOp::ReduceBy, &[])
        .group("x", &values)
        .attr("axis", Attr::Int(axis as i64))
        .results(results);
    let out = combined(e, spec, &values, f);
    if !keep {
        return given_back(out, several);
    }
    let all = args.get("axis") == Val::None;
    let out = out.map(|out| {
        out.into_iter()
            .map(|v| {
                super::reduce::kept_axes(e, v, &if all { (0..rank).collect() } else { vec![axis] })
            })
            .collect()
    });
    given_back(out, several)
}

pub fn scan_by(e: &mut Elab<'_>, args: &mut Args, f: &Val) -> Val {
    let Some((values, several)) = tiles(e, args) else { return Val::Poison };
    let rank = e.ty(values[0]).rank();
    let given = args.get("axis");
    if given == Val::None && rank > 1 {
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected `axis=` for a scan of a tile of rank {rank}"),
            "say along which axis: ts.tile.associative_scan(x, f, axis=1)",
        );
    }
    let given = if given == Val::None { Val::int(0) } else { given };
    let Some(axis) = axis_of(e, &given, rank) else { return Val::Poison };
    let Some(reverse) = flag(e, args, "reverse") else { return Val::Poison };
    let results = values.iter().map(|&v| e.ty(v).clone()).collect();
    let mut spec = OpSpec::new(TileOp::ScanBy, &[])
        .group("x", &values)
        .attr("axis", Attr::Int(axis as i64))
        .results(results);
    if reverse {
        spec = spec.attr("reverse", Attr::Bool(true));
    }
    let out = combined(e, spec, &values, f);
    given_back(out, several)
}

fn given_back(out: Option<Vec<Value>>, several: bool) -> Val {
    match out {
        None => Val::Poison,
        Some(out) if several => Val::Tuple(out.into_iter().map(Val::Rt).collect()),
        Some(out) => Val::Rt(out[0]),
    }
}

/// Emits the op with the function as its region, over scalars.
fn combined(
    e: &mut Elab<'_>,
    spec: OpSpec<tessera_tile::Tile>,
    values: &[Value],
    f: &Val,
) -> Option<Vec<Value>> {
    let dtypes: Vec<_> = values.iter().map(|&v| e.ty(v).dtype()).collect();
    let op = e.b().op(spec).expect("the result types are given");
    let region = e.func.ops[op].regions[0];
    let loc = e.loc.clone();
    let given: Vec<Given> = dtypes
        .iter()
        .chain(&dtypes)
        .map(|&dtype| Given {
            name: None,
            value: Val::Rt(e.func.add_arg(region, Type::Scalar(dtype), None)),
            loc: loc.clone(),
            text: "an element".into(),
        })
        .collect();
    let outer = std::mem::replace(&mut e.block, region);
    let found = e.found;
    let result = match f {
        Val::Func(source) => e.inline(source, given),
        Val::Api(row) => e.call_api(row, given),
        _ => Val::Poison,
    };
    e.loc = loc;
    let parts = match (&result, dtypes.len()) {
        (Val::Poison, _) => None,
        (Val::Tuple(parts), n) if parts.len() == n => Some(parts.clone()),
        (Val::Tuple(_), _) | (Val::None, _) => None,
        (_, 1) => Some(vec![result.clone()]),
        _ => None,
    };
    let Some(parts) = parts else {
        e.block = outer;
        if result != Val::Poison && e.found == found {
            let (what, n) = (e.describe(&result), dtypes.len());
            e.error_help(
                Code::E_TYPE,
                format!("expected the function to return {n} values, one for each tile, got {what}"),
                "return the combination of the left and the right elements, in the order of the tiles",
            );
        }
        return None;
    };
    let mut out = Vec::new();
    for (part, &dtype) in parts.iter().zip(&dtypes) {
        let fits = match part {
            Val::Rt(v) if !e.weak.contains_key(v) => *e.ty(*v) == Type::Scalar(dtype),
            _ => true,
        };
        if !fits {
            let what = e.describe(part);
            e.block = outer;
            e.error_help(
                Code::E_TYPE,
                format!("expected the function to return elements of dtype {dtype}, as it takes, got {what}"),
                format!("cast it: ts.tile.cast(v, ts.{dtype}), or cast the tile before"),
            );
            return None;
        }
        out.push(e.convert(part, dtype, &[])?);
    }
    e.b().yield_(&out);
    e.block = outer;
    if let Some(code) = impure(e, region) {
        let help = match code {
            TileOp::For | TileOp::While => {
                "write `ts.static_range`, which is unrolled, in place of a loop"
            }
            _ => "read memory and take parts of tiles before the call, and pass them as tiles",
        };
        let what = tessera_ir::Opcode::mnemonic(code);
        e.error_help(
            Code::E_UNSUPPORTED,
            format!("expected a function that only computes on its arguments, got `tile.{what}`"),
            help,
        );
        return None;
    }
    Some(e.func.ops[op].results.clone())
}

/// An op that a combiner may not have.
pub fn impure(e: &Elab<'_>, region: tessera_ir::BlockId) -> Option<TileOp> {
    use tessera_ir::{Effects, Opcode};
    let mut found = None;
    e.func.walk_block(region, &mut |id| {
        let op = &e.func.ops[id];
        let computes = matches!(op.code.info().effects, Effects::Pure | Effects::Terminator)
            && !tessera_tile::is_collective(op.code)
            || op.code == TileOp::If;
        let tiles = op.results.iter().any(|&v| e.func.ty(v).is_tile());
        if !computes || tiles {
            found.get_or_insert(op.code);
        }
    });
    found
}
