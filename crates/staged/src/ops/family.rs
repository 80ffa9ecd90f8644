//! The ops of Tile IR, and `convert_layout`: Tile IR's own rules, and rules on layouts.

use crate::{Staged, StagedOp, adapt, in_family, layouts};
use tessera_diag::Code;
use tessera_ir::{Func, InferContext, OpErrors, OpId, Opcode, Type};
use tessera_tile::TileOp;
use tessera_tile::ops::{atomic, control_ops, reduce, shape};

pub fn verify_tile(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let StagedOp::Tile(code) = func.ops[id].code else { return };
    if !in_family(code) {
        errors.structure(format!("expected an op of Staged IR, got `tile.{}`", code.mnemonic()));
        return;
    }
    if matches!(code, TileOp::Yield | TileOp::Return) {
        return;
    }
    let before = errors.len();
    adapt::check(func, id, errors);
    if errors.len() == before {
        layouts::check(func, id, code, errors);
    }
    if code == TileOp::Atomic {
        unused_old_value(func, id, errors);
    }
}

/// The old value of an atomic op on a `reduce_*` parameter depends on the order of the groups.
fn unused_old_value(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let Type::View { privilege, .. } = func.ty(op.operands[0]) else { return };
    let used = || func.walk().iter().any(|&o| func.ops[o].operands.contains(&op.result()));
    let what = op.attr("op").and_then(tessera_ir::Attr::as_word).unwrap_or_default();
    if privilege.reduces() && atomic::allowed(*privilege, what) && used() {
        errors.push(
            Code::E_PRIVILEGE,
            format!("expected the old value to be left alone beside {}", privilege.name()),
        );
    }
}

pub fn verify_for(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    control_ops::verify_for(func, id, errors);
}

pub fn verify_if(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    control_ops::verify_if(func, id, errors);
}

pub fn verify_while(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    control_ops::verify_while(func, id, errors);
}

pub fn verify_slow_path(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    control_ops::verify_slow_path(func, id, errors);
}

pub fn verify_convert(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    if from.without_layout() != to.without_layout() {
        errors.ty(format!(
            "expected a tile of the operand's shape and dtype, got {} to {}",
            from.without_layout(),
            to.without_layout()
        ));
    }
}

/// Tile IR's result type, with the layout that follows from the operand's.
fn laid(
    c: &InferContext<'_>,
    code: TileOp,
    infer: tessera_ir::InferFn,
) -> Result<Vec<Type>, String> {
    let ty = infer(c)?;
    if let Some(x) = c.operands.first().filter(|t| !layouts::is_of_its_shape(t)) {
        return Err(format!("expected a layout of the tile's shape, got {x}"));
    }
    match (c.operands.first().and_then(Type::layout), ty.as_slice()) {
        (Some(layout), [one]) if one.rank() > 0 => {
            Ok(vec![one.with_layout(layouts::follow(code, layout, c.attrs)?)])
        }
        _ => Ok(ty),
    }
}

pub fn infer_transpose(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    laid(c, TileOp::Transpose, shape::infer_transpose)
}

pub fn infer_expand(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    laid(c, TileOp::Expand, shape::infer_expand)
}

pub fn infer_reduce(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    laid(c, TileOp::Reduce, reduce::infer_reduce)
}

pub fn infer_argreduce(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    laid(c, TileOp::ArgReduce, reduce::infer_argreduce)
}
