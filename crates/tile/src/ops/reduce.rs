//! Reductions and scans along an axis.

use super::shape::report;
use crate::Tile;
use tessera_ir::{Attr, Func, InferContext, OpErrors, OpId, Type};
use tessera_numerics::{DType, ReduceOp};

fn axis_of(c: &InferContext<'_>) -> Result<usize, String> {
    let rank = c.operands[0].rank();
    let axis = c.attrs.get("axis").and_then(Attr::as_int).unwrap_or(-1);
    if axis < 0 || axis as usize >= rank {
        return Err(format!("expected an axis below {rank}, got {axis}"));
    }
    Ok(axis as usize)
}

pub fn infer_reduce(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let (ty, axis) = (&c.operands[0], axis_of(c)?);
    let mut shape = ty.shape().to_vec();
    shape.remove(axis);
    Ok(vec![Type::value(shape, ty.dtype())])
}

pub fn infer_scan(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    axis_of(c)?;
    Ok(vec![c.operands[0].clone()])
}

pub fn infer_argreduce(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(infer_reduce(c)?.iter().map(|t| t.with_dtype(DType::I32)).collect())
}

pub fn verify_reduce(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_reduce);
    operator(func, id, errors);
}

pub fn verify_scan(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_scan);
    operator(func, id, errors);
}

pub fn verify_argreduce(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_argreduce);
    match func.ops[id].attr("op").and_then(Attr::as_word) {
        Some("max" | "min") => operator(func, id, errors),
        _ => errors.structure("expected `max` or `min` in `op`"),
    }
}

/// The operator takes the dtype of the first operand.
pub(super) fn operator(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let dtype = func.ty(op.operands[0]).dtype();
    match op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name) {
        None => errors.structure("expected a reduction operator in `op`"),
        Some(r) if !r.combine().accepts(dtype) => {
            errors.ty(format!("expected a dtype that `{}` combines, got {dtype}", r.name()));
        }
        Some(_) => {}
    }
}
