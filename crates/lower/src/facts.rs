//! Small queries on Tile IR that several passes use.

use tessera_diag::Loc;
use tessera_ir::{Attr, BlockId, Dim, DimExpr, DimOp, Op, OpId, Type, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// The name the user gave a value: a Python name, or the path of a record's field. A name of digits
/// is the printer's own numbering read back, and a number after a dot is the suffix it makes names
/// different with.
pub fn user_name(func: &TileFunc, value: Value) -> Option<&str> {
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let mut name = func.name_of(value)?;
    while let Some((rest, suffix)) = name.rsplit_once('.')
        && is_number(suffix)
    {
        name = rest;
    }
    (!is_number(name)).then_some(name)
}

/// The value's name in quotes, or `otherwise`.
pub(crate) fn quoted(func: &TileFunc, value: Value, otherwise: &str) -> String {
    user_name(func, value).map_or_else(|| otherwise.to_string(), |n| format!("`{n}`"))
}

/// The value of an integer constant.
pub(crate) fn int_const(func: &TileFunc, value: Value) -> Option<i64> {
    let op = func.def(value).filter(|op| op.code == TileOp::Const)?;
    op.attr("value").and_then(Attr::as_int)
}

/// The extents of a block access; empty for ops that have none.
pub(crate) fn extents(op: &Op<Tile>) -> Vec<i64> {
    op.attr("extent").and_then(Attr::as_ints).unwrap_or_default()
}

/// How far apart the positions of a block are along an axis.
pub(crate) fn step(op: &Op<Tile>, axis: usize) -> i64 {
    op.attr("step").and_then(Attr::as_ints).and_then(|s| s.get(axis).copied()).unwrap_or(1)
}

/// How many positions of memory a block spans along an axis: one where it keeps none.
pub(crate) fn reach(op: &Op<Tile>, axis: usize) -> Option<i64> {
    let extent = extents(op).get(axis).copied().unwrap_or(0).max(1);
    (extent - 1).checked_mul(step(op, axis))?.checked_add(1)
}

/// The axes of memory that a block keeps, in the order of the block's own axes.
pub(crate) fn kept_axes(extent: &[i64]) -> impl Iterator<Item = usize> {
    extent.iter().enumerate().filter(|(_, e)| **e != 0).map(|(axis, _)| axis)
}

/// The memory that an op writes, if it writes any. An allocation writes nothing.
pub(crate) fn written(op: &Op<Tile>) -> Option<Value> {
    match op.code {
        TileOp::Store
        | TileOp::Scatter
        | TileOp::Accumulate
        | TileOp::Atomic
        | TileOp::CopyAsync => Some(op.operands[0]),
        _ => None,
    }
}

/// The memory that an op reads, if it reads any. An accumulation reads what it writes.
pub(crate) fn read(op: &Op<Tile>) -> Option<Value> {
    match op.code {
        TileOp::Load | TileOp::Gather | TileOp::Accumulate | TileOp::Atomic => Some(op.operands[0]),
        TileOp::CopyAsync => Some(op.operands[1]),
        _ => None,
    }
}

/// The memory an op positions itself in with `at(…)`: the source of a copy, else the memory.
pub(crate) fn positioned(op: &Op<Tile>) -> Option<Value> {
    match op.code {
        TileOp::Load
        | TileOp::Store
        | TileOp::Accumulate
        | TileOp::Gather
        | TileOp::Scatter
        | TileOp::Atomic => Some(op.operands[0]),
        TileOp::CopyAsync => Some(op.operands[1]),
        _ => None,
    }
}

pub(crate) fn is_view(func: &TileFunc, value: Value) -> bool {
    matches!(func.ty(value), Type::View { .. })
}

/// Every op in the regions of `id`, and `id` itself.
pub(crate) fn subtree(func: &TileFunc, id: OpId) -> Vec<OpId> {
    let mut out = vec![id];
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |op| out.push(op));
    }
    out
}

/// The values that a block yields to the op around it.
pub(crate) fn yielded(func: &TileFunc, block: BlockId) -> &[Value] {
    func.terminator(block).map_or(&[], |end| func.ops[end].group("values"))
}

pub(crate) fn dim_expr(dim: &Dim) -> Option<DimExpr> {
    match dim {
        Dim::Static(v) => Some(DimExpr::Const(*v)),
        Dim::Expr(e) => Some(e.clone()),
        Dim::Any => None,
    }
}

