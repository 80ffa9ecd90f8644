//! Ids, dimension values and implicit origins: all are 64-bit indices.

use crate::Tile;
use tessera_ir::{Attr, Dim, DimExpr, Func, InferContext, OpErrors, OpId, Type};

pub fn infer_index(_: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(vec![Type::INDEX])
}

pub fn verify_axis(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let axis = func.ops[id].attr("axis").and_then(Attr::as_int).unwrap_or(-1);
    if !(0..3).contains(&axis) {
        errors.shape(format!("expected a grid axis of 0, 1 or 2, got {axis}"));
    }
}

/// It must be a symbol or a whole dimension of a parameter.
pub fn verify_dim(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let Some(name) = func.ops[id].attr("name").and_then(Attr::as_expr) else { return };
    let bound = func.params().iter().flat_map(|&p| func.ty(p).shape()).any(|d| match d {
        Dim::Expr(e) => *e == name || e.symbols().iter().any(|s| DimExpr::Sym(s.clone()) == name),
        Dim::Static(_) | Dim::Any => false,
    });
    if !bound {
        errors.push(
            tessera_diag::Code::E_NAME,
            format!("expected a dimension of a parameter, got `{name}`"),
        );
    }
}

pub fn verify_origin(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    if op.attr("step").and_then(Attr::as_int).is_none_or(|s| s <= 0) {
        errors.shape("expected a positive step");
    }
    if op.attr("dim").and_then(Attr::as_exprs).is_none_or(|d| d.len() != 1) {
        errors.structure("expected one dimension in `dim`");
    }
}
