//! Reduction along an axis.

use super::shape::report;
use crate::Tile;
use tessera_ir::{Attr, Func, InferContext, OpErrors, OpId, Type};
use tessera_numerics::ReduceOp;

pub fn infer_reduce(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let ty = &c.operands[0];
    let axis = c.attrs.get("axis").and_then(Attr::as_int).unwrap_or(-1);
    if axis < 0 || axis as usize >= ty.rank() {
        return Err(format!("expected an axis below {}, got {axis}", ty.rank()));
    }
    let mut shape = ty.shape().to_vec();
    shape.remove(axis as usize);
    Ok(vec![Type::value(shape, ty.dtype())])
}

pub fn verify_reduce(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_reduce);
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