/// An expression as the user writes it in Python: without the brackets around the whole.
pub(crate) fn python(expr: &DimExpr) -> String {
    fn inner(e: &DimExpr) -> String {
        match e {
            DimExpr::Const(v) => v.to_string(),
            DimExpr::Sym(s) => s.to_string(),
            DimExpr::Bin(DimOp::CeilDiv, a, b) => format!("ts.cdiv({}, {})", python(a), python(b)),
            DimExpr::Bin(DimOp::Min, a, b) => format!("min({}, {})", python(a), python(b)),
            DimExpr::Bin(DimOp::Max, a, b) => format!("max({}, {})", python(a), python(b)),
            DimExpr::Bin(op, a, b) => {
                let sign = match op {
                    DimOp::FloorDiv => "//",
                    DimOp::Mod => "%",
                    other => other.text(),
                };
                format!("({} {sign} {})", inner(a), inner(b))
            }
        }
    }
    let text = inner(expr);
    match expr {
        DimExpr::Bin(DimOp::CeilDiv | DimOp::Min | DimOp::Max, ..) => text,
        DimExpr::Bin(..) => text[1..text.len() - 1].to_string(),
        DimExpr::Const(_) | DimExpr::Sym(_) => text,
    }
}

/// An integer as the user may write it: by its name, or by what it is computed of.
pub(crate) fn python_int(func: &TileFunc, value: Value) -> Option<String> {
    fn inner(func: &TileFunc, value: Value, whole: bool, fuel: &mut u32) -> Option<String> {
        *fuel = fuel.checked_sub(1)?;
        if let Some(name) = user_name(func, value) {
            return Some(name.to_string());
        }
        let op = func.def(value)?;
        match op.code {
            TileOp::Const => int_const(func, value).map(|v| v.to_string()),
            TileOp::Cast => inner(func, op.operands[0], whole, fuel),
            TileOp::Dim => {
                let expr = op.attr("name").and_then(Attr::as_expr)?;
                let text = python(&expr);
                Some(if whole || !text.contains(' ') { text } else { format!("({text})") })
            }
            TileOp::ProgramId => {
                let axis = op.attr("axis").and_then(Attr::as_int)?;
                Some(format!("ts.tile.program_id({axis})"))
            }
            TileOp::Ew(f) => {
                let sign = match f {
                    ScalarFn::Add => "+",
                    ScalarFn::Sub => "-",
                    ScalarFn::Mul => "*",
                    ScalarFn::FloorDiv => "//",
                    ScalarFn::Mod => "%",
                    _ => return None,
                };
                let a = inner(func, op.operands[0], false, fuel)?;
                let b = inner(func, op.operands[1], false, fuel)?;
                Some(if whole { format!("{a} {sign} {b}") } else { format!("({a} {sign} {b})") })
            }
            _ => None,
        }
    }
    inner(func, value, true, &mut 12)
}

/// Emits the ops that compute a dimension expression.
pub(crate) fn emit_dim_expr(
    func: &mut TileFunc,
    block: BlockId,
    loc: &Loc,
    expr: &DimExpr,
) -> Value {
    let integer_param = |func: &TileFunc, name: &str| {
        let named = |p: &&Value| func.name_of(**p) == Some(name) && *func.ty(**p) == Type::INDEX;
        func.params().iter().find(named).copied()
    };
    let value = match expr {
        DimExpr::Sym(name) => integer_param(func, name),
        DimExpr::Const(_) | DimExpr::Bin(..) => None,
    };
    if let Some(value) = value {
        return value;
    }
    if let DimExpr::Bin(op, a, b) = expr {
        let a = emit_dim_expr(func, block, loc, a);
        let b = emit_dim_expr(func, block, loc, b);
        let mut builder = tessera_ir::Builder::at_end(func, block, loc.clone());
        return match op {
            DimOp::Add => builder.ew(ScalarFn::Add, &[a, b]),
            DimOp::Sub => builder.ew(ScalarFn::Sub, &[a, b]),
            DimOp::Mul => builder.ew(ScalarFn::Mul, &[a, b]),
            DimOp::FloorDiv => builder.ew(ScalarFn::FloorDiv, &[a, b]),
            DimOp::Mod => builder.ew(ScalarFn::Mod, &[a, b]),
            DimOp::Min => builder.ew(ScalarFn::Minimum, &[a, b]),
            DimOp::Max => builder.ew(ScalarFn::Maximum, &[a, b]),
            // ceil(a / b) = -floor(-a / b)
            DimOp::CeilDiv => {
                let negative = builder.ew(ScalarFn::Neg, &[a]);
                let floor = builder.ew(ScalarFn::FloorDiv, &[negative, b]);
                builder.ew(ScalarFn::Neg, &[floor])
            }
        };
    }
    let mut builder = tessera_ir::Builder::at_end(func, block, loc.clone());
    match expr {
        DimExpr::Const(v) => builder.index(*v),
        DimExpr::Sym(name) => builder.dim(name),
        DimExpr::Bin(..) => unreachable!("handled above"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn join_words(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}
